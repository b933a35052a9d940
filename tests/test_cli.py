"""The command line, as a user types it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import fretta
from commands import fretta as run_command
from commands import fretta_alone
from fretta.cli import with_ray_address
from fretta.models.load import ASSETS


def test_list() -> None:
    out = fretta_alone("list")
    assert out.returncode == 0
    lines = out.stdout.splitlines()
    assert lines[0].split()[:3] == ["method", "passes", "needs"]
    assert [line.split()[0] for line in lines[1:]] == fretta.list_methods()
    assert "2F+2B" in next(line for line in lines if line.startswith("sar"))


def test_version_and_help() -> None:
    assert fretta_alone("--version").stdout.strip() == f"fretta {fretta.__version__}"
    for arguments in (["--help"], ["list", "--help"], ["check", "--help"]):
        assert fretta_alone(*arguments).returncode == 0


def test_check() -> None:
    out = run_command("check", "timm:resnet18", "--size", "64", "--num-classes", "10").stdout
    assert "fc (512 features)" in out
    assert "20 BatchNorm2d" in out
    assert "classes   10" in out
    rows = {line.split()[0]: line for line in out.splitlines() if " yes " in line or " no " in line}
    assert sorted(rows) == fretta.list_methods()
    assert all(" yes " in row for row in rows.values())


def test_check_takes_what_adapt_takes(tmp_path: Path) -> None:
    """A model of the package, a weights file with its card; as argument or as option."""
    by_name = run_command("check", "digits").stdout
    assert "linear (64 features)" in by_name
    assert "images    squash to 32×32" in by_name
    for suffix in (".safetensors", ".json"):
        shutil.copy(ASSETS / f"digits{suffix}", tmp_path / f"mine{suffix}")
    by_file = run_command("check", "--model", str(tmp_path / "mine.safetensors")).stdout
    assert by_file.splitlines()[1:] == by_name.splitlines()[1:]


def test_check_says_why_not() -> None:
    out = run_command("check", "torchvision:squeezenet1_1", "--size", "64").stdout
    assert "norms     none" in out
    assert "head      not found" in out
    words = " ".join(out.split())
    assert "tent no tent adapts scale and shift" in words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "resnet18"], "is not understood"),
        (["check"], "give the model once"),
        (["check", "digits", "--model", "digits"], "give the model once"),
        (["check", "digits", "--num-classes", "3"], "--num-classes 3"),
        (["check", "timm:resnet18", "--weights", "no.pt"], "no weights file"),
        (["check", "timm:resnet18", "--head", "x"], "--head x is not a module"),
    ],
)
def test_errors_are_one_line_and_exit_two(arguments: list[str], message: str) -> None:
    out = run_command(*arguments)
    assert out.returncode == 2
    assert out.stderr.startswith("error:")
    assert message in " ".join(out.stderr.split())
    assert "Traceback" not in out.stderr


def test_ray_may_stand_without_an_address() -> None:
    assert with_ray_address(["run", "smoke", "--ray"]) == ["run", "smoke", "--ray", "local"]
    assert with_ray_address(["run", "--ray", "--force", "x"]) == [
        "run",
        "--ray",
        "local",
        "--force",
        "x",
    ]
    assert with_ray_address(["run", "--ray", "auto", "x"]) == ["run", "--ray", "auto", "x"]
