"""Every file of examples/ does what it says; the Dockerfile is linted, and its command parsed."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fretta
from commands import fretta as command
from fretta.data import Preprocessing, make_stream, open_dataset
from served import served

EXAMPLES = Path(__file__).parent.parent / "examples"
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """48 digits in fog; the folder of a file names its class."""
    folder = tmp_path_factory.mktemp("fog")
    fog = open_dataset("digits", corruption="fog", severity=5)
    (batch, *_) = make_stream(fog, "continual", seed=0, batch_size=48)
    paths = []
    for number, (pixels, label) in enumerate(zip(batch.x, batch.y, strict=True)):
        path = folder / str(int(label)) / f"{number:03d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(path)
        paths.append(path)
    return paths


def expected(files: list[Path], batch: int, **settings: Any) -> list[tuple[str, float]]:
    """(label, confidence) as `fretta.adapt` gives them, in the same batches."""
    model, card = fretta.models.load_source("digits")
    preprocessing = Preprocessing.from_json(card.preprocessing)
    adapter = fretta.adapt(model, **settings)
    found = []
    for start in range(0, len(files), batch):
        pixels = np.stack([np.asarray(Image.open(f)) for f in files[start : start + batch]])
        x = preprocessing.apply(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous())
        best = adapter(x).softmax(1).max(1)
        names = [card.classes[number] for number in best.indices]
        found += zip(names, best.values.tolist(), strict=True)
    return found


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The app of `fretta serve` behind a token; its address."""
    monkeypatch.setenv("FRETTA_TOKEN", "secret")
    with served(model="digits", wait=5.0, compare_source=True) as address:
        yield address


def run(*words: Any) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@slow
def test_the_python_client(service: str, files: list[Path]) -> None:
    lines = run(sys.executable, EXAMPLES / "client.py", service, "cam", *files[:32]).splitlines()
    rows = [line.split("\t") for line in lines]
    assert [row[0] for row in rows] == [str(file) for file in files[:32]]
    wanted = expected(files[:32], 32, guard="rollback")
    assert [tuple(row[1:3]) for row in rows] == [(name, f"{p:.3f}") for name, p in wanted]

    module = runpy.run_path(str(EXAMPLES / "client.py"))
    client = module["Client"](service, "secret")
    answers = client.predict("other", [file.read_bytes() for file in files[:32]])
    assert [(a["label"], a["confidence"]) for a in answers] == wanted  # bit for bit
    labels = {a["id"]: file.parent.name for a, file in zip(answers, files[:32], strict=True)}
    right = sum(a["label"] == labels[a["id"]] for a in answers)
    measured = client.feedback("other", labels)
    assert (measured["taken"], measured["accuracy"]) == (32, right / 32)
    with pytest.raises(RuntimeError, match="401"):
        module["Client"](service, "wrong").stream("cam")


@slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: client.sh is NOT tested")
def test_the_client_with_curl(service: str, files: list[Path]) -> None:
    lines = run("sh", EXAMPLES / "client.sh", service, "cam", *files[:32]).splitlines()
    health, predicted, stream, frozen, resumed = map(json.loads, lines)
    assert health == {"status": "ok"}
    wanted = expected(files[:32], 32, guard="rollback")
    assert [(a["label"], a["confidence"]) for a in predicted["answers"]] == wanted
    assert stream["images"] == 32
    assert (frozen["frozen"], resumed["frozen"]) == (True, False)


@slow
def test_the_fastapi_app(files: list[Path]) -> None:
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    threads = torch.get_num_threads()
    app = runpy.run_path(str(EXAMPLES / "fastapi_app.py"))["app"]
    torch.set_num_threads(threads)
    with TestClient(app) as client:
        for _ in range(2):  # the same after a reset
            found: list[tuple[str, float]] = []
            for some in (files[:24], files[24:]):
                sent = [("images", (file.name, file.read_bytes())) for file in some]
                answer = client.post("/predict", files=sent).json()
                assert answer["entropy"] > 0
                found += zip(answer["labels"], answer["confidences"], strict=True)
            assert found == expected(files, 24, guard="rollback")
            assert client.post("/reset").status_code == 200
        bad = client.post("/predict", files=[("images", ("a.png", b"no image"))])
        assert bad.status_code == 400
        assert "a.png is no image" in bad.json()["detail"]


@slow
@pytest.mark.filterwarnings("ignore")  # of Lightning, about loaders and workers
def test_the_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The same predictions; those of Lightning come from one adapter that was never put away."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    runpy.run_path(str(EXAMPLES / "plain_loop.py"), run_name="__main__")
    shares = dict(re.findall(r"^(as it was|adapting) +([\d.]+%)", capsys.readouterr().out, re.M))
    assert float(shares["adapting"][:-1]) > float(shares["as it was"][:-1]) + 10
    pytest.importorskip("lightning", reason="no Lightning: its loop is NOT tested")
    runpy.run_path(str(EXAMPLES / "lightning_loop.py"), run_name="__main__")
    assert f"adapting   {shares['adapting']}" in capsys.readouterr().out


def test_without_lightning_the_loop_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setitem(sys.modules, "lightning", None)
    with pytest.raises(SystemExit, match="pip install lightning"):
        runpy.run_path(str(EXAMPLES / "lightning_loop.py"), run_name="__main__")


# ---- the Dockerfile -----------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = (EXAMPLES / "Dockerfile").read_text()
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.M).replace("\\\n", " ").splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip()]  # type: ignore[misc]


def test_the_dockerfile() -> None:
    """What hadolint asks for, as far as it concerns this file."""
    found = instructions()
    words = [word for word, _ in found]
    known = ("FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "VOLUME", "EXPOSE", "HEALTHCHECK")
    assert set(words) <= {*known, "ENTRYPOINT", "CMD"}
    assert words[0] == "FROM"
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-[\w-]+", dict(found)["FROM"])  # pinned, not latest
    assert words.count("CMD") == words.count("ENTRYPOINT") == 1
    last_user = [value for word, value in found if word == "USER"][-1]
    assert last_user not in ("root", "0")
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert not any(word == "RUN" for word in words[words.index("USER") :])
    runs = " ".join(value for word, value in found if word == "RUN")
    assert "sudo" not in runs
    assert all("--no-cache-dir" in part for part in runs.split("&&") if "pip install" in part)
    root = EXAMPLES.parent
    for value in (value for word, value in found if word == "COPY"):
        assert all((root / source).exists() for source in value.split()[:-1])
    ignored = (EXAMPLES / "Dockerfile.dockerignore").read_text().splitlines()
    copied = {s for word, value in found if word == "COPY" for s in value.split()[:-1]}
    assert {f"!{name}" for name in copied} <= set(ignored)


def test_the_command_of_the_container(tmp_path: Path) -> None:
    """It parses, listens on the port that is exposed, and keeps its streams in the volume."""
    found = dict(instructions())
    entry, arguments = json.loads(found["ENTRYPOINT"]), json.loads(found["CMD"])  # exec form
    assert entry[0] == "fretta"
    config = tmp_path / "serve.yaml"
    done = command(*entry[1:], *arguments, "--write-config", config)
    assert done.returncode == 0, done.stderr
    text = config.read_text()
    assert re.search(rf"port: {found['EXPOSE']}\b", text)
    assert re.search(rf"store: {found['VOLUME']}\b", text)
    extras = re.search(r"\.\[([\w,]+)\]", found["RUN"])
    assert extras
    assert {"serve", "data"} <= set(extras[1].split(","))
