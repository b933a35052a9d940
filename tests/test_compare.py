"""Several methods in one pass, and `fretta compare` as a user types it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import fretta
from commands import fretta as run_command
from fretta.api import build_method
from fretta.cli import app
from fretta.compare import Item, answer, compare, share_frozen
from fretta.errors import ConfigError, DataError, NeedError
from fretta.models import load, load_source
from fretta.streams import Preprocessing, make_stream, open_dataset

NAMES = ("bn", "tent", "tsd", "g-fret")


@pytest.fixture(scope="module")
def digits() -> tuple[nn.Module, list[Item]]:
    net, card = load_source("digits")
    preprocessing = Preprocessing.from_json(card.preprocessing)
    data = open_dataset("digits", corruption=["gaussian_noise", "contrast"])
    stream = make_stream(data, "independent", batch_size=32, limit=128)
    items = [Item(preprocessing.apply(b.x), b.y, b.reset, b.domain) for b in stream]
    return net, items


def test_every_method_does_what_it_does_alone(digits: tuple[nn.Module, list[Item]]) -> None:
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


def test_helpful_adapting_is_seen_without_labels(digits: tuple[nn.Module, list[Item]]) -> None:
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


def test_a_ruined_model_comes_last(digits: tuple[nn.Module, list[Item]]) -> None:
    net, items = digits
    ruined = build_method("tent", {"lr": 10.0})
    several = [Item(i.x, i.y, False, "") for _ in range(3) for i in items]
    rows = compare(net, several, {"bn": build_method("bn", {}), "ruined": ruined})
    assert rows[-1].method == "ruined"
    assert rows[-1].verdict in ("hurts", "collapsed")
    only = compare(net, several, {"ruined": build_method("tent", {"lr": 10.0})})
    assert answer(only).startswith("Adapting hurts")


def test_frozen_tensors_are_shared_and_adapted_ones_are_not(
    digits: tuple[nn.Module, list[Item]],
) -> None:
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


def test_what_cannot_be_compared(digits: tuple[nn.Module, list[Item]]) -> None:
    net, items = digits
    with pytest.raises(DataError, match="no image"):
        compare(net, [], {"bn": build_method("bn", {})})
    with pytest.raises(ConfigError, match="'source' is the unadapted model"):
        compare(net, items, {"source": build_method("bn", {})})
    with pytest.raises(ConfigError, match="has 3 labels"):
        compare(net, [Item(items[0].x, torch.zeros(3))], {})


# ---- the command --------------------------------------------------------------------------------


def test_compare_digits_end_to_end(tmp_path: Path) -> None:
    out = run_command(
        "compare",
        *("--model", "digits", "--data", "digits", "--methods", "source,bn,tent"),
        *("--domain", "gaussian_noise", "--domain", "contrast", "--limit", "128"),
        *("--batch-size", "32", "--set", "tent.lr=1e-4", "--out", str(tmp_path / "out")),
    )
    assert out.returncode == 0, out.stderr
    lines = [line.split() for line in out.stdout.splitlines()]
    assert any(line[:3] == ["method", "verdict", "change"] for line in lines)
    assert any(line[:2] == ["bn", "helps"] for line in lines)
    assert "Adapting helps" in out.stdout
    with (tmp_path / "out" / "compare.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    content = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert set(rows) == {"source", "bn", "tent"} == {m["method"] for m in content["methods"]}
    for method in content["methods"]:
        assert float(rows[method["method"]]["change"]) == method["change"]
        assert method["samples"] == 256
    tent = next(m for m in content["methods"] if m["method"] == "tent")
    assert tent["hyperparameters"]["lr"] == 1e-4
    assert float(rows["bn"]["accuracy"]) > float(rows["source"]["accuracy"])


def test_compare_reads_a_folder_of_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    batch = next(iter(make_stream(open_dataset("digits"), batch_size=40, limit=40)))
    for number, (x, y) in enumerate(zip(batch.x, batch.y, strict=True)):
        place = tmp_path / "images" / str(int(y))
        place.mkdir(parents=True, exist_ok=True)
        pixels = x.permute(1, 2, 0).numpy()
        image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(
            place / f"{number}.png"
        )
    (tmp_path / "images" / "0" / "broken.png").write_bytes(b"no image")
    out = run_command(
        "compare",
        *("--model", "digits", "--data", str(tmp_path / "images"), "--methods", "bn"),
        *("--batch-size", "20"),
    )
    assert out.returncode == 0, out.stderr
    words = " ".join(out.stdout.split())
    assert "1 of 41 images could not be read: left out" in words
    assert "shuffled, seed 0" in words
    assert "true change" in words  # the folders are named as the classes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "no folder or list of images that exists, nor a data set"),
        (["--data", "digits", "--methods", "tant"], "did you mean 'tent'"),
        (["--data", "digits", "--set", "lr=1"], "write METHOD.NAME=VALUE"),
        (["--data", "digits", "--mean", "x"], "--mean 'x' is not a list"),
    ],
)
def test_errors_say_what_would_work(arguments: list[str], message: str) -> None:
    out = CliRunner().invoke(app, ["compare", "--model", "digits", *arguments])
    assert isinstance(out.exception, ConfigError)
    assert message in str(out.exception)


def test_source_images_reach_the_methods_that_need_them(
    digits: tuple[nn.Module, list[Item]],
) -> None:
    net, items = digits
    with pytest.raises(NeedError, match="eata needs unlabelled source images"):
        compare(net, items, {"eata": build_method("eata", {})})
    asked: list[int] = []

    def source() -> Iterator[torch.Tensor]:
        for item in items:
            asked.append(len(item.x))
            yield item.x

    rows = compare(net, items, {n: build_method(n, {}) for n in ("eata", "bn")}, source=source)
    assert {row.method for row in rows} == {"source", "eata", "bn"}
    assert sum(asked) == 256  # once, by eata alone


def test_the_example_in_the_docs(digits: tuple[nn.Module, list[Item]]) -> None:
    net, items = digits
    text = (Path(__file__).parent.parent / "docs" / "estimate.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    names = {"adapter": fretta.adapt(net, "tent"), "batches": [item.x for item in items]}
    exec(code, names)
    assert names["found"].helps is True  # type: ignore[attr-defined]


@pytest.mark.data
def test_on_real_images(shared: Path) -> None:
    """CIFAR-10 in fog: adapting helps much, and the interval knows it."""
    weights = shared / "data" / "weights" / "cifar10_resnet20.safetensors"
    net, preprocessing = load("cifar:resnet20", weights, 10), Preprocessing(size=32)
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
