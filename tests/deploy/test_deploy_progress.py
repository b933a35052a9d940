"""What `fretta adapt` says while it works: every phase, and how long the rest takes."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from rich.console import Console
from test_deploy_command import words
from typer.testing import CliRunner

from fretta.cli import adapt, app
from fretta.deploy import AdaptOptions, adapt_images, progress
from fretta.deploy.progress import ADAPTING, CHECK, STATISTICS, Progress
from fretta.deploy.result import WeightsCheck

Make = Callable[..., AdaptOptions]


def test_the_time_left_includes_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    run = Progress({STATISTICS: 50, CHECK: 30})
    assert run.left is None  # nothing is known yet
    run.begin(ADAPTING, 120, done=20)
    run.reading += 2
    now += 2
    with run.timing_forward(25):
        now += 1
    now += 7
    run.advance(50)
    assert run.rate == 5
    # 50 more images at 5/s; then 80 that take 1/25 s in the model and 2/50 s to read
    assert run.left == pytest.approx(50 / 5 + 80 * (1 / 25 + 2 / 50))
    run.begin(STATISTICS, 50)
    now += 1
    run.advance(10)
    assert run.left == pytest.approx(40 / 10 + 30 * (1 / 25 + 2 / 50))
    run.begin(CHECK, 30)
    now += 1
    run.advance(30)
    assert run.left == 0


def test_every_phase_is_told(plan: Make) -> None:
    told: list[tuple[str, int, int | None]] = []
    adapt_images(plan(), on_progress=lambda p: told.append((p.phase, p.done, p.total)))
    assert list(dict.fromkeys(phase for phase, _, _ in told)) == [ADAPTING, STATISTICS, CHECK]
    ends = {phase: (done, total) for phase, done, total in told}
    assert ends == {ADAPTING: (44, 44), STATISTICS: (16, 16), CHECK: (44, 44)}


def test_lines_where_there_is_no_terminal(plan: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapt, "EVERY", 0.0)
    done = CliRunner().invoke(app, words(plan()), catch_exceptions=False)
    assert "adapting: 8 of 44 images" in done.output
    assert "statistics for the weights: 16 of 16 images" in done.output
    assert "checking the weights: 44 of 44 images" in done.output
    assert " left" in done.output


def test_a_bar_on_a_terminal(plan: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(adapt, "console", console)
    with adapt._progress() as show:
        adapt_images(plan(), on_progress=show.progress)
        show.bar.refresh()  # type: ignore[union-attr]
    assert "checking the weights" in screen.getvalue()
    assert "44 of 44 images" in screen.getvalue()


@pytest.mark.parametrize(
    ("exported", "seen", "expected"),
    [
        (WeightsCheck(512, 256, 0.99, None), 600, ""),
        (WeightsCheck(512, 256, 0.904, 0.8, 0.82), 5000, "--statistics 2048"),
        (WeightsCheck(512, 256, 0.904, None), 512, "more images"),
        (WeightsCheck(0, 256, 0.904, None), 512, "end of the run"),
        (WeightsCheck(0, 0, None, None), 512, ""),
    ],
)
def test_little_agreement_is_explained(exported: WeightsCheck, seen: int, expected: str) -> None:
    assert expected in exported.advice(seen)
    assert bool(exported.advice(seen)) == bool(expected)
    if exported.agreement is not None:
        assert f"{100 * exported.agreement:.1f} % of 256 images" in str(exported)
        assert ("80.0 %, the adapter's 82.0 %" in str(exported)) == (exported.accuracy is not None)


def test_the_page_explains_it_too(plan: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fretta.deploy.result.AGREES", 1.01)
    outcome = adapt_images(plan())
    assert outcome.weights is not None
    page = (plan().out / "summary.html").read_text()
    assert "16 images; the adapter uses those of each batch" in page
    assert "--statistics 64" in page
