"""Writes the example profiles and clusters as JSON: `python -m bapipe.examples examples`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bapipe.examples import example_names, load_example
from bapipe.formats import to_json
from bapipe.presets import clusters
from bapipe.presets.boards import board_clusters


def documents() -> dict[str, str]:
    """The text of every example file by its name."""
    profiles = {f"{name}.profile.json": to_json(load_example(name)) for name in example_names()}
    every = clusters() | board_clusters()
    return profiles | {f"{name}.cluster.json": to_json(cluster) for name, cluster in every.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes every document to the folder that is named, which is made if need be."""
    parser = argparse.ArgumentParser(prog="python -m bapipe.examples", description="Write the examples as JSON.")
    parser.add_argument("folder", nargs="?", default="examples", type=Path, help="where to [default: ./examples]")
    target: Path = parser.parse_args(arguments).folder
    target.mkdir(parents=True, exist_ok=True)
    for name, text in documents().items():
        (target / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
