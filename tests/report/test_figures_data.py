"""The numbers of figures, worked out by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from figure_parts import full, mechanism, put, redundancy

from fretta.experiment.store import Store
from fretta.report.data import ReportData
from fretta.report.figures import Figure, figures, left_out, svg
from fretta.report.figures import mechanism as steps
from fretta.report.figures.base import short_names
from fretta.report.figures.calibration import error
from fretta.report.figures.classes import extremes
from fretta.report.figures.panels import panels
from fretta.report.figures.places import spread
from fretta.report.figures.severity import beyond, by_corruption, by_method
from fretta.report.figures.time import Span, rolling, spans_of
from fretta.report.palette import KNOWN, color, style


@pytest.fixture
def data(tmp_path: Path) -> ReportData:
    return full(tmp_path)


def one(data: ReportData, kind: str) -> Figure:
    (found,) = [f for f in figures(data) if f.name.startswith(kind + "-")]
    return found


def test_every_kind_is_there_once_and_names_are_unique(data: ReportData) -> None:
    names = [f.name for f in figures(data)]
    assert len(set(names)) == len(names)
    kinds = ["severity-methods", "severity-corruptions", "relation", "mechanism", "tsne"]
    kinds += ["sensitivity", "time", "cost", "classes", "calibration", "confusion", "nrs"]
    assert sorted(k for k in kinds for n in names if n.startswith(k + "-")) == sorted(kinds)
    assert len(names) == len(kinds)
    assert next(n for n in names if n.endswith("-digits")) == "severity-methods-digits"
    for figure in figures(data):
        assert all(len(row) == len(figure.header) for row in figure.rows)
        assert figure.rows
        assert figure.caption
        assert figure.alt
        assert figure.group in ("paper", "runs")
    assert not data.damaged
    assert not left_out(data)


def test_an_empty_store_has_none(tmp_path: Path) -> None:
    assert figures(ReportData.read(Store(tmp_path))) == []


def test_time(data: ReportData) -> None:
    figure = one(data, "time")
    assert figure.header == ["domain", "batches", "source %", "g-fret %", "tent %"]
    # of the first seed: 84 of 100 in the second one is not in it
    assert figure.rows == [["fog", 2, 40.0, 80.0, 30.0], ["snow", 2, 60.0, 90.0, 90.0]]
    assert figure.series == ["source", "g-fret", "tent"]


def test_rolling_never_crosses_a_border() -> None:
    spans = spans_of(["a", "a", "a", "b"])
    assert spans == [Span("a", 0, 3), Span("b", 3, 4)]
    found = rolling([10, 5, 0, 8], [10, 10, 5, 10], spans, window=3)
    assert found == pytest.approx([15 / 20, 15 / 25, 5 / 15, 8 / 10])


def test_mixed_domains_have_no_borders() -> None:
    assert spans_of(["a", "b"] * 5) == [Span("", 0, 10)]


def test_cost(data: ReportData) -> None:
    rows = {row[0]: row[1:] for row in one(data, "cost").rows}
    assert rows["source"] == [10.0, 1.0, "1F", 50.0, 0.0]
    # 85 and 87 %: mean 86, deviation √2
    assert rows["g-fret"] == [30.0, 3.0, "1F", 86.0, round(2**0.5, 2)]
    assert rows["tent"] == [30.0, 3.0, "1F", 60.0, None]


def test_classes_that_do_not_occur_are_a_dash(data: ReportData) -> None:
    figure = one(data, "classes")
    # source 200 of 400; g-fret 344 of 400; tent 120 of 200
    assert figure.header == ["class", "source %", "g-fret, points", "tent, points"]
    assert figure.rows[1] == ["1", 50.0, 36.0, 10.0]
    assert figure.rows[0] == ["0", None, None, None]


def test_many_classes_show_the_extremes() -> None:
    mean = np.array([3.0, -5.0, 0.0, 9.0, 1.0, 2.0])
    assert extremes(mean, 4) == [0, 1, 2, 3]
    assert extremes(mean, 6) == list(range(6))


def test_calibration(data: ReportData) -> None:
    figure = one(data, "calibration")
    rows = [row for row in figure.rows if row[0] == "tent"]
    # two domains of 50 images per bin; 15 + 45 and 15 + 45 right
    assert rows == [["tent", 100, 50.0, 60.0], ["tent", 100, 90.0, 60.0]]
    found = np.array([[100, 100], [0.5, 0.9], [0.6, 0.6]])
    assert error(found) == pytest.approx((0.1 + 0.3) / 2)
    assert "tent 20.0 %" in figure.alt


def test_confusion_is_a_share_of_the_label(data: ReportData) -> None:
    figure = one(data, "confusion")
    assert figure.rows == [["source", "1", "0", 50.0], ["g-fret", "1", "0", 14.0]]


def test_nrs(data: ReportData) -> None:
    figure = one(data, "nrs")
    assert figure.header[:2] == ["domain", "source"]
    assert figure.rows == [["fog", 0.6, 0.5, 0.5], ["snow", 0.6, 0.5, 0.5]]
    assert figure.alt.startswith("2 of 2 methods lower")


def test_severity_by_method_and_corruption() -> None:
    analysis = redundancy()
    means = by_method(analysis, "nrs")
    assert means["source"] == pytest.approx({0.0: 0.5, 1.0: 0.53, 5.0: 0.61})
    assert beyond(means)["s-fret"] == pytest.approx({0.0: -0.01, 1.0: -0.01, 5.0: -0.01})
    assert list(beyond(means)) == ["s-fret"]
    single = by_corruption(analysis, "nrs")
    assert single["snow"] == pytest.approx({0.0: 0.5, 1.0: 0.54, 5.0: 0.62})


def test_severity_gives_r_e(data: ReportData) -> None:
    rows = one(data, "severity-methods").rows
    assert rows[0] == ["source", 0.0, 0.5, 3.0, 90.0]  # R_e = NRS · 3 · 2


def test_relation(data: ReportData) -> None:
    clean, shifted = one(data, "relation").rows
    assert clean == ["clean", 100, 0.5, 33.33, 0.5]
    assert shifted[2:] == [1.0, 100.0, 1.0]
    assert "more alike" in one(data, "relation").alt


def test_mechanism_is_relative_to_bn() -> None:
    lines = steps.curves(mechanism())
    assert lines["nrs"]["s-fret"] == pytest.approx([0, -0.02, -0.04, -0.06])
    assert lines["loss"]["s-fret"] == pytest.approx([1, 0.95, 0.9, 0.5])
    # cumulated: 80, 80, 115/150 and 150/200 against 80, 80, 110/150 and 140/200
    assert lines["accuracy"]["s-fret"] == pytest.approx([0, 0, 10 / 3, 5])
    assert list(lines["nrs"]) == ["s-fret"]
    assert steps.smooth(np.array([1.0, np.nan, 3.0]), 2) == pytest.approx([1, 1, 3])


def test_mechanism_without_bn_is_absolute() -> None:
    analysis = mechanism()
    analysis["methods"] = ["s-fret"]
    del analysis["curves"]["bn"]
    assert steps.curves(analysis)["nrs"]["s-fret"][-1] == 0.44
    figure = steps.build({**analysis, "name": "mechanism-digits"})
    assert figure is not None
    assert "bn" not in figure.caption


def test_a_method_that_diverged_is_drawn_as_far_as_it_came() -> None:
    analysis = mechanism()
    analysis["curves"]["s-fret"] |= {
        "nrs": [0.6, None, None, None],
        "loss": [2.0, None, None, None],
    }
    figure = steps.build({**analysis, "name": "mechanism-digits"})
    assert figure is not None
    assert figure.rows[1][:3] == ["s-fret", 0.6, None]
    assert svg(figure)


def test_sensitivity_comes_from_records(data: ReportData) -> None:
    figure = one(data, "sensitivity")
    assert figure.header == ["λ", "learning rate", "accuracy %"]
    assert figure.rows == [
        [0.01, 0.0001, 65.5],
        [0.01, 0.001, 70.0],
        [1.0, 0.0001, 85.0],
        [1.0, 0.001, 85.0],
    ]
    assert "λ = 1" in figure.alt


def test_only_one_setting_is_averaged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for seed in (0, 1):
        put(store, "tent", (50, 50), seed=seed, lr=1e-3)
    put(store, "tent", (90, 90), lr=1e-2)
    (panel,) = panels(store.records())
    assert panel.accuracy("tent") == 0.5
    assert len(panel.runs["tent"]) == 2


def test_failed_runs_searches_and_missing_details_are_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    failed = put(store, "source", (40, 60))
    failed.status = "failed"
    store.put(failed)
    put(store, "tent", (50, 50), suite="s/tune")
    assert figures(ReportData.read(store)) == []
    put(store, "bn", (50, 50), details=False)
    names = [f.name.split("-")[0] for f in figures(ReportData.read(store))]
    assert names == ["nrs"]  # alone, it needs nothing but the record


def test_what_is_not_drawn_is_said(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(5):
        put(store, "source", (40, 60), case=f"case-{number}")
        put(store, "bn", (50, 60), case=f"case-{number}")
    data = ReportData.read(store)
    assert len({f.title.rpartition(": ")[2] for f in figures(data)}) == 2
    (line,) = left_out(data)
    assert "case-2" in line
    assert "case-4" in line


def test_an_analysis_of_another_shape_costs_only_its_figure(data: ReportData) -> None:
    before = len(figures(data))
    data.analyses.append({"kind": "tsne", "name": "odd", "title": "x"})
    data.analyses.append({"kind": "unknown", "name": "new", "title": "x"})
    assert len(figures(data)) == before
    assert [m for m in data.damaged if "'odd'" in m]


@pytest.mark.parametrize(
    ("at", "low", "high", "expected"),
    [
        ([5.0, 50.0], 0, 100, [5.0, 50.0]),
        ([50.0, 50.0, 50.0], 0, 100, [40.0, 50.0, 60.0]),
        ([1.0, 0.0], 0, 100, [10.0, 0.0]),
        ([100.0, 99.0, 98.0], 0, 100, [100.0, 90.0, 80.0]),
    ],
)
def test_labels_are_moved_apart(
    at: list[float], low: float, high: float, expected: list[float]
) -> None:
    assert spread(at, 10, low, high) == pytest.approx(expected)


def test_labels_that_do_not_fit_still_stand_apart() -> None:
    placed = sorted(spread([1.0] * 20, 10, 0, 50))
    assert np.diff(placed) == pytest.approx([10] * 19)


def test_palette_tells_methods_apart() -> None:
    import fretta

    looks = [(style(m).color, style(m).dash) for m in fretta.list_methods()]
    assert len(set(looks)) == len(looks)
    assert color("my method") == color("my method")
    assert all(len(s.color) == 7 for s in KNOWN.values())


def test_figures_load_no_torch() -> None:
    code = "import fretta.report.figures, sys; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


# ---- names --------------------------------------------------------------------------------------


def test_classes_have_their_names(tmp_path: Path) -> None:
    data = full(tmp_path)
    for record in data.runs:
        details = data.details(record.key)
        if details is not None:
            details["classes"] = ["cat", "dog", "giraffe"]
    assert one(data, "classes").rows[1][0] == "dog"
    assert "class dog" in one(data, "classes").alt
    assert one(data, "confusion").rows[0][:3] == ["source", "dog", "cat"]
    for kind in ("classes", "confusion"):
        drawn = svg(one(data, kind))
        assert "giraffe" in drawn, kind


def test_numbers_where_runs_call_classes_otherwise(tmp_path: Path) -> None:
    data = full(tmp_path)
    for number, record in enumerate(data.runs):
        details = data.details(record.key)
        if details is not None:
            details["classes"] = [f"{number}-{c}" for c in range(3)]
    assert one(data, "confusion").rows[0][:3] == ["source", "1", "0"]


@pytest.mark.parametrize("longest", [12, 18, 22])
def test_no_two_names_of_a_legend_are_cut_to_the_same(longest: int) -> None:
    names = [f"g-fret lam={lam:g} lr={lr:g}" for lam in (0.001, 0.01, 0.1) for lr in (1e-4, 1e-3)]
    names += ["a" * 40, "a" * 41, "source", "without_L_R(A) lam=1"]
    short = short_names(names, longest)
    assert len(set(short.values())) == len(names)
    assert max(map(len, short.values())) <= longest
    assert short["source"] == "source"
    assert short_names(names, 99) == {name: name for name in names}


def test_the_part_that_differs_stays() -> None:
    short = short_names(["g-fret lam=0.01", "g-fret lam=0.1"], 12)
    assert list(short.values()) == ["…lam=0.01", "…lam=0.1"]
