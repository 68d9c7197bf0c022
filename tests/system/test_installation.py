"""What is installed is what is tested."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import bapipe
import bapipe_api
import bapipe_cli
import bapipe_client

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(os.environ.get("BAPIPE_TESTED") != "wheel", reason="the checkout is tested, not the wheel")
def test_the_packages_are_those_of_the_installed_wheel() -> None:
    site_packages = Path(sysconfig.get_path("purelib"))

    for package in (bapipe, bapipe_api, bapipe_client, bapipe_cli):
        assert package.__file__ is not None
        assert Path(package.__file__).is_relative_to(site_packages)
        assert Path(package.__file__).with_name("py.typed").exists()


def test_every_extra_is_in_the_readme() -> None:
    """But the one for those who work on BaPipe."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"`bapipe\[(\w+)\]`", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert named == project["optional-dependencies"].keys() - {"dev"}


def test_the_console_script_is_installed() -> None:
    script = Path(sys.executable).with_name("bapipe")

    result = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)

    assert result.stdout.startswith("bapipe 0.")


@pytest.mark.parametrize(
    "library", ["numpy", "torch", "fastapi", "uvicorn", "sqlalchemy", "alembic", "procrastinate", "httpx"]
)
def test_help_and_presets_load_nothing_that_they_do_not_need(library: str) -> None:
    program = (
        "import sys\n"
        f"sys.modules[{library!r}] = None\n"
        "from bapipe_cli.app import app\n"
        "from typer.testing import CliRunner\n"
        "for arguments in (['--help'], ['presets'], ['schema', 'plan']):\n"
        "    result = CliRunner().invoke(app, arguments)\n"
        "    assert result.exit_code == 0, (arguments, result.output, result.exception)\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_command_names_the_extra_that_it_needs() -> None:
    program = (
        "import sys\n"
        "sys.modules['uvicorn'] = None\n"
        "sys.argv = ['bapipe', 'serve']\n"
        "from bapipe_cli.main import main\n"
        "main()\n"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert result.returncode == 2
    assert result.stderr.strip() == "bapipe: this command needs uvicorn: install bapipe[api]"
