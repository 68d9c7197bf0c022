"""Worker processes that live from case to case: importing torch costs seconds, joining a process group milliseconds."""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

START_LIMIT_S = 120.0
JOB_LIMIT_S = 120.0
GROUP_LIMIT_S = 30.0


class WorkersFailedError(AssertionError):
    """A job raised on some rank, or did not end."""


class Pool:
    """Workers that run a function on as many ranks as are asked for, joined in a gloo process group of their own."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[tuple[Any, Connection]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="executor-tests-")
        self._jobs = 0

    def run(self, function: Callable[..., Any], ranks: int, *arguments: Any) -> list[Any]:
        """What `function(*arguments)` returns on each of `ranks` ranks.

        Raises:
            WorkersFailedError: with the tracebacks of the ranks on which it raised. The workers are then given up.
        """
        while len(self._workers) < ranks:
            self._start()
        self._jobs += 1
        store = str(Path(self._folder.name) / f"job{self._jobs}")
        for rank in range(ranks):
            self._workers[rank][1].send((function, rank, ranks, store, arguments))
        answers = [self._answer(rank) for rank in range(ranks)]
        failed = [f"rank {rank}:\n{text}" for rank, (done, text) in enumerate(answers) if not done]
        if failed:
            self._give_up()
            raise WorkersFailedError("\n".join(failed))
        return [result for _, result in answers]

    def close(self) -> None:
        """Ends the workers, and removes what they met through."""
        self._give_up()
        self._folder.cleanup()

    def _give_up(self) -> None:
        for process, pipe in self._workers:
            pipe.close()
            process.kill()
            process.join()
        self._workers.clear()

    def _start(self) -> None:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_work, args=(there,), daemon=True)
        process.start()
        there.close()
        self._workers.append((process, here))

    def _answer(self, rank: int) -> tuple[bool, Any]:
        pipe = self._workers[rank][1]
        if not pipe.poll(JOB_LIMIT_S):
            return False, f"no answer within {JOB_LIMIT_S:.0f} s"
        try:
            answer: tuple[bool, Any] = pipe.recv()
        except EOFError:
            return False, "the process ended"
        return answer


def _work(pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    while True:
        try:
            function, rank, ranks, store, arguments = pipe.recv()
        except EOFError:
            return
        try:
            dist.init_process_group(
                "gloo",
                store=dist.FileStore(store, ranks),  # type: ignore[attr-defined]
                rank=rank,
                world_size=ranks,
                timeout=timedelta(seconds=GROUP_LIMIT_S),
            )
            answer = (True, function(*arguments))
        except Exception:
            answer = (False, traceback.format_exc())
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
        pipe.send(answer)
