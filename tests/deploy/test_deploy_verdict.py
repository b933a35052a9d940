"""What `fretta adapt` says about whether it helped: measured, estimated, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from deploy_nets import NAMES, save_images, stop_after, table
from typer.testing import CliRunner

from fretta.cli import app
from fretta.deploy import AdaptOptions, AdaptResult, adapt_images
from fretta.deploy.result import FEW, Counts
from fretta.errors import ConfigError
from fretta.estimate import Dominant, Estimate

Make = Callable[..., AdaptOptions]


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    for name in NAMES:
        save_images(tmp_path / "classes" / name.upper(), 10)  # case does not matter
    return tmp_path / "classes"


def test_labels_have_the_last_word(options: Make, classes: Path, tmp_path: Path) -> None:
    result = adapt_images(options(data=str(classes)))
    rows, counts, measured = table(tmp_path / "out"), result.counts, result.measured
    truth = [row["path"].split("/")[0].lower() for row in rows]
    for accuracy, column in ((result.accuracy, "label"), (result.source_accuracy, "source_label")):
        assert accuracy == sum(r[column] == t for r, t in zip(rows, truth, strict=True)) / 40
    assert measured is not None
    assert counts.labeled == [10] * 4
    assert measured.images == 40
    assert measured.change == pytest.approx((result.accuracy or 0) - (result.source_accuracy or 0))
    first, second = result.verdict_lines()
    assert "(measured)" in first
    assert second.startswith("without labels the estimate is")
    saved = json.loads((tmp_path / "out" / "settings.json").read_text())["result"]
    assert saved["measured"]["gained"] == counts.gained
    assert saved["verdict"] == result.verdict
    page = unescape((tmp_path / "out" / "summary.html").read_text())
    assert page.index(first[1:]) < page.index("ithout labels the estimate is")
    assert "Accuracy by class" in page
    # resumed
    parts = options(data=str(classes), out=tmp_path / "parts")
    stop_after(2, parts)
    assert adapt_images(parts, resume=True).counts == counts
    # a folder that is no class
    save_images(classes / "zebra", 1)
    strange = adapt_images(options(data=str(classes)), force=True)
    assert strange.accuracy is None
    assert any("1 of 5 folders are not named as a class" in text for text in strange.notes)


def test_folders_name_classes_that_the_model_does_not(options: Make, classes: Path) -> None:
    named = adapt_images(options(data=str(classes), limit=3))
    plain = adapt_images(options(data=str(classes), limit=3, labels=None), force=True)
    assert plain.accuracy == named.accuracy is not None
    assert plain.class_names == [name.upper() for name in NAMES]
    page = unescape((options().out / "summary.html").read_text())
    assert "Labels: the folders, sorted" in page


def estimated(low: float, high: float, **more: Any) -> Estimate:
    helps = True if low > 0 else False if high < 0 else None
    values = {"source": 0.5, "adapted": 0.6, "change": (low + high) / 2, "samples": 512}
    return Estimate(**{**values, "disagreement": 0.5, **more}, low=low, high=high, helps=helps)


@pytest.mark.parametrize(
    ("right", "gained", "lost", "interval", "expected"),
    [
        (191, 1, 210, (0.159, 0.401), "hurts (measured): -40.8 points"),
        (501, 121, 20, (-0.05, 0.3), "helps (measured): +19.7 points"),
    ],
)
def test_a_measurement_overrides_the_estimate(
    right: int, gained: int, lost: int, interval: tuple[float, float], expected: str
) -> None:
    counts = Counts([512], [512], [512], [400], [right], changed=256, lost=lost, gained=gained)
    result = AdaptResult(Path(), True, counts, estimate=estimated(*interval), class_names=["cat"])
    assert result.verdict == expected.split()[0]
    assert result.verdict_lines()[0].startswith(expected)


def test_uneven_classes() -> None:
    counts = Counts([4096, 0], [512, 0], [0, 0], [0, 0], [0, 0], changed=256)
    found = estimated(-0.5, 0.4, uneven=Dominant(1, 0.78))
    result = AdaptResult(Path(), True, counts, estimate=found, class_names=["dog", "cat"])
    (line,) = result.verdict_lines()
    assert "cannot tell, classes look uneven: 78 % predicted cat" in line
    assert "--prior" in line
    assert result.to_json()["verdict"] == "cannot tell"
    assert "78 % predicted cat" in result.to_json()["reason"]


def test_the_source_model_predicted(options: Make, classes: Path, monkeypatch: Any) -> None:
    source = {"method": "source", "hyperparameters": {}}
    result = adapt_images(options(**source, compare_source=True))
    assert result.verdict == "source"
    assert result.verdict_lines() == ["the source model predicted: nothing was adapted"]
    page = unescape((options().out / "summary.html").read_text())
    assert "The source model predicted" in page
    assert "cannot tell" not in page
    assert adapt_images(options(**source, data=str(classes)), force=True).verdict == "source"
    # a guard that does not let the adapted model predict
    monkeypatch.setattr("fretta.adapter.Adapter.safe", property(lambda self: True))
    still = {"method": "bn", "hyperparameters": {"alpha": 0.0}}
    kept = adapt_images(options(**still, compare_source=True), force=True)
    assert kept.verdict == "source"
    assert "guard" in kept.verdict_lines()[0]


def test_the_prior_reaches_the_estimate(options: Make, tmp_path: Path) -> None:
    few = adapt_images(options())
    assert few.estimate is not None
    assert few.estimate.samples < FEW
    assert few.verdict == "cannot tell"
    assert "too few" in few.verdict_lines()[0]
    assert few.asked == 0  # labels of so few would not decide
    result = adapt_images(options(prior={"cat": 0.7}, compare_source=True), force=True)
    without = adapt_images(options(compare_source=True), force=True)
    assert result.estimate is not None
    assert without.estimate is not None
    assert result.estimate.source != without.estimate.source
    assert result.estimate.uneven is None
    with pytest.raises(ConfigError, match=r"does not have: kat .did you mean 'cat'"):
        adapt_images(options(prior={"kat": 0.7}), force=True)
    line = ["adapt", "--model", "digits", "--data", str(tmp_path), "--out", str(tmp_path / "x")]
    done = CliRunner().invoke(app, [*line, "--prior", "cat"])
    assert isinstance(done.exception, ConfigError)
    assert "--prior 'cat'" in str(done.exception)
