"""What `fretta adapt` says about whether it helped: measured, estimated, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from deploy_nets import NAMES, save_images
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
        save_images(tmp_path / "classes" / name, 10)
    return tmp_path / "classes"


def run(plan: AdaptOptions, **options: Any) -> AdaptResult:
    return adapt_images(plan, **options)


def estimated(low: float, high: float, **more: Any) -> Estimate:
    helps = True if low > 0 else False if high < 0 else None
    values = {"source": 0.5, "adapted": 0.6, "change": (low + high) / 2, "samples": 512}
    return Estimate(**{**values, "disagreement": 0.5, **more}, low=low, high=high, helps=helps)


def test_labels_have_the_last_word(plan: Make, classes: Path, tmp_path: Path) -> None:
    outcome = run(plan(data=str(classes)))
    t, measured = outcome.counts, outcome.measured
    assert measured is not None
    assert measured.images == sum(t.labeled) == 40
    assert measured.change == pytest.approx(
        (outcome.accuracy or 0) - (outcome.source_accuracy or 0)
    )
    assert t.gained - t.lost == sum(t.right) - sum(t.source_right)
    assert t.labeled == [10] * 4
    first, second = outcome.verdict_lines()
    assert "(measured)" in first
    assert second.startswith("without labels the estimate is")
    result = json.loads((tmp_path / "out" / "settings.json").read_text())["result"]
    assert result["measured"]["gained"] == t.gained
    assert result["verdict"] == outcome.verdict
    page = unescape((tmp_path / "out" / "summary.html").read_text())
    assert first[1:] in page
    assert page.index("(measured)") < page.index("ithout labels the estimate is")
    assert "Accuracy by class" in page


def test_counts_of_pairs_are_resumed(plan: Make, classes: Path) -> None:
    whole = run(plan(data=str(classes)))
    batches: list[int] = []
    parts = plan(data=str(classes), out=plan().out / "parts")
    run(parts, on_batch=lambda t: batches.append(1), stopped=lambda: len(batches) >= 2)
    assert run(parts, resume=True).counts == whole.counts


def test_a_measured_loss_is_never_called_a_gain(tmp_path: Path) -> None:
    counts = Counts([512], [512], [512], [400], [191], changed=256, lost=210, gained=1)
    lost = AdaptResult(
        tmp_path, True, counts, estimate=estimated(0.159, 0.401), class_names=["cat"]
    )
    assert lost.verdict == "hurts"
    assert lost.verdict_lines()[0].startswith("hurts (measured): -40.8 points")
    counts.lost, counts.gained, counts.right = 20, 121, [501]
    won = AdaptResult(tmp_path, True, counts, estimate=estimated(-0.05, 0.3), class_names=["cat"])
    assert won.verdict == "helps"  # the estimate alone cannot tell
    assert won.verdict_lines()[0].startswith("helps (measured): +19.7 points")


def test_uneven_classes(tmp_path: Path) -> None:
    counts = Counts([4096, 0], [512, 0], [0, 0], [0, 0], [0, 0], changed=256)
    found = estimated(-0.5, 0.4, uneven=Dominant(1, 0.78))
    outcome = AdaptResult(tmp_path, True, counts, estimate=found, class_names=["dog", "cat"])
    (line,) = outcome.verdict_lines()
    assert "cannot tell: classes look uneven (78 % predicted 'cat')" in line
    assert "--prior" in line
    assert outcome.to_json()["verdict"] == "cannot tell"
    assert "78 % predicted 'cat'" in outcome.to_json()["reason"]


def test_few_images_say_nothing(plan: Make) -> None:
    outcome = run(plan())
    assert outcome.estimate is not None
    assert outcome.estimate.samples < FEW
    assert outcome.verdict == "cannot tell"
    assert "too few" in outcome.verdict_lines()[0]


def test_the_source_model_predicted(plan: Make, classes: Path, monkeypatch: Any) -> None:
    outcome = run(plan(method="source", hyperparameters={}, compare_source=True))
    assert outcome.verdict == "source"
    assert outcome.verdict_lines() == ["the source model predicted: nothing was adapted"]
    page = unescape((plan().out / "summary.html").read_text())
    assert "The source model predicted" in page
    assert "cannot tell" not in page
    labeled = run(plan(method="source", hyperparameters={}, data=str(classes)), force=True)
    assert labeled.verdict == "source"
    # a guard that does not let the adapted model predict
    monkeypatch.setattr("fretta.adapter.Adapter.safe", property(lambda self: True))
    still = {"method": "bn", "hyperparameters": {"alpha": 0.0}}
    kept = run(plan(**still, compare_source=True), force=True)
    assert kept.verdict == "source"
    assert "guard" in kept.verdict_lines()[0]


def test_the_prior_reaches_the_estimate(plan: Make, tmp_path: Path) -> None:
    outcome = run(plan(prior={"cat": 0.7}, compare_source=True))
    without = run(plan(compare_source=True), force=True)
    assert outcome.estimate is not None
    assert without.estimate is not None
    assert outcome.estimate.source != without.estimate.source
    assert outcome.estimate.uneven is None
    with pytest.raises(ConfigError, match=r"does not have: kat .did you mean 'cat'"):
        run(plan(prior={"kat": 0.7}), force=True)
    line = ["adapt", "--model", "digits", "--data", str(tmp_path), "--out", str(tmp_path / "x")]
    done = CliRunner().invoke(app, [*line, "--prior", "cat"])
    assert isinstance(done.exception, ConfigError)
    assert "--prior 'cat'" in str(done.exception)
