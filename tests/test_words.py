"""Errors and warnings in the words of the place: `source=` in Python, `--source` when typed."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

import fretta
from fretta.cli import main
from fretta.cli.messages import name_options
from fretta.errors import HeadError, NeedError, SmallBatchWarning
from nets import build


@pytest.mark.parametrize(
    ("command", "said", "typed"),
    [
        ("adapt", "give batches of them with source=; without", "with --source; without"),
        ("adapt", "name the right one: head='fc'", "name the right one: --head fc"),
        ("adapt", "Name another module with head='...', or", "with --head NAME, or"),
        ("adapt", "num_classes=7, but the card says 10", "--num-classes 7, but"),
        ("adapt", "lr=-1 cannot work; give", "--set lr=-1 cannot work"),
        ("train", "the loss is not finite at lr=3.0; lower it", "at --lr 3.0; lower"),
        ("train", "of another run; choose another name, or overwrite=True", "or --overwrite"),
        ("evaluate", "tipi: std= is not given: give std=(...)", "--set std=... is not given"),
        ("evaluate", "std=(0.5, 0.5), as many as", "--std 0.5,0.5, as many"),
        ("evaluate", "open the data set with size=160", "with --size 160"),
        ("evaluate", "domains=['fog'] are unknown", "--domain fog are"),
        # of bn, which the message speaks of; not the option of that name
        ("adapt", "or use 'bn' with alpha=0.25, which", "'bn' with --set alpha=0.25, which"),
        ("adapt", "alpha='x'; one of white, black", "--alpha x; one of"),
        ("evaluate", "suite 'evaluate': give the case source={...}", "give the case --source ..."),
        ("run", "suite 'a.toml': limit='x'; a number", "suite 'a.toml': limit='x'; a number"),
        # what nobody can type stays: Python, a path, an address
        ("adapt", "give inplace=True to adapt", "give inplace=True to adapt"),
        ("adapt", "http://host/?head=1 and `self.head=x`", "http://host/?head=1 and `self.head=x`"),
        ("results", "lr=1 is no column", "lr=1 is no column"),
        ("analyze redundancy", "give source=", "give --source"),
    ],
)
def test_python_words_become_options(command: str, said: str, typed: str) -> None:
    assert typed in name_options(said, [*command.split(), "--out", "x"])


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # put back at the end
    monkeypatch.setattr(sys, "argv", ["fretta", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (0, 2)


def test_an_error_of_the_core_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NeedError, match=r"source="):
        fretta.adapt(build("resnet-like"), "eata")
    line = ("evaluate", "--model", "digits", "--data", "digits", "--method", "eata")
    run(monkeypatch, *line, "--store", str(tmp_path / "s"))
    error = capsys.readouterr().err
    assert "--source" in error
    assert "source=" not in error


def test_a_head_that_is_not_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HeadError, match="head='nosuch'"):
        fretta.adapt(build("resnet-like"), "tent", head="nosuch")
    run(monkeypatch, "check", "cifar:resnet20", "--size", "32", "--head", "nosuch")
    assert "--head nosuch is not a module" in capsys.readouterr().err


def test_a_warning_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "evaluate", "--help")
    told, where = "use 'bn' with alpha=0.25", ("adapter.py", 3)
    shown = warnings.formatwarning(SmallBatchWarning(told), SmallBatchWarning, *where)
    assert shown == "warning: use 'bn' with --set alpha=0.25\n"
    assert "adapter.py" in warnings.formatwarning(UserWarning(told), UserWarning, *where)
