"""torchrun on one host: `python -m bapipe_executor.torchrun`, with torchrun's own arguments.

It ends when whoever started it does. Of ranks that fail it says nothing: they tell why themselves.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run

from bapipe_executor.lifeline import end_with_parent, with_parent


def main(arguments: Sequence[str]) -> int:
    """Starts the ranks of this host and waits for them. Returns the exit code."""
    end_with_parent(signal.SIGTERM)
    os.environ.update(with_parent({}))  # that is what ranks inherit
    logging.disable(logging.CRITICAL)
    try:
        run(parse_args(list(arguments)))  # type: ignore[no-untyped-call]
    except ChildFailedError:
        return 1
    except SignalException as error:
        return 128 + int(error.sigval)
    except Exception as error:
        sys.stderr.write(f"torchrun: {type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
