"""Files that want more than to be read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from deploy_nets import save_images, table

from fretta.deploy import AdaptOptions, adapt_images
from fretta.deploy.output import label_cell, path_cell
from fretta.errors import DataError, FrettaError, WeightsError

Make = Callable[..., AdaptOptions]


class Evil:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_hostile_weights_are_refused(options: Make, tmp_path: Path) -> None:
    trace, file = tmp_path / "trace", tmp_path / "evil.pt"
    torch.save({"state_dict": Evil(trace)}, file)
    with pytest.raises(WeightsError, match="can execute code"):
        adapt_images(options(weights=str(file)))
    assert not trace.exists()
    head = json.dumps({"0.weight": {"dtype": "F32", "shape": [9], "data_offsets": [0, 1 << 40]}})
    file = tmp_path / "lie.safetensors"
    for content in (
        len(head).to_bytes(8, "little") + head.encode() + b"\0" * 36,
        (1 << 60).to_bytes(8, "little") + b"{}",
    ):
        file.write_bytes(content)
        with pytest.raises(WeightsError, match="is not a safetensors file"):
            adapt_images(options(weights=str(file)))
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    index = {"weight_map": {"a": "../../secret.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError, match=r"'\.\./\.\./secret\.safetensors', which is not in its"):
        adapt_images(options(model=f"hf:{folder}", weights=None))
    assert not (tmp_path / "out").exists()


def test_a_list_that_leads_elsewhere_stops_before_any_work(options: Make, tmp_path: Path) -> None:
    place = tmp_path / "lists"
    place.mkdir()
    (place / "list.txt").write_text("../images/000.png\n")
    with pytest.raises(DataError, match="lies outside"):
        adapt_images(options(data=str(place / "list.txt")))
    assert not (tmp_path / "out").exists()
    done = adapt_images(options(data=str(place / "list.txt"), allow_outside=True))
    assert done.counts.images == 1


def test_names_of_every_kind_in_the_table(options: Make, tmp_path: Path) -> None:
    assert [path_cell(n) for n in ("=x", "-x", "a=b", "/x")] == ["./=x", "./-x", "a=b", "/x"]
    shown = [label_cell(n) for n in ("=1+1", "@x", "+", "-1", "+2.5", "cat", "a-b")]
    assert shown == ["'=1+1", "'@x", "'+", "-1", "+2.5", "cat", "a-b"]
    names = ["=cmd|x.png", "größe 猫.png", "line\nbreak.png", 'quo"te,.png', "a\rb.png"]
    names += ["\udcff.png"]
    folder = tmp_path / "odd"
    save_images(folder, 1)
    for name in names:
        os.link(folder / "000.png", folder / name)
    adapt_images(options(data=str(folder)))
    paths = {row["path"] for row in table(tmp_path / "out")}  # valid UTF-8, or this would fail
    assert paths == {"000.png", "./=cmd|x.png", *names[1:5], "\\udcff.png"}


HOSTILE = ["../../etc/passwd", "<script>alert(1)</script>", 'a,"b"\nc', "=HYPERLINK(1)"]


def test_hostile_labels_stay_text(options: Make, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text(json.dumps(HOSTILE))
    before = {p for p in tmp_path.rglob("*") if "out" not in p.parts}
    adapt_images(options(labels=tmp_path / "labels.json", compare_source=True))
    assert {p for p in tmp_path.rglob("*") if "out" not in p.parts} == before
    assert {p.name for p in (tmp_path / "out").glob("[!.]*")} == {
        *("predictions.csv", "health.jsonl", "adapted.safetensors"),
        *("summary.html", "settings.json", "label-me.csv"),
    }
    labels = {row["label"] for row in table(tmp_path / "out")}
    assert labels <= {*HOSTILE[:3], "'=HYPERLINK(1)"}
    assert "<script" not in (tmp_path / "out" / "summary.html").read_text()
    (tmp_path / "three.txt").write_text("a\nb\nc")
    with pytest.raises(FrettaError, match="names 3 classes, the model has 4"):
        adapt_images(options(labels=tmp_path / "three.txt"), force=True)
