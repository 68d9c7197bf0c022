"""Runs a plan of BaPipe on torch workers."""

from __future__ import annotations

from bapipe_executor.batch import Batch
from bapipe_executor.cut_finder import layered
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import MaskedCrossEntropy
from bapipe_executor.trainer import PipelineTrainer

__all__ = ["Batch", "LayeredModel", "MaskedCrossEntropy", "PipelineTrainer", "layered"]
