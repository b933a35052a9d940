"""Several methods in one pass, and `fretta compare` as a user types it."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner, Result

import fretta
from commands import fretta as run_command
from fretta.api import build_method
from fretta.cli import app
from fretta.data import Preprocessing, Stream, make_stream, open_dataset
from fretta.errors import ConfigError, DataError, NeedError
from fretta.estimate.compare import answer, compare
from fretta.experiment.case import Case
from fretta.experiment.loop import Item, share_frozen
from fretta.models import load, load_source

NAMES = ("bn", "tent", "tsd", "g-fret")
Digits = tuple[nn.Module, list[Item]]


@pytest.fixture(scope="module")
def digits() -> Digits:
    net, card = load_source("digits")
    preprocessing = Preprocessing.from_json(card.preprocessing)
    data = open_dataset("digits", corruption=["gaussian_noise", "fog"])
    stream = make_stream(data, "independent", batch_size=32, limit=128)
    items = [Item(preprocessing.apply(b.x), b.y, b.reset, b.domain) for b in stream]
    return net, items


@pytest.mark.slow
def test_every_method_does_what_it_does_alone(digits: Digits) -> None:
    net, items = digits
    before = {k: v.clone() for k, v in net.state_dict().items()}
    rows = compare(net, items, {name: build_method(name, {}) for name in NAMES})
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert {row.method for row in rows} == {"source", *NAMES}
    for row in rows:
        alone = fretta.adapt(net, row.method)
        right = 0
        for item in items:
            if item.reset:
                alone.reset()
            right += int((alone(item.x).argmax(1) == item.y).sum())
        assert row.accuracy == right / 256  # to the last image
        assert row.estimate.samples == 256
    assert len({row.estimate.source for row in rows}) == 1


def test_helpful_adapting_is_seen_without_labels(digits: Digits) -> None:
    net, items = digits
    blind = [Item(item.x, None, item.reset, item.domain) for item in items]
    rows = compare(net, blind, {"bn": build_method("bn", {})})
    assert [row.accuracy for row in rows] == [None, None]
    assert [row.method for row in rows] == ["bn", "source"]
    assert rows[0].verdict == "helps"
    assert answer(rows).startswith("Adapting helps: bn is estimated at +")
    # what the labels say, which the rows above have not seen
    seen = compare(net, items, {"bn": build_method("bn", {})})
    assert seen[0].accuracy is not None
    assert seen[1].accuracy is not None
    assert seen[0].accuracy > seen[1].accuracy + 0.1
    assert seen[0].estimate == rows[0].estimate
    still = compare(net, blind, {"still": build_method("bn", {"alpha": 0.0})})
    assert {row.verdict for row in still} == {"reference", "no change"}
    assert answer(still).startswith("The source model predicted")


@pytest.mark.slow
def test_a_ruined_model_comes_last(digits: Digits) -> None:
    net, items = digits
    ruined = build_method("tent", {"lr": 10.0})
    several = [Item(i.x, i.y, False, "") for _ in range(3) for i in items]
    rows = compare(net, several, {"bn": build_method("bn", {}), "ruined": ruined})
    assert rows[-1].method == "ruined"
    assert rows[-1].verdict in ("hurts", "collapsed")
    only = compare(net, several, {"ruined": build_method("tent", {"lr": 10.0})})
    assert answer(only).startswith("Adapting hurts")


def test_frozen_tensors_are_shared_and_adapted_ones_are_not(digits: Digits) -> None:
    net, items = digits
    x = items[0].x
    adapter, twin = fretta.adapt(net, "tent"), fretta.adapt(net, "tent")
    adapter(x)
    twin(x)
    adapted = sum(p.numel() for p in adapter.model.adapted.values())
    everything = sum(p.numel() for p in net.parameters())
    assert share_frozen(adapter, net) == 4 * (everything - adapted)
    assert share_frozen(adapter, net) == 0
    theirs = {id(p) for p in net.parameters()}
    mine = dict(adapter.model.net.named_parameters())
    assert {n for n, p in mine.items() if id(p) not in theirs} == set(adapter.adapted)
    assert torch.equal(adapter(x), twin(x))
    all_of_it = fretta.adapt(net, "tsd")
    all_of_it(x)
    assert share_frozen(all_of_it, net) < 4 * everything


def test_what_cannot_be_compared(digits: Digits) -> None:
    net, items = digits
    with pytest.raises(DataError, match="no image"):
        compare(net, [], {"bn": build_method("bn", {})})
    with pytest.raises(ConfigError, match="'source' is the unadapted model"):
        compare(net, items, {"source": build_method("bn", {})})
    with pytest.raises(ConfigError, match="has 3 labels"):
        compare(net, [Item(items[0].x, torch.zeros(3))], {})
    with pytest.raises(ConfigError, match="label 12, but the model has 10 classes"):
        compare(net, [Item(items[0].x, torch.full((32,), 12))], {})


# ---- the command --------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    done = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["compare", *arguments])
    assert done.exception is None, done.exception
    return done


def test_compare_digits_end_to_end(tmp_path: Path) -> None:
    out = run(
        *("--model", "digits", "--data", "digits", "--methods", "source,bn,tent"),
        *("--domain", "gaussian_noise", "--domain", "contrast", "--limit", "128"),
        *("--batch-size", "32", "--set", "tent.lr=1e-4", "--out", str(tmp_path / "out")),
    )
    lines = [line.split() for line in out.output.splitlines()]
    assert any(line[:3] == ["method", "verdict", "change"] for line in lines)
    assert any(line[:2] == ["bn", "helps"] for line in lines)
    assert "Adapting helps (measured): +" in out.output
    with (tmp_path / "out" / "compare.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    content = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert set(rows) == {"source", "bn", "tent"} == {m["method"] for m in content["methods"]}
    methods = {m["method"]: m for m in content["methods"]}
    for name, method in methods.items():
        assert float(rows[name]["change"]) == method["change"]
        assert method["samples"] == 256
        assert sum(method["predicted"]) == sum(method["labeled"]) == 256
        assert sum(method["right"]) == 256 * method["accuracy"]
    assert methods["tent"]["hyperparameters"]["lr"] == 1e-4
    measured = methods["bn"]["measured"]
    assert (measured["gained"] - measured["lost"]) / 256 == measured["change"]
    assert measured["change"] == methods["bn"]["accuracy"] - methods["source"]["accuracy"]
    assert float(rows["bn"]["measured_p"]) == measured["p"] < 0.001
    page = (tmp_path / "out" / "compare.html").read_text()
    assert content["answer"] in unescape(page)
    assert "Accuracy by class" in page


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """40 clean digits in folders of their classes, one of them broken."""
    image = pytest.importorskip("PIL.Image")
    batch = next(iter(make_stream(open_dataset("digits"), batch_size=40, limit=40)))
    for number, (x, y) in enumerate(zip(batch.x, batch.y, strict=True)):
        place = tmp_path / "images" / str(int(y))
        place.mkdir(parents=True, exist_ok=True)
        pixels = x.permute(1, 2, 0).numpy()
        image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(
            place / f"{number}.png"
        )
    (tmp_path / "images" / "0" / "<b>broken.png").write_bytes(b"no image")
    return tmp_path / "images"


def test_compare_reads_a_folder_of_images(folder: Path, tmp_path: Path) -> None:
    line = ["--model", "digits", "--data", str(folder), "--methods", "bn", "--batch-size", "20"]
    refused = CliRunner().invoke(app, ["compare", *line])
    assert isinstance(refused.exception, DataError)
    assert "broken.png" in str(refused.exception)
    assert "--skip-unreadable" in str(refused.exception)
    out = run(*line, "--skip-unreadable", "--out", str(tmp_path / "out"))
    assert "1 of 41 images could not be read: left out" in out.output
    assert "broken.png" in out.output
    assert "shuffled (seed 0)" in out.output
    assert "Measured with labels" in out.output  # the folders are named as the classes
    content = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert [name for name, _ in content["unreadable"]] == ["0/<b>broken.png"]
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "<b>broken" not in page
    assert "&lt;b&gt;broken.png" in page
    assert not re.search("<(script|img|link|iframe)", page)


def test_compare_skips_unreadable_images_of_a_data_set(folder: Path, tmp_path: Path) -> None:
    for number in range(10):  # as many folders as the model has classes
        (folder / str(number)).mkdir(exist_ok=True)
    line = ["compare", "--model", "digits", "--data", "folder", "--root", folder, "--methods", "bn"]
    refused = run_command(*line)
    assert refused.returncode == 2
    assert "broken.png" in refused.stderr
    done = run_command(*line, "--skip-unreadable", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "1 of 41 images could not be read: left out" in done.stdout
    content = json.loads((tmp_path / "out" / "compare.json").read_text())
    ((name, why),) = content["unreadable"]
    assert name == str(folder / "0" / "<b>broken.png")
    assert not why.startswith("unreadable image")


def test_compare_decodes_a_data_set_in_as_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = Case.stream, []

    def stream(case: Case, order: str, **options: Any) -> Stream:
        seen.append(options.pop("workers"))
        return real(case, order, **options)

    monkeypatch.setattr(Case, "stream", stream)
    line = ["compare", "--model", "digits", "--data", "digits", "--domain", "fog", "--limit", 32]
    for more in ([], ["--workers", 3]):
        assert run_command(*line, "--methods", "bn", *more).returncode == 0
    assert seen == [0, 3]


# ---- verdicts -----------------------------------------------------------------------------------


class Fixed(nn.Module):
    """Logits that are written in the pixels, so that a test decides every answer."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.head = nn.Linear(10, 10)
        self.norm = nn.BatchNorm1d(10, affine=False)
        with torch.no_grad():
            self.head.weight.copy_(scale * torch.eye(10))
            self.head.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.norm(x[:, 0, 0, :10]))
        return logits


