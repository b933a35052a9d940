"""Figures as SVG and PNG: sound, unique in a page, safe, and the same every time."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest
from figure_parts import HOSTILE, full, mechanism, put, redundancy, tsne

from fretta.experiment.store import Store
from fretta.report.data import ReportData
from fretta.report.figures import figures
from fretta.report.palette import INK

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    return full(tmp_path_factory.mktemp("store"))


def test_inline_drawings_suit_a_strict_page(data: ReportData) -> None:
    found = figures(data)
    identifiers: list[str] = []
    for figure in found:
        text = figure.svg()
        root = Tree.fromstring(text)
        assert text.startswith("<svg")
        assert root.attrib["viewBox"].startswith("0 0 420 ")
        assert root.attrib["width"] == "100%"
        assert "height" not in root.attrib
        # nothing that the page's policy would refuse, or that leaks to the page
        assert not re.search(r"<style|<script|<metadata|javascript:|data:(?!image/png)", text)
        assert INK not in text.lower()
        assert "currentColor" in text
        mine = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
        assert all(i.startswith(figure.name) for i in mine)
        identifiers += mine
        referred = re.findall(r'(?:url\(#|href="#)([^)"]+)', text)
        assert set(referred) <= set(mine)
        classes = {c for e in root.iter() for c in e.attrib.get("class", "").split()}
        for number, _ in enumerate(figure.series):
            assert f"s{number}" in classes
        assert f"s{len(figure.series)}" not in classes
    assert len(set(identifiers)) == len(identifiers)


def test_points_tell_their_numbers(data: ReportData) -> None:
    (figure,) = [f for f in figures(data) if f.name.startswith("time-")]
    circles = list(Tree.fromstring(figure.svg()).iter(f"{SVG}circle"))
    labels = {c.attrib["data-label"]: c.attrib for c in circles}
    assert labels["tent, snow: 90.0 %"]["class"] == f"point series s{figure.series.index('tent')}"
    assert [c.find(f"{SVG}title").text for c in circles] == list(labels)  # type: ignore[union-attr]
    assert all(c.attrib["tabindex"] == "0" for c in circles)  # few enough for a keyboard
    # higher values stand higher: y grows downwards
    assert float(labels["tent, snow: 90.0 %"]["cy"]) < float(labels["tent, fog: 30.0 %"]["cy"])


def test_files_stand_alone(data: ReportData) -> None:
    figure = figures(data)[0]
    content = figure.svg_file()
    assert content.startswith(b"<?xml")
    root = Tree.fromstring(content)
    assert root.attrib["width"] == "420"
    assert root[0].attrib["fill"] == "#ffffff"
    assert b"currentColor" not in content
    picture = figure.png()
    assert picture.startswith(b"\x89PNG\r\n")
    assert int.from_bytes(picture[16:20], "big") == 840


def test_all_of_them_become_pictures(data: ReportData) -> None:
    sizes = [len(figure.png()) for figure in figures(data)]
    assert min(sizes) > 3000


def test_the_same_store_gives_the_same_files(data: ReportData) -> None:
    again = ReportData.read(data.store)
    for one, two in zip(figures(data)[:3], figures(again)[:3], strict=True):
        assert one.svg_file() == two.svg_file()
        assert one.png() == two.png()


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


def test_damaged_analyses_are_named_and_the_rest_is_drawn(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put_analysis("tsne-digits", tsne())
    (tmp_path / "analyses" / "half.json").write_text('{"kind": "ts')
    (tmp_path / "analyses" / "list.json").write_text("[1]")
    data = ReportData.read(store)
    assert len(data.damaged) == 2
    assert "half.json is damaged" in data.damaged[0]
    assert [f.name for f in figures(data)] == ["tsne-digits"]
