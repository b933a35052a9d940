"""Figures: their numbers, worked out by hand, and their drawings: sound, safe, reproducible."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Tree

import numpy as np
import pytest
from figure_parts import HOSTILE, full, mechanism, put, redundancy, tsne

import fretta
from fretta.experiment.store import Store
from fretta.report.data import ReportData
from fretta.report.figures import Figure, find_figures
from fretta.report.figures.analyses import (
    beyond_bn,
    mechanism_curves,
    severity_by_corruption,
    severity_by_method,
)
from fretta.report.figures.analyses import mechanism as step_figure
from fretta.report.figures.by_class import calibration_error, extremes
from fretta.report.figures.draw import short_names
from fretta.report.figures.panel import panels
from fretta.report.figures.runs import rolling, spans_of
from fretta.report.palette import INK, color, style
from fretta.report.setups import setups_of

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    return full(tmp_path_factory.mktemp("store"))


def figures(data: ReportData) -> list[Figure]:
    return find_figures(data, setups_of(data.records))[0]


def one(data: ReportData, kind: str) -> Figure:
    (found,) = [f for f in figures(data) if f.name.startswith(kind + "-")]
    return found


def rows(figure: Figure) -> list[list[Any]]:
    """The numbers of a figure, None where there is none."""
    table = figure.numbers.astype(object)
    found: list[list[Any]] = table.where(table.notna(), None).to_numpy().tolist()
    return found


# ---- which figures there are ---------------------------------------------------------------------


def test_every_kind_is_there_once(data: ReportData, tmp_path: Path) -> None:
    kinds = ["severity-methods", "severity-corruptions", "relation", "mechanism", "tsne"]
    kinds += ["sensitivity", "time", "cost", "classes", "calibration", "confusion", "nrs"]
    found, note = find_figures(data, setups_of(data.records))
    assert [next(k for k in kinds if f.name.startswith(k + "-")) for f in found] == kinds
    assert all(len(f.numbers) and f.caption and f.alt for f in found)
    assert (note, data.damaged) == ("", [])
    assert find_figures(ReportData.read(Store(tmp_path)), []) == ([], "")


def test_failed_runs_searches_and_missing_details_are_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    failed = put(Store(tmp_path / "other"), "source", (40, 60))
    failed.status = "failed"
    store.put(failed)
    put(store, "tent", (50, 50), suite="s/tune")
    assert figures(ReportData.read(store)) == []
    put(store, "bn", (50, 50), details=False)
    names = [f.name.split("-")[0] for f in figures(ReportData.read(store))]
    assert names == ["nrs"]  # alone, it needs nothing but the record


def test_the_note_names_what_is_not_drawn(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(5):
        put(store, "source", (40, 60), case=f"case-{number}")
        put(store, "bn", (50, 60), case=f"case-{number}")
    data = ReportData.read(store)
    found, note = find_figures(data, setups_of(data.records))
    assert len({f.title.rpartition(": ")[2] for f in found}) == 2
    assert all(f"case-{number}" in note for number in (2, 3, 4))


def test_damaged_or_unknown_analyses_cost_only_their_figure(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put_analysis("tsne-digits", tsne())
    (tmp_path / "analyses" / "half.json").write_text('{"kind": "ts')
    (tmp_path / "analyses" / "list.json").write_text("[1]")
    data = ReportData.read(store)
    assert len(data.damaged) == 2
    assert "half.json is damaged" in data.damaged[0]
    data.analyses.append({"kind": "tsne", "name": "odd", "title": "x"})
    data.analyses.append({"kind": "unknown", "name": "new", "title": "x"})
    assert [f.name for f in figures(data)] == ["tsne-digits"]
    assert "'odd'" in data.damaged[2]


def test_only_one_setting_is_averaged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for seed in (0, 1):
        put(store, "tent", (50, 50), seed=seed, lr=1e-3)
    put(store, "tent", (90, 90), lr=1e-2)
    (panel,) = panels(setups_of(store.records()))
    assert panel.accuracy("tent") == 0.5
    assert len(panel.runs["tent"]) == 2


# ---- numbers -------------------------------------------------------------------------------------


def test_time(data: ReportData) -> None:
    figure = one(data, "time")
    assert list(figure.numbers) == ["domain", "batches", "source %", "g-fret %", "tent %"]
    # of the first seed: 84 of 100 in the second one is not in it
    assert rows(figure) == [["fog", 2, 40.0, 80.0, 30.0], ["snow", 2, 60.0, 90.0, 90.0]]
    assert figure.series == ["source", "g-fret", "tent"]


def test_rolling_never_crosses_a_border() -> None:
    spans = spans_of(["a", "a", "a", "b"])
    assert spans == [("a", 0, 3), ("b", 3, 4)]
    found = rolling(np.array([10, 5, 0, 8.0]), np.array([10, 10, 5, 10.0]), spans, window=3)
    assert found == pytest.approx([15 / 20, 15 / 25, 5 / 15, 8 / 10])
    assert spans_of(["a", "b"] * 5) == [("", 0, 10)]  # mixed domains have no borders


def test_cost_classes_and_confusion(data: ReportData) -> None:
    found = {row[0]: row[1:] for row in rows(one(data, "cost"))}
    assert found["source"] == [10.0, 1.0, "1F", 50.0, 0.0]
    # 85 and 87 %: mean 86, deviation √2
    assert found["g-fret"] == [30.0, 3.0, "1F+1B", 86.0, round(2**0.5, 2)]
    assert found["tent"] == [30.0, 3.0, "1F+1B", 60.0, None]
    classes = one(data, "classes")
    # source 200 of 400; g-fret 344 of 400; tent 120 of 200; class 0 does not occur
    assert list(classes.numbers) == ["class", "source %", "g-fret, points", "tent, points"]
    assert rows(classes)[:2] == [["0", None, None, None], ["1", 50.0, 36.0, 10.0]]
    mean = np.array([3.0, -5.0, 0.0, 9.0, 1.0, 2.0])
    assert (extremes(mean, 4), extremes(mean, 6)) == ([0, 1, 2, 3], list(range(6)))
    # a share of the label
    assert rows(one(data, "confusion")) == [["source", "1", "0", 50.0], ["g-fret", "1", "0", 14.0]]


def test_calibration_and_nrs(data: ReportData) -> None:
    figure = one(data, "calibration")
    # two domains of 50 images per bin; 15 + 45 and 15 + 45 right
    mine = figure.numbers[figure.numbers["method"] == "tent"]
    assert mine.to_numpy().tolist() == [["tent", 100, 50.0, 60.0], ["tent", 100, 90.0, 60.0]]
    assert calibration_error(mine) == pytest.approx((10 + 30) / 2)
    assert "tent 20.0 %" in figure.alt
    figure = one(data, "nrs")
    assert list(figure.numbers)[:2] == ["domain", "source"]
    assert rows(figure) == [["fog", 0.5, 0.4, 0.4], ["snow", 0.5, 0.4, 0.4]]
    assert figure.alt.startswith("2 of 2 methods lower")


def test_severity_and_relation(data: ReportData) -> None:
    nrs = severity_by_method(redundancy())["nrs"]
    assert nrs["source"].to_dict() == pytest.approx({0.0: 0.5, 1.0: 0.53, 5.0: 0.61})
    added = beyond_bn(nrs)
    assert added["s-fret"].to_dict() == pytest.approx({0.0: -0.01, 1.0: -0.01, 5.0: -0.01})
    assert set(added.index.get_level_values(0)) == {"s-fret"}
    single = severity_by_corruption(redundancy())["nrs"]["snow"]
    assert single.to_dict() == pytest.approx({0.0: 0.5, 1.0: 0.54, 5.0: 0.62})
    # R_e = NRS · 3 · 2
    assert rows(one(data, "severity-methods"))[0] == ["source", 0.0, 0.5, 3.0, 90.0]
    clean, shifted = rows(one(data, "relation"))
    assert clean == ["clean", 100, 0.5, 33.33, 0.5]
    assert shifted[2:] == [1.0, 100.0, 1.0]
    assert "more alike" in one(data, "relation").alt


def test_mechanism_is_relative_to_bn_if_it_ran() -> None:
    analysis = {**mechanism(), "name": "mechanism-digits"}
    lines = mechanism_curves(analysis)
    assert list(lines["nrs"]) == ["s-fret"]
    assert lines["nrs"]["s-fret"].tolist() == pytest.approx([0, -0.02, -0.04, -0.06])
    assert lines["loss"]["s-fret"].tolist() == pytest.approx([1, 0.95, 0.9, 0.5])
    # cumulated: 80, 80, 115/150 and 150/200 against 80, 80, 110/150 and 140/200
    assert lines["accuracy"]["s-fret"].tolist() == pytest.approx([0, 0, 10 / 3, 5])
    alone = {**analysis, "methods": ["s-fret"]}
    assert mechanism_curves(alone)["nrs"]["s-fret"].iloc[-1] == 0.44
    # a method that diverged is drawn as far as it came
    none = [None] * 3
    analysis["curves"]["s-fret"] |= {"nrs": [0.6, *none], "loss": [2.0, *none]}
    figure = step_figure(analysis)
    assert figure is not None
    assert rows(figure)[1][:3] == ["s-fret", 0.6, None]
    assert figure.svg()


def test_sensitivity_comes_from_records(data: ReportData) -> None:
    figure = one(data, "sensitivity")
    assert list(figure.numbers) == ["λ", "learning rate", "accuracy %"]
    grid = [[0.01, 1e-4, 65.5], [0.01, 1e-3, 70.0], [1.0, 1e-4, 85.0], [1.0, 1e-3, 85.0]]
    assert rows(figure) == grid
    assert "λ = 1" in figure.alt


# ---- names and colors ----------------------------------------------------------------------------


def test_classes_have_their_names_where_runs_agree(tmp_path: Path) -> None:
    data = full(tmp_path)

    def name_classes(prefix: str) -> None:
        for number, record in enumerate(data.runs):
            details = data.details(record.key)
            assert details is not None
            details["classes"] = [f"{prefix.format(number)}{c}" for c in ("ant", "bee", "cow")]

    name_classes("")
    assert rows(one(data, "confusion"))[0][:3] == ["source", "bee", "ant"]
    assert rows(one(data, "classes"))[1][0] == "bee"
    name_classes("{}-")
    assert rows(one(data, "confusion"))[0][:3] == ["source", "1", "0"]


@pytest.mark.parametrize("longest", [12, 18, 22])
def test_no_two_names_of_a_legend_are_cut_to_the_same(longest: int) -> None:
    names = [f"g-fret lam={lam:g} lr={lr:g}" for lam in (0.001, 0.01, 0.1) for lr in (1e-4, 1e-3)]
    names += ["a" * 40, "a" * 41, "source", "without_L_R(A) lam=1"]
    short = short_names(names, longest)
    assert len(set(short.values())) == len(names)
    assert max(map(len, short.values())) <= longest
    assert short["source"] == "source"
    assert short_names(names, 99) == {name: name for name in names}
    pair = short_names(["g-fret lam=0.01", "g-fret lam=0.1"], 12)
    assert list(pair.values()) == ["…lam=0.01", "…lam=0.1"]


def test_palette_tells_methods_apart() -> None:
    looks = [(style(m).color, style(m).dash) for m in fretta.list_methods()]
    assert len(set(looks)) == len(looks)
    assert color("my method") == color("my method")


# ---- drawings ------------------------------------------------------------------------------------


def test_inline_drawings_suit_a_strict_page(data: ReportData) -> None:
    identifiers: list[str] = []
    for figure in figures(data):
        text = figure.svg()
        root = Tree.fromstring(text)
        assert root.attrib["viewBox"].startswith("0 0 420 ")
        # nothing that the page's policy would refuse, or that leaks to the page
        assert not re.search(r"<style|<script|<metadata|javascript:|data:(?!image/png)", text)
        assert INK not in text.lower()
        assert "currentColor" in text
        mine = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
        assert all(i.startswith(figure.name) for i in mine)
        identifiers += mine
        assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text)) <= set(mine)
        classes = {c for e in root.iter() for c in e.attrib.get("class", "").split()}
        assert {f"s{number}" for number, _ in enumerate(figure.series)} <= classes
        assert f"s{len(figure.series)}" not in classes
    assert len(set(identifiers)) == len(identifiers)


def test_points_tell_their_numbers(data: ReportData) -> None:
    figure = one(data, "time")
    circles = list(Tree.fromstring(figure.svg()).iter(f"{SVG}circle"))
    labels = {c.attrib["data-label"]: c.attrib for c in circles}
    assert labels["tent, snow: 90.0 %"]["class"] == f"point series s{figure.series.index('tent')}"
    assert [c.find(f"{SVG}title").text for c in circles] == list(labels)  # type: ignore[union-attr]
    assert all(c.attrib["tabindex"] == "0" for c in circles)  # few enough for a keyboard
    # higher values stand higher: y grows downwards
    assert float(labels["tent, snow: 90.0 %"]["cy"]) < float(labels["tent, fog: 30.0 %"]["cy"])


@pytest.mark.slow
def test_files_stand_alone_and_are_reproducible(data: ReportData) -> None:
    again = figures(ReportData.read(data.store))
    for figure, same in zip(figures(data), again, strict=True):
        content, picture = figure.svg_file(), figure.png()
        root = Tree.fromstring(content)
        assert root.attrib["width"] == "420"
        assert root[0].attrib["fill"] == "#ffffff"
        assert b"currentColor" not in content
        assert picture.startswith(b"\x89PNG\r\n")
        assert int.from_bytes(picture[16:20], "big") == 840
        assert len(picture) > 3000
        assert (same.png(), same.svg_file()) == (picture, content)  # in either order


def test_hostile_names_are_shown_not_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store, "source", (40, 60), case=HOSTILE, suite=HOSTILE)
    put(store, HOSTILE, (50, 70), method="tent", case=HOSTILE, suite=HOSTILE)
    put(store, "日本語 \ud800", (50, 75), method="bn", case=HOSTILE, suite=HOSTILE)
    for made in (redundancy(), mechanism(), tsne()):
        made["data"] = made["model"] = {"name": HOSTILE, "spec": HOSTILE}
        store.put_analysis(f"{made['kind']}-x", made)
    data = ReportData.read(store)
    found = figures(data)
    assert len(found) == 11
    assert not data.damaged
    for figure in found:
        assert re.fullmatch(r"[a-z0-9-]+", figure.name)
        for text in (figure.svg(), figure.svg_file().decode()):
            Tree.fromstring(text)
            assert "<script" not in text
            assert "\x07" not in text
        figure.png()
    drawn = next(f for f in found if f.name.startswith("cost-")).svg()
    assert "&lt;script&gt;alert(" in drawn