def cats(share: float) -> list[Item]:
    """512 images of ten classes that a fixed model knows well; class 3 holds `share`."""
    g = torch.Generator().manual_seed(0)
    p = torch.full((10,), (1 - share) / 9)
    p[3] = share
    y = torch.multinomial(p, 512, replacement=True, generator=g)
    x = torch.zeros(512, 3, 16, 16)
    x[:, 0, 0, :10] = torch.nn.functional.one_hot(y, 10) + torch.randn(512, 10, generator=g) / 3
    return [Item(*pair) for pair in zip(x.split(64), y.split(64), strict=True)]


def test_a_stream_of_cats_is_never_said_to_gain() -> None:
    """Batch statistics spread the cats over all classes, which looks like diversity."""
    names = [*"abc", "cat", *"defghi"]
    net = Fixed(4.0).eval()
    net.norm.running_mean.fill_(0.1)
    net.norm.running_var.fill_(0.2)
    items = cats(0.8)
    blind = [Item(item.x) for item in items]
    methods = {"bn": build_method("bn", {})}
    rows = {row.method: row for row in compare(net, blind, methods)}
    assert rows["bn"].estimate.change > 0
    assert rows["bn"].verdict == "cannot tell"
    assert "classes look uneven" in answer(rows.values(), names)
    assert "% predicted cat." in answer(rows.values(), names)
    assert rows["bn"].to_json(names)["reason"].startswith("classes look uneven")
    assert [row.method for row in compare(net, blind, methods)] == ["source", "bn"]
    prior = [0.2 / 9] * 10
    prior[3] = 0.8
    known = {row.method: row for row in compare(net, blind, methods, prior=prior)}
    assert known["bn"].verdict == "hurts"
    # labels have the last word
    seen = {row.method: row for row in compare(net, items, methods)}
    measured = seen["bn"].measured
    assert measured is not None
    assert seen["bn"].verdict == "hurts"
    assert seen["bn"].to_json()["without_labels"] == "cannot tell"
    assert answer(seen.values(), names).startswith("Adapting hurts (measured): -")
    before = torch.cat([net(i.x).argmax(1) == i.y for i in items])
    net.norm.train()
    after = torch.cat([net(i.x).argmax(1) == i.y for i in items])
    assert measured.gained == int((after & ~before).sum())
    assert measured.lost == int((before & ~after).sum())
    assert measured.source_right == int(before.sum())


