"""What a run took, beside what its plan said, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from bapipe.quantities import bytes_text, percent_text, seconds_text
from bapipe_cli.output import table

if TYPE_CHECKING:
    from bapipe_executor.measured.records import RunReport


def print_report(report: RunReport, out: Console, *, memory: bool) -> None:
    """Step and bubble, then operations, then devices, with their `memory`; beside the plan's figures, and the ratio."""
    whole = table(f"Measured over {report.steps} steps, and predicted", ["", "measured", "predicted", "ratio"])
    step, planned = report.measured_step_s, report.predicted_step_s
    whole.add_row("step", seconds_text(step), seconds_text(planned), _ratio(step, planned))
    bubbles = percent_text(report.measured_bubble), percent_text(report.predicted_bubble)
    whole.add_row("bubble", *bubbles, "")
    out.print(whole)
    out.print()
    operations = table("A micro-batch", ["operation", "measured", "predicted", "ratio"])
    for each in report.operations:
        times = seconds_text(each.measured_s), seconds_text(each.predicted_s)
        operations.add_row(f"{each.stage}{each.kind}", *times, _ratio(each.measured_s, each.predicted_s))
    out.print(operations)
    out.print()
    columns = ["device", "busy", "predicted", "ratio"]
    devices = table("Devices", [*columns, "kept and received", "predicted", "ratio"] if memory else columns)
    for device in report.devices:
        busy = seconds_text(device.measured_busy_s), seconds_text(device.predicted_busy_s)
        row = [device.device, *busy, _ratio(device.measured_busy_s, device.predicted_busy_s)]
        if memory:
            kept, planned = device.measured_saved_bytes, device.predicted_saved_bytes
            row += [bytes_text(kept), bytes_text(planned), _ratio(kept, planned)]
        devices.add_row(*row)
    out.print(devices)


def _ratio(measured: float, predicted: float) -> str:
    return f"{measured / predicted:.3f}" if predicted else "-"
