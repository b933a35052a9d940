"""Fixtures of the suites: a small world of data and weights, and a terminal in this process."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from suite_world import cifar, class_count, domain_set, imagenet, source_model
from typer.testing import CliRunner

from fretta.cli import app
from fretta.data.cifar import CIFAR_IMAGES
from fretta.data.datasets import OPENERS
from fretta.data.domainsets import DOMAIN_SETS
from fretta.experiment.suite import CaseEntry
from fretta.methods import REGISTRY

Maker = Callable[[Path, Sequence[CaseEntry]], None]


@pytest.fixture
def small_world(monkeypatch: pytest.MonkeyPatch) -> Maker:
    """small_world(root, cases): data and weights for these cases, as small as they go."""

    def make(root: Path, cases: Sequence[CaseEntry]) -> None:
        names = {str(case.data["name"]) for case in cases}
        for name in names & DOMAIN_SETS.keys():
            domain_set(root, name, monkeypatch)
        if any(name.startswith("cifar") for name in names):
            cifar(root)
            for split in ("train", "test"):
                monkeypatch.setitem(CIFAR_IMAGES, split, 100 if "100" in str(names) else 10)
        if "imagenetc" in names:
            imagenet(root)
        (root / "weights").mkdir()
        for case in cases:
            if str(case.model.get("source", "")).endswith(".safetensors"):  # digits is shipped
                size = int(case.data.get("size", 32))
                source_model(root / "weights" / case.model["source"], class_count(case), size)

    return make


Terminal = Callable[[str], str]


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """terminal(lines): what a shell does with the commands of the guides, without a process each.

    The folder is tmp_path, runs use one thread, and what the guides register is forgotten.
    """
    monkeypatch.setattr("fretta.experiment.execute.jobs.cores", lambda: 1)
    monkeypatch.chdir(tmp_path)
    before = dict(REGISTRY), dict(OPENERS)

    def command(line: str) -> str:
        name, *words = shlex.split(line, comments=True)
        if name == "fretta":
            result = CliRunner().invoke(app, words, catch_exceptions=False)
            assert result.exit_code == 0, f"{line}\n{result.output}"
            return result.output
        if name == "export":
            variable, _, value = words[0].partition("=")
            monkeypatch.setenv(variable, value.replace("$PWD", str(tmp_path)))
            if variable == "PYTHONPATH":
                monkeypatch.syspath_prepend(str(tmp_path))
        elif name == "python":
            runpy.run_path(words[0], run_name="__main__")
        else:
            assert name == "cp", f"{line}: this terminal does not know {name}"
            shutil.copy(*words)
        return ""

    def run(text: str) -> str:
        lines = re.sub(r"\\\n\s*", "", text).splitlines()
        return "".join(command(line) for line in lines if line.strip())

    yield run
    for registry, old in zip((REGISTRY, OPENERS), before, strict=True):
        registry.clear()
        registry.update(old)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """`fretta train` writes the stand-in network at once, under the name it was asked for."""
    classes = {"pacs": 7, "cifar10": 10}

    class Made:
        accuracy: dict[str, float] = {}  # noqa: RUF012

    def train_source(config: Any, **options: Any) -> Made:
        size = config.resolved().size
        source_model(Path(config.out), classes[config.data], size)
        return Made()

    monkeypatch.setattr("fretta.experiment.train.train_source", train_source)
