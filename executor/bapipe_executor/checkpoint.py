"""Checkpoints of a run in a folder: a new one for each save, complete or not there at all; the newest wins.

    FOLDER/step-00000040             complete: every rank has written, and everything is on the disk
    FOLDER/step-00000060.partial     being written, or what a run left that died over it; never read

Written with `torch.distributed.checkpoint`. Which rank holds which layers does not matter (`checkpoint_state.py`): a
run can be resumed by another plan on other ranks. All ranks must reach the same folder.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from bapipe.errors import CheckpointError, Fault, InvalidInputError
from bapipe_executor.checkpoint_state import (
    Entries,
    checkpoint_faults,
    entries_of,
    entries_to_read,
    kind_faults,
    restore,
    unpickled,
)
from bapipe_executor.trainer import PipelineTrainer
from bapipe_executor.training_loop import Hook, StepReport

KEPT = 2
"""How many complete checkpoints stay."""

COMPLETE = re.compile(r"step-(\d{8,})")
UNFINISHED = ".partial"


def complete_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """The steps of the complete checkpoints in a folder, and where each is, oldest first."""
    if not folder.is_dir():
        return []
    named = ((COMPLETE.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir())
    return sorted((int(name[1]), path) for name, path in named if name)


class Checkpoints:
    """The checkpoints of a run. Every rank calls the same methods at the same step.

    Raises, on every rank:
        CheckpointError: a rank could not write or read; complete checkpoints stay as they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, trainer: PipelineTrainer) -> Path:
        """Writes a checkpoint of where the ranks are; the oldest ones go."""
        final = self.folder / f"step-{trainer.steps:08}"
        partial = final.with_name(final.name + UNFINISHED)
        try:
            _first_rank(self._clear)
            writer = FileSystemWriter(partial, sync_files=True)
            save(entries_of(trainer), storage_writer=writer, planner=DefaultSavePlanner(flatten_state_dict=False))
            _first_rank(lambda: self._finish(partial, final))
        except (CheckpointException, OSError) as error:
            if dist.get_rank() == 0:
                shutil.rmtree(partial, ignore_errors=True)
            detail = f"the checkpoint of step {trainer.steps} cannot be written to {self.folder}: {_reason(error)}"
            raise CheckpointError(f"{detail}; {self._what_stays()}") from error
        return final

    def resume(self, trainer: PipelineTrainer) -> int:
        """Goes on from the newest complete checkpoint. Returns the steps that are done, 0 where there is none.

        Raises:
            InvalidInputError: it is of another network.
        """
        found = _first_rank(lambda: complete_checkpoints(self.folder)[-1:])
        if not found:
            return 0
        _, path = found[0]
        try:
            entries = _read(path, trainer)
        except InvalidInputError:
            raise
        except (CheckpointException, Exception) as error:  # a damaged file raises anything
            detail = f"the checkpoint {path} cannot be read: {_reason(error)}"
            raise CheckpointError(f"{detail}; if it is damaged, remove it, and the one before is taken") from error
        restore(trainer, entries)
        return trainer.steps

    def _clear(self) -> None:
        """Makes the folder, without what was never finished."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob(f"step-*{UNFINISHED}"):
            shutil.rmtree(path)

    def _finish(self, partial: Path, final: Path) -> None:
        """Names a checkpoint that all ranks have written complete; the oldest are renamed before they are removed."""
        if final.exists():
            _remove(final, ".replaced")
        os.replace(partial, final)
        _flush(self.folder)
        for _, path in complete_checkpoints(self.folder)[:-KEPT]:
            _remove(path)

    def _what_stays(self) -> str:
        stays = complete_checkpoints(self.folder)
        return f"that of step {stays[-1][0]} is complete" if stays else "there is no earlier one"


class Saving(Hook):
    """Saves every so many steps, and at the end. `tell` gets the step of each checkpoint on rank 0. `saved`: the step
    of the checkpoint that the run goes on from.
    """

    def __init__(
        self, checkpoints: Checkpoints, every: int | None, tell: Callable[[int], None], saved: int | None = None
    ) -> None:
        self.checkpoints, self.every, self.tell, self.saved = checkpoints, every, tell, saved

    def after_step(self, trainer: PipelineTrainer, report: StepReport) -> None:
        if self.every is not None and trainer.steps % self.every == 0:
            self._save(trainer)

    def at_end(self, trainer: PipelineTrainer) -> None:
        if self.saved != trainer.steps:
            self._save(trainer)

    def _save(self, trainer: PipelineTrainer) -> None:
        self.checkpoints.save(trainer)
        self.saved = trainer.steps
        if trainer.rank == 0:
            self.tell(trainer.steps)


def _read(path: Path, trainer: PipelineTrainer) -> Entries:
    """The entries of a checkpoint that this rank needs. The model's are read into its tensors.

    Raises:
        InvalidInputError: it is of another network or optimizer.
    """
    reader = FileSystemReader(path)
    metadata = reader.read_metadata()
    _refuse_together(list(checkpoint_faults(trainer, metadata)))
    entries = entries_to_read(trainer, metadata)
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    load(entries, storage_reader=reader, planner=planner)
    entries = unpickled(entries)
    _refuse_together(list(kind_faults(trainer, entries)))
    return entries


def _first_rank(work: Callable[[], Any]) -> Any:
    """What rank 0 gets, on every rank. An OSError there is raised on all."""
    answer: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            answer = [work()]
        except OSError as error:
            answer = [OSError(error.errno, error.strerror, error.filename)]
    dist.broadcast_object_list(answer, src=0)
    if isinstance(answer[0], OSError):
        raise answer[0]
    return answer[0]


def _refuse_together(faults: list[Fault]) -> None:
    """Raises the faults of all ranks on every rank: one that failed alone would leave the others waiting."""
    found: list[list[Fault]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(found, faults)
    everywhere = list(dict.fromkeys(fault for some in found for fault in some))
    if everywhere:
        raise InvalidInputError(everywhere)


def _remove(path: Path, mark: str = "") -> None:
    gone = path.with_name(path.name + mark + UNFINISHED)
    os.replace(path, gone)
    shutil.rmtree(gone)


def _flush(folder: Path) -> None:
    """Has the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: BaseException) -> str:
    """The first rank that failed, and why: what the system said, if it did."""
    if isinstance(error, OSError):
        return str(error)
    if not isinstance(error, CheckpointException):
        return f"{type(error).__name__}: {error}"
    rank, (cause, _) = min(error.failures.items(), key=lambda failure: failure[0])
    told: BaseException | None = cause
    while told is not None and not isinstance(told, OSError):
        told = told.__cause__ or told.__context__
    return f"{told or cause} (rank {rank})"
