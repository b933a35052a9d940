"""Files that want more than to be read."""

from __future__ import annotations

import csv
import html.parser
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fretta.deploy import AdaptOptions, adapt_images
from fretta.deploy.output import label_cell, path_cell
from fretta.errors import ConfigError, DataError, FrettaError, WeightsError
from fretta.models.labels import read_labels

Make = Callable[..., AdaptOptions]


class Evil:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["zip", "pickle"])
def test_weights_that_execute_code_are_refused(plan: Make, tmp_path: Path, kind: str) -> None:
    trace, file = tmp_path / "trace", tmp_path / "evil.pt"
    if kind == "zip":
        torch.save({"state_dict": Evil(trace)}, file)
    else:
        file.write_bytes(pickle.dumps(Evil(trace)))
    with pytest.raises(WeightsError, match="can execute code"):
        adapt_images(plan(weights=str(file)))
    assert not trace.exists()
    assert not (tmp_path / "out").exists()


def test_a_safetensors_header_that_lies_is_refused(plan: Make, tmp_path: Path) -> None:
    head = json.dumps({"0.weight": {"dtype": "F32", "shape": [9], "data_offsets": [0, 1 << 40]}})
    file = tmp_path / "lie.safetensors"
    file.write_bytes(len(head).to_bytes(8, "little") + head.encode() + b"\0" * 36)
    with pytest.raises(WeightsError, match="is not a safetensors file"):
        adapt_images(plan(weights=str(file)))
    file.write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    with pytest.raises(WeightsError, match="is not a safetensors file"):
        adapt_images(plan(weights=str(file)))


def test_a_card_cannot_choose_code(plan: Make, tmp_path: Path) -> None:
    weights = tmp_path / "tiny.safetensors"
    make = plan()  # writes the weights
    card = {
        "format": "fretta-card/1",
        "model": "deploy_nets:tiny",
        "num_classes": 4,
        "classes": [],
        "data": {},
        "preprocessing": {},
        "accuracy": {},
        "seed": None,
    }
    (tmp_path / "tiny.json").write_text(json.dumps(card))
    with pytest.raises(WeightsError, match=r"asks to import 'deploy_nets:tiny'.*--model"):
        adapt_images(plan(model=str(weights), weights=None))
    assert adapt_images(make).complete  # the user says it: fine


def test_shards_outside_the_folder_are_refused(plan: Make, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    index = {"weight_map": {"a": "../../secret.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError, match=r"'\.\./\.\./secret\.safetensors', which is not in its"):
        adapt_images(plan(model=f"hf:{folder}", weights=None))


def test_a_list_that_leads_elsewhere_stops_before_any_work(plan: Make, tmp_path: Path) -> None:
    place = tmp_path / "lists"
    place.mkdir()
    (place / "list.txt").write_text("../images/000.png\n")
    with pytest.raises(DataError, match="lies outside"):
        adapt_images(plan(data=str(place / "list.txt")))
    assert not (tmp_path / "out").exists()
    done = adapt_images(plan(data=str(place / "list.txt"), allow_outside=True))
    assert done.counts.images == 1


def test_cells_no_spreadsheet_executes() -> None:
    assert [path_cell(n) for n in ("=x", "-x", "a=b", "/x")] == ["./=x", "./-x", "a=b", "/x"]
    shown = [label_cell(n) for n in ("=1+1", "@x", "+", "-1", "+2.5", "cat", "a-b")]
    assert shown == ["'=1+1", "'@x", "'+", "-1", "+2.5", "cat", "a-b"]


HOSTILE = ["../../etc/passwd", "<script>alert(1)</script>", 'a,"b"\nc', "=HYPERLINK(1)"]


def test_hostile_labels_stay_text(plan: Make, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text(json.dumps(HOSTILE))
    before = {p for p in tmp_path.rglob("*") if "out" not in p.parts}
    adapt_images(plan(labels=tmp_path / "labels.json", compare_source=True))
    assert {p for p in tmp_path.rglob("*") if "out" not in p.parts} == before
    ours = {"predictions.csv", "health.jsonl", "adapted.safetensors"}
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        *ours,
        *("summary.html", "settings.json"),
    }
    with (tmp_path / "out" / "predictions.csv").open(newline="") as file:
        labels = {row["label"] for row in csv.DictReader(file)}
    assert labels <= {*HOSTILE[:3], "'=HYPERLINK(1)"}
    page = (tmp_path / "out" / "summary.html").read_text()
    assert "<script" not in page


class Seen(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_needs_nothing_else(plan: Make, tmp_path: Path) -> None:
    adapt_images(plan(data=str(tmp_path / "images"), hyperparameters={"lr": 30.0}))
    page = (tmp_path / "out" / "summary.html").read_text()
    seen = Seen()
    seen.feed(page)
    names = {tag for tag, _ in seen.tags}
    assert not names & {"script", "link", "img", "iframe", "object"}
    assert not any({"src", "href", "onclick"} & attrs.keys() for _, attrs in seen.tags)
    assert "http" not in page.replace("http-equiv", "")
    assert "prefers-color-scheme:dark" in page
    assert sum(tag == "svg" for tag, _ in seen.tags) >= 5
    assert all(f">{text}</text>" in page for text in ("nats", "batch", "0"))  # axes
    assert 'class="mark"' in page  # with this learning rate the guard acts
    assert "<td>rollback</td>" in page


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "ant\r\nbee\n\n"),
        ("a.json", '["ant", "bee"]'),
        ("b.json", '{"1": "bee", "0": "ant"}'),
        ("config.json", '{"id2label": {"0": "ant", "1": "bee"}, "hidden_size": 8}'),
        ("bom.txt", "\ufeffant\nbee"),
    ],
)
def test_label_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert read_labels(tmp_path / name) == ["ant", "bee"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.txt", "ant\n\nbee", "line 2 has no name"),
        ("a.txt", "", "line 1 has no name"),
        ("a.json", "{", "is not JSON"),
        ("a.json", "[" * 100_000, "is not JSON"),
        ("a.json", '{"x": "ant"}', "'x' is no number"),
        ("a.json", '{"1": "ant"}', "are not 0 to 0"),
        ("a.json", "[1, 2]", "holds no labels"),
    ],
)
def test_label_files_that_cannot_be(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_labels(tmp_path / name)


def test_labels_must_fit_the_model(plan: Make, tmp_path: Path) -> None:
    (tmp_path / "three.txt").write_text("a\nb\nc")
    with pytest.raises(FrettaError, match="names 3 classes, the model has 4"):
        adapt_images(plan(labels=tmp_path / "three.txt"))
