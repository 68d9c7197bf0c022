"""`python -m bapipe.examples`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bapipe.examples.__main__ import documents, main


def test_it_writes_every_document(tmp_path: Path) -> None:
    main([str(tmp_path / "new")])

    assert {path.name for path in (tmp_path / "new").iterdir()} == documents().keys()


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["--hlep"], 2), (["a", "b"], 2)])
def test_options_make_no_folder(
    arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == code
    assert list(tmp_path.iterdir()) == []
