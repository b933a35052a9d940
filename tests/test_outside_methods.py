"""A method in a file of one's own works everywhere by name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

import fretta
from fretta import methods
from fretta.errors import ConfigError, ModelError
from fretta.experiment.suite import load_suite
from nets import batches, build

ROOT = Path(__file__).parent.parent
SUITE = """
title = "Mine"
[[cases]]
name = "digits"
data = { name = "digits" }
model = { source = "digits" }
[cases.protocol]
limit = 32
batch_size = 32
domains = ["fog"]
[[methods]]
name = "pseudo:Pseudo"
label = "mine"
lr = 1e-4
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recipe of the README, pasted into a file, and the current folder."""
    text = (ROOT / "README.md").read_text()
    (recipe,) = re.findall(r"```python\n(# pseudo\.py\n.*?)```", text, re.DOTALL)
    (tmp_path / "pseudo.py").write_text(recipe)
    (tmp_path / "mine.toml").write_text(SUITE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    monkeypatch.delitem(sys.modules, "pseudo", raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_by_name_in_python() -> None:
    adapter = fretta.adapt(build("resnet-like"), "pseudo:Pseudo", lr=1e-2)
    x, y = batches(6, 6)
    first = adapter(x)
    assert not torch.equal(adapter.predict(x), first)
    assert adapter.hyperparameters["lr"] == 1e-2
    state = adapter.state_dict()
    again = fretta.adapt(build("resnet-like"), "pseudo:Pseudo", lr=1e-2)
    again.load_state_dict(state)
    assert torch.equal(again(y), adapter(y))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere:Thing", "current folder"),
        ("pseudo:Nothing", "has no 'Nothing'"),
        ("pseudo:Tensor", "derives from fretta.Method"),
        ("pseudoo", "module:Class"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_names_that_lead_nowhere(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        fretta.adapt(build("resnet-like"), name)


def test_an_installed_package_brings_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    point = EntryPoint("pseudo", "pseudo:Pseudo", "fretta.methods")
    monkeypatch.setattr(methods, "_installed", lambda: {"pseudo": point})
    assert "pseudo" in fretta.list_methods()
    assert fretta.adapt(build("resnet-like"), "pseudo").method.key == "pseudo"


def command(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fretta.cli", *arguments],  # -P: as the `fretta` script
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param([], marks=pytest.mark.slow),
        pytest.param(["--jobs", "2"], marks=pytest.mark.slow),
        pytest.param(["--ray"], marks=pytest.mark.ray),
    ],
)
def test_by_name_in_suites_and_workers(folder: Path, jobs: list[str]) -> None:
    command(folder, "run", "mine.toml", "--seed", "0", "--seed", "1", *jobs)
    records = [json.loads(p.read_text()) for p in (folder / "results/records").glob("*.json")]
    assert len(records) == 2
    assert {(r["status"], r["run"]["method"]) for r in records} == {("done", "pseudo:Pseudo")}
    assert "mine" in command(folder, "results", "results")


@pytest.mark.slow
def test_by_name_on_the_command_line(folder: Path) -> None:
    out = command(folder, "compare", "--model", "digits", "--data", "digits", "--limit", "32",
                  "--domain", "fog", "--methods", "pseudo:Pseudo")  # fmt: skip
    assert "pseudo:Pseudo" in out


@pytest.mark.parametrize(
    ("returned", "says"),
    [("None", "returned NoneType"), ("model(x)[:, :3]", r"a tensor of shape \(6, 3\)")],
)
def test_what_a_step_returns_is_checked(
    returned: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"returns_{len(returned)}"
    (tmp_path / f"{name}.py").write_text(
        "from dataclasses import dataclass\nfrom fretta import GradientMethod\n\n@dataclass\n"
        f"class M(GradientMethod):\n    key = 'm'\n    def step(self, model, x):\n"
        f"        logits = model(x)\n        return {returned}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (x,) = batches(6)
    with pytest.raises(ModelError, match=says):
        fretta.adapt(build("resnet-like"), f"{name}:M")(x)


def test_a_method_whose_file_changed_is_run_again(folder: Path) -> None:
    """Otherwise the store would go on saying what the old code did."""

    def key() -> str:
        sys.modules.pop("pseudo", None)
        (job,) = load_suite(folder / "mine.toml").jobs()
        return job.run.key

    before = key()
    assert key() == before
    file = folder / "pseudo.py"
    file.write_text(file.read_text() + "# another idea\n")
    assert key() != before
