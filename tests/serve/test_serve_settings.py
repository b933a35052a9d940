"""Settings are plain values; what cannot work is refused by name."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fretta.cli import app
from fretta.deploy.output import lock_folder
from fretta.errors import ConfigError, StoreError
from fretta.serve.settings import Settings, shard_of


def test_to_a_file_and_back_without_the_token() -> None:
    given = Settings("digits", mean=(0.5,), hyperparameters={"lr": 1e-3}, token="secret", shards=2)
    values = json.loads(json.dumps(given.to_dict()))
    assert values == {
        "model": "digits",
        "mean": [0.5],
        "hyperparameters": {"lr": 1e-3},
        "shards": 2,
    }
    assert Settings.from_dict({**values, "token": "secret"}) == given
    assert "secret" not in repr(given)


def test_the_token_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRETTA_TOKEN", raising=False)
    assert Settings("digits").bearer is None
    monkeypatch.setenv("FRETTA_TOKEN", " from-outside\n")
    assert Settings("digits").bearer == "from-outside"
    assert Settings("digits", token="given").bearer == "given"


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"modle": "digits"}, "'modle' is no setting.*'model'"),
        ({}, "name no model"),
        ({"model": ""}, "names no model"),
        ({"model": "digits", "guard": "maybe"}, "guard='maybe'.*rollback"),
        ({"model": "digits", "batch_size": 0}, "batch_size=0"),
        ({"model": "digits", "batch_size": 8.0}, "batch_size=8.0.*int"),
        ({"model": "digits", "batch_size": True}, "batch_size=True"),
        ({"model": "digits", "wait": float("nan")}, "wait=nan"),
        ({"model": "digits", "wait": "1"}, "wait='1'"),
        ({"model": "digits", "port": 0}, "port=0 .*1 or more"),
        ({"model": "digits", "port": 70000}, "port=70000"),
        ({"model": "digits", "timeout": 0}, r"timeout=0 .*0\.1 or more"),
        ({"model": "digits", "token": " "}, "let everybody in"),
        ({"model": "digits", "store": 3}, "store=3"),
        ({"model": "digits", "hyperparameters": [1]}, r"hyperparameters=\[1\]"),
    ],
)
def test_what_cannot_work_is_named(values: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Settings.from_dict(values)


def test_the_yaml_has_absolute_paths_and_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yaml = pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRETTA_TOKEN", "opensesame")
    for name in ("mine.safetensors", "labels.txt"):
        Path(name).touch()
    words = ["serve", "--model", "mine.safetensors", "--labels", "labels.txt", "--store", "streams"]
    CliRunner().invoke(app, [*words, "--write-config", "serve.yaml"], catch_exceptions=False)
    text = Path("serve.yaml").read_text()
    assert "opensesame" not in text
    arguments = yaml.safe_load(text)["applications"][0]["args"]
    places = {"model": "mine.safetensors", "labels": "labels.txt", "store": "streams"}
    assert {k: v for k, v in arguments.items() if k in places} == {
        name: str(tmp_path / place) for name, place in places.items()
    }


def test_a_stream_has_the_same_shard_in_every_process() -> None:
    names = [f"cam{i}" for i in range(200)]
    here = [shard_of(name, 3) for name in names]
    code = (
        "from fretta.serve.settings import shard_of; import sys;"
        " print([shard_of(f'cam{i}', 3) for i in range(200)], 'torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == f"{here} False"
    assert set(here) == {0, 1, 2}


def test_a_folder_belongs_to_one_service(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    words = ["serve", "--model", "digits", "--port", port, "--store", str(tmp_path)]
    with lock_folder(tmp_path), pytest.raises(StoreError, match="another run is writing"):
        CliRunner().invoke(app, words, catch_exceptions=False)