def test_start_up_is_not_charged(digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch takes 100 seconds by this clock, the others 1, 2 and 30."""
    net, items = digits
    begins = iter([0.0, 100.0, 100.0, 101.0, 101.0, 103.0, 103.0, 133.0])
    monkeypatch.setattr("fretta.experiment.loop.time.perf_counter", lambda: next(begins))
    (row,) = compare(net, items[:4], {})
    assert row.seconds_per_batch == 2.0
    begins = iter([0.0, 7.0])
    (row,) = compare(net, items[:1], {})
    assert row.seconds_per_batch == 7.0


def test_source_images_reach_the_methods_that_need_them(digits: Digits) -> None:
    net, items = digits
    with pytest.raises(NeedError, match="eata needs unlabeled source images"):
        compare(net, items, {"eata": build_method("eata", {})})
    seen: list[int] = []

    def source() -> Iterator[torch.Tensor]:
        for item in items:
            seen.append(len(item.x))
            yield item.x

    rows = compare(net, items, {n: build_method(n, {}) for n in ("eata", "bn")}, source=source)
    assert {row.method for row in rows} == {"source", "eata", "bn"}
    assert sum(seen) == 256  # once, by eata alone


def test_the_example_in_the_docs(digits: Digits) -> None:
    net, items = digits
    text = (Path(__file__).parent.parent / "docs" / "estimate.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    names = {"adapter": fretta.adapt(net, "tent"), "batches": [item.x for item in items]}
    exec(code, names)
    assert names["found"].helps is True  # type: ignore[attr-defined]


@pytest.fixture
def cifar(shared: Path) -> tuple[nn.Module, Preprocessing]:
    weights = shared / "data" / "weights" / "cifar10_resnet20.safetensors"
    return load("cifar:resnet20", weights, 10), Preprocessing(size=32)


@pytest.mark.data
def test_on_real_images(shared: Path, cifar: tuple[nn.Module, Preprocessing]) -> None:
    """CIFAR-10 in fog: adapting helps much, and the interval knows it."""
    net, preprocessing = cifar
    data = open_dataset("cifar10", shared / "data", corruption="fog")
    stream = make_stream(data, batch_size=64, limit=256)
    items = [Item(preprocessing.apply(b.x), b.y) for b in stream]
    ruined = build_method("tent", {"lr": 10.0})
    rows = compare(net, items, {"bn": build_method("bn", {}), "ruined": ruined})
    assert [row.method for row in rows] == ["bn", "source", "ruined"]
    best, source, _ = rows
    assert best.accuracy is not None
    assert source.accuracy is not None
    assert best.verdict == "helps"
    assert best.estimate.low <= best.accuracy - source.accuracy <= best.estimate.high


@pytest.mark.data
@pytest.mark.parametrize(("number", "share"), [(3, 0.8), (8, 0.7), (1, 0.5)])
def test_real_uneven_classes_are_not_said_to_help(
    shared: Path, cifar: tuple[nn.Module, Preprocessing], number: int, share: float
) -> None:
    """Clean CIFAR-10 with one frequent class: true changes of -37, -40 and -18 points."""
    net, preprocessing = cifar
    domain = open_dataset("cifar10", shared / "data").domains[0]
    shares = [share if c == number else (1 - share) / 9 for c in range(10)]
    random = np.random.RandomState(0)
    chosen = [
        random.permutation(np.flatnonzero(domain.labels == c))[: int(512 * s)]
        for c, s in enumerate(shares)
    ]
    index = random.permutation(np.concatenate(chosen))
    x = preprocessing.apply(torch.from_numpy(domain.read(index)).permute(0, 3, 1, 2))
    y = torch.from_numpy(domain.labels[index])
    items = [Item(*pair) for pair in zip(x.split(64), y.split(64), strict=True)]
    methods = {"bn": build_method("bn", {})}
    blind = {row.method: row for row in compare(net, [Item(i.x) for i in items], methods)}
    assert blind["bn"].verdict == "cannot tell"
    assert blind["bn"].estimate.uneven is not None
    assert blind["bn"].estimate.uneven.number == number
    known = {row.method: row for row in compare(net, items, methods, prior=shares)}
    assert known["bn"].estimate.helps is False
    assert known["bn"].verdict == "hurts"  # measured
    assert known["bn"].measured is not None
    assert known["bn"].measured.change < -0.1
