"""What a run took, beside what the plan said: operations, steps, memory; and what is learned from it."""

from bapipe_executor.measured.recorder import Recorder, Recording

__all__ = ["Recorder", "Recording"]
