"""The command line, as a user types it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import fretta
from commands import fretta as run_command
from fretta.cli import app, with_ray_address
from fretta.cli.app import print_line, print_table
from fretta.cli.data import severities
from fretta.cli.options import StreamOptions
from fretta.describe import describe
from fretta.errors import ConfigError
from fretta.experiment.store import Store
from fretta.experiment.train import TrainConfig
from fretta.models import Card
from fretta.models.load import ASSETS


def test_list_version_and_help() -> None:
    out = run_command("list")
    assert out.returncode == 0
    lines = out.stdout.splitlines()
    assert lines[0].split()[:3] == ["method", "passes", "needs"]
    assert [line.split()[0] for line in lines[1:]] == fretta.list_methods()
    assert "2F+2B" in next(line for line in lines if line.startswith("sar"))
    assert run_command("--version").stdout.strip() == f"fretta {fretta.__version__}"
    assert run_command("check", "--help").returncode == 0


def test_check() -> None:
    out = run_command("check", "timm:resnet18", "--size", "64", "--num-classes", "10").stdout
    assert "fc (512 features)" in out
    assert "20 BatchNorm2d" in out
    assert "classes   10" in out
    rows = {line.split()[0]: line for line in out.splitlines() if " yes " in line or " no " in line}
    assert sorted(rows) == fretta.list_methods()
    assert all(" yes " in row for row in rows.values())
    out = run_command("check", "torchvision:squeezenet1_1", "--size", "64").stdout
    assert "norms     none" in out
    assert "head      not found" in out
    assert "tent no tent adapts scale and shift" in " ".join(out.split())


@pytest.mark.slow
def test_check_takes_what_adapt_takes(tmp_path: Path) -> None:
    """A model of the package, a weights file with its card; as argument or as option."""
    by_name = run_command("check", "digits").stdout
    assert "linear (64 features)" in by_name
    assert "images    squash to 32×32" in by_name
    for suffix in (".safetensors", ".json"):
        shutil.copy(ASSETS / f"digits{suffix}", tmp_path / f"mine{suffix}")
    by_file = run_command("check", "--model", str(tmp_path / "mine.safetensors")).stdout
    assert by_file.splitlines()[1:] == by_name.splitlines()[1:]


def test_ray_may_stand_without_an_address() -> None:
    assert with_ray_address(["run", "smoke", "--ray"]) == ["run", "smoke", "--ray", "local"]
    assert with_ray_address(["run", "--ray", "--force"]) == ["run", "--ray", "local", "--force"]
    assert with_ray_address(["run", "--ray", "auto", "x"]) == ["run", "--ray", "auto", "x"]


def test_a_name_that_is_not_utf8_is_printed() -> None:
    raw, name = io.BytesIO(), "caf\udce9.png"  # as os.fsdecode(b"caf\xe9.png") has it
    with contextlib.redirect_stdout(io.TextIOWrapper(raw, "utf-8", "strict")) as out:
        print_line(name)
        print_table(["name"], [[name]])
        out.flush()
        assert raw.getvalue().decode().count("caf\\udce9.png") == 2


def test_names_of_corruptions() -> None:
    assert StreamOptions().corruptions() == []
    assert StreamOptions(["fog", "all"]).corruptions()[:2] == ["fog", "gaussian_noise"]
    assert len(StreamOptions(["all", "extra", "fog"]).corruptions()) == 19
    with pytest.raises(ConfigError, match="unknown corruption 'fogg'"):
        StreamOptions(["fog", "fogg"]).corruptions()


# ---- doctor, corrupt, train ----------------------------------------------------------------------


def test_severities() -> None:
    assert severities("1-5") == [1, 2, 3, 4, 5]
    assert severities("1,3") == [1, 3]
    assert severities("5") == [5]
    with pytest.raises(ConfigError, match="write 5, 1,3 or 1-5"):
        severities("high")


def test_doctor(tmp_path: Path) -> None:
    out = run_command("doctor", "digits", cwd=tmp_path)
    assert out.returncode == 0
    assert "digits: 0 errors" in out.stdout
    out = run_command("doctor", "pacs", "--data", tmp_path, cwd=tmp_path)
    assert out.returncode == 1
    assert str(tmp_path) in "".join(out.stdout.split("\n"))


def test_corrupt(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    for name in ("cat", "dog"):
        (pictures / name).mkdir(parents=True)
        for i in range(2):
            Image.effect_noise((48, 40), 50).convert("RGB").save(pictures / name / f"{i}.jpg")
    line = "corrupt pictures shifted --corruption fog,contrast --severity 1,5"
    arguments = line.split()
    out = run_command(*arguments, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert "16 images written, 0 already there" in out.stdout
    assert len(list((tmp_path / "shifted").rglob("*.jpg"))) == 16
    assert (tmp_path / "shifted" / "fog" / "5" / "cat" / "0.jpg").is_file()
    assert "0 images written, 16 already there" in run_command(*arguments, cwd=tmp_path).stdout
    (pictures / "cat" / "2.jpg").write_bytes(b"no image")
    broken = run_command(*arguments, cwd=tmp_path)
    assert broken.returncode == 2
    assert "2.jpg" in broken.stderr
    skipped = run_command(*arguments, "--skip-unreadable", cwd=tmp_path)
    assert skipped.returncode == 0
    assert "unreadable, left out" in skipped.stdout


def test_train_writes_weights_and_a_card_and_can_be_repeated(tmp_path: Path) -> None:
    arguments = ("train", "digits", "--out", "d.safetensors", "--epochs", 1, "--limit", 64)
    out = run_command(*arguments, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    card = json.loads((tmp_path / "d.json").read_text())
    assert card["num_classes"] == 10
    assert card["preprocessing"]["size"] == 32
    weights = (tmp_path / "d.safetensors").read_bytes()
    assert run_command(*arguments, cwd=tmp_path).returncode == 0  # finished: nothing to do
    assert (tmp_path / "d.safetensors").read_bytes() == weights
    line = "evaluate --model d.safetensors --data digits --method source --limit 16 --domain fog"
    check = run_command(*line.split(), cwd=tmp_path)
    assert check.returncode == 0, check.stderr
    wrong = run_command("train", "pacs", "--out", "p.safetensors", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "target" in wrong.stderr


def test_train_overwrite_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unfinished run is what goes on otherwise."""
    given: list[tuple[bool, bool]] = []

    def train_source(config: TrainConfig, *, resume: bool, progress: object) -> Card:
        given.append((config.overwrite, resume))
        return Card("digits:resnet8", 10, [], {}, {}, {}, 0)

    monkeypatch.setattr("fretta.experiment.train.train_source", train_source)
    line = ["train", "digits", "--out", str(tmp_path / "d.safetensors")]
    for more in ([], ["--overwrite"]):
        CliRunner().invoke(app, [*line, *more], catch_exceptions=False)
    assert given == [(False, True), (True, False)]


