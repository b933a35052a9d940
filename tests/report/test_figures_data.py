"""The numbers of figures, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from figure_parts import full, mechanism, put, redundancy

from fretta.experiment.store import Store
from fretta.report.data import ReportData
from fretta.report.figures import Figure, figures, left_out
from fretta.report.figures.analyses import (
    beyond_bn,
    mechanism_curves,
    severity_by_corruption,
    severity_by_method,
)
from fretta.report.figures.analyses import mechanism as step_figure
from fretta.report.figures.draw import short_names
from fretta.report.figures.runs import calibration_error, extremes, panels, rolling, spans_of
from fretta.report.palette import KNOWN, color, style
from fretta.report.setups import setups_of


@pytest.fixture
def data(tmp_path: Path) -> ReportData:
    return full(tmp_path)


def one(data: ReportData, kind: str) -> Figure:
    (found,) = [f for f in figures(data) if f.name.startswith(kind + "-")]
    return found


def rows(figure: Figure) -> list[list[object]]:
    """The numbers of a figure, None where there is none."""
    table = figure.numbers.astype(object)
    found: list[list[object]] = table.where(table.notna(), None).to_numpy().tolist()
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
        assert len(figure.numbers)
        assert figure.caption
        assert figure.alt
        assert figure.group in ("paper", "runs")
    assert not data.damaged
    assert not left_out(data)


def test_an_empty_store_has_none(tmp_path: Path) -> None:
    assert figures(ReportData.read(Store(tmp_path))) == []


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


def test_cost(data: ReportData) -> None:
    found = {row[0]: row[1:] for row in rows(one(data, "cost"))}
    assert found["source"] == [10.0, 1.0, "1F", 50.0, 0.0]
    # 85 and 87 %: mean 86, deviation √2
    assert found["g-fret"] == [30.0, 3.0, "1F", 86.0, round(2**0.5, 2)]
    assert found["tent"] == [30.0, 3.0, "1F", 60.0, None]


def test_classes_that_do_not_occur_are_a_dash(data: ReportData) -> None:
    figure = one(data, "classes")
    # source 200 of 400; g-fret 344 of 400; tent 120 of 200
    assert list(figure.numbers) == ["class", "source %", "g-fret, points", "tent, points"]
    assert rows(figure)[:2] == [["0", None, None, None], ["1", 50.0, 36.0, 10.0]]
    mean = np.array([3.0, -5.0, 0.0, 9.0, 1.0, 2.0])
    assert extremes(mean, 4) == [0, 1, 2, 3]
    assert extremes(mean, 6) == list(range(6))


def test_calibration(data: ReportData) -> None:
    figure = one(data, "calibration")
    # two domains of 50 images per bin; 15 + 45 and 15 + 45 right
    mine = figure.numbers[figure.numbers["method"] == "tent"]
    assert mine.to_numpy().tolist() == [["tent", 100, 50.0, 60.0], ["tent", 100, 90.0, 60.0]]
    assert calibration_error(mine) == pytest.approx((10 + 30) / 2)
    assert "tent 20.0 %" in figure.alt


def test_confusion_is_a_share_of_the_label(data: ReportData) -> None:
    found = rows(one(data, "confusion"))
    assert found == [["source", "1", "0", 50.0], ["g-fret", "1", "0", 14.0]]


def test_nrs(data: ReportData) -> None:
    figure = one(data, "nrs")
    assert list(figure.numbers)[:2] == ["domain", "source"]
    assert rows(figure) == [["fog", 0.6, 0.5, 0.5], ["snow", 0.6, 0.5, 0.5]]
    assert figure.alt.startswith("2 of 2 methods lower")


def test_severity_by_method_and_corruption(data: ReportData) -> None:
    nrs = severity_by_method(redundancy())["nrs"]
    assert nrs["source"].to_dict() == pytest.approx({0.0: 0.5, 1.0: 0.53, 5.0: 0.61})
    added = beyond_bn(nrs)
    assert added["s-fret"].to_dict() == pytest.approx({0.0: -0.01, 1.0: -0.01, 5.0: -0.01})
    assert set(added.index.get_level_values(0)) == {"s-fret"}
    single = severity_by_corruption(redundancy())["nrs"]["snow"]
    assert single.to_dict() == pytest.approx({0.0: 0.5, 1.0: 0.54, 5.0: 0.62})
    # R_e = NRS · 3 · 2
    assert rows(one(data, "severity-methods"))[0] == ["source", 0.0, 0.5, 3.0, 90.0]


def test_relation(data: ReportData) -> None:
    clean, shifted = rows(one(data, "relation"))
    assert clean == ["clean", 100, 0.5, 33.33, 0.5]
    assert shifted[2:] == [1.0, 100.0, 1.0]
    assert "more alike" in one(data, "relation").alt


def test_mechanism_is_relative_to_bn() -> None:
    lines = mechanism_curves(mechanism())
    assert lines["nrs"]["s-fret"].tolist() == pytest.approx([0, -0.02, -0.04, -0.06])
    assert lines["loss"]["s-fret"].tolist() == pytest.approx([1, 0.95, 0.9, 0.5])
    # cumulated: 80, 80, 115/150 and 150/200 against 80, 80, 110/150 and 140/200
    assert lines["accuracy"]["s-fret"].tolist() == pytest.approx([0, 0, 10 / 3, 5])
    assert list(lines["nrs"]) == ["s-fret"]


def test_mechanism_without_bn_is_absolute() -> None:
    analysis = mechanism()
    analysis["methods"] = ["s-fret"]
    del analysis["curves"]["bn"]
    assert mechanism_curves(analysis)["nrs"]["s-fret"].iloc[-1] == 0.44
    figure = step_figure({**analysis, "name": "mechanism-digits"})
    assert figure is not None
    assert "bn" not in figure.caption


def test_a_method_that_diverged_is_drawn_as_far_as_it_came() -> None:
    analysis = mechanism()
    analysis["curves"]["s-fret"] |= {
        "nrs": [0.6, None, None, None],
        "loss": [2.0, None, None, None],
    }
    figure = step_figure({**analysis, "name": "mechanism-digits"})
    assert figure is not None
    assert rows(figure)[1][:3] == ["s-fret", 0.6, None]
    assert figure.svg()


def test_sensitivity_comes_from_records(data: ReportData) -> None:
    figure = one(data, "sensitivity")
    assert list(figure.numbers) == ["λ", "learning rate", "accuracy %"]
    assert rows(figure) == [
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
    (panel,) = panels(setups_of(store.records()))
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


def test_palette_tells_methods_apart() -> None:
    import fretta

    looks = [(style(m).color, style(m).dash) for m in fretta.list_methods()]
    assert len(set(looks)) == len(looks)
    assert color("my method") == color("my method")
    assert all(len(s.color) == 7 for s in KNOWN.values())


# ---- names --------------------------------------------------------------------------------------


def test_classes_have_their_names(tmp_path: Path) -> None:
    data = full(tmp_path)
    for record in data.runs:
        details = data.details(record.key)
        if details is not None:
            details["classes"] = ["cat", "dog", "giraffe"]
    assert rows(one(data, "classes"))[1][0] == "dog"
    assert "class dog" in one(data, "classes").alt
    assert rows(one(data, "confusion"))[0][:3] == ["source", "dog", "cat"]
    for kind in ("classes", "confusion"):
        drawn = one(data, kind).svg()
        assert "giraffe" in drawn, kind


def test_numbers_where_runs_call_classes_otherwise(tmp_path: Path) -> None:
    data = full(tmp_path)
    for number, record in enumerate(data.runs):
        details = data.details(record.key)
        if details is not None:
            details["classes"] = [f"{number}-{c}" for c in range(3)]
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


def test_the_part_that_differs_stays() -> None:
    short = short_names(["g-fret lam=0.01", "g-fret lam=0.1"], 12)
    assert list(short.values()) == ["…lam=0.01", "…lam=0.1"]