@pytest.mark.parametrize("key", fretta.list_methods())
def test_every_method_describes_itself(key: str) -> None:
    """Paper, loss and each hyper-parameter with its meaning, from where they are written once."""
    found = describe(key)
    assert found.loss != "-"
    assert found.what
    assert key == "source" or re.search(r"(19|20)\d\d", found.paper)
    method = fretta.methods.find_method(key)
    own = set(method.field_names()) - set(fretta.Method.field_names())
    assert own <= {f.name for f in found.fields}
    assert all(f.meaning for f in found.fields)
    assert set(method.published) <= set(method.field_names())
    assert set(method.differs) <= set(found.variants)
    assert all(found.variants.values())


def test_info() -> None:
    out = run_command("info", "rdumb").stdout
    for words in ("Press, Schneider", "exp(E0 - H_i)", "1F+1B per batch", "reset_every 1000", "ε"):
        assert words in " ".join(out.split())
    assert "released:" in out
    assert "did you mean 'lame'" in run_command("info", "lam").stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_that_knows_few_letters(encoding: str) -> None:
    """β is escaped there, and ends nothing."""
    line = [sys.executable, "-m", "fretta", "info", "tent"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(line, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert rb"\u03b2" in done.stdout


def test_a_gradual_stream_takes_several_severities(tmp_path: Path) -> None:
    line = ["evaluate", "--model", "digits", "--data", "digits", "--corruption", "fog"]
    line += ["--severity", "1", "--severity", "3", "--order", "gradual", "--limit", "8"]
    done = CliRunner().invoke(app, [*line, "--method", "source", "--store", str(tmp_path)])
    assert done.exit_code == 0, done.output
    (record,) = Store(tmp_path).records()
    assert record.run["data"]["severity"] == [1, 3]
    assert [row["domain"] for row in record.rows] == ["fog/1", "fog/3"]
