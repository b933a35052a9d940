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


def test_every_phase_is_shown(options: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """To Python, as a bar on a terminal, as lines elsewhere."""
    seen: list[tuple[str, int, int | None]] = []
    screen = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(adapt, "console", Console(file=screen, force_terminal=True, width=120))
        with adapt._progress() as show:

            def on_progress(p: Progress) -> None:
                seen.append((p.phase, p.done, p.total))
                show.progress(p)

            adapt_images(options(), on_progress=on_progress)
            show.bar.refresh()  # type: ignore[union-attr]
    ends = {phase: (done, total) for phase, done, total in seen}
    assert ends == {ADAPTING: (44, 44), STATISTICS: (16, 16), CHECK: (44, 44)}
    assert list(ends) == [ADAPTING, STATISTICS, CHECK]
    assert "checking the weights" in screen.getvalue()
    assert "44 of 44 images" in screen.getvalue()
    monkeypatch.setattr(adapt, "EVERY", 0.0)
    done = CliRunner().invoke(app, words(options(), "--force"), catch_exceptions=False)
    assert "adapting: 8 of 44 images" in done.output
    assert "statistics for the weights: 16 of 16 images" in done.output
    assert "checking the weights: 44 of 44 images" in done.output
    assert " left" in done.output


@pytest.mark.parametrize(
    ("check", "seen", "expected"),
    [
        (WeightsCheck(512, 256, 0.99, None), 600, ""),
        (WeightsCheck(512, 256, 0.904, 0.8, 0.82), 5000, "--statistics 2048"),
        (WeightsCheck(512, 256, 0.904, None), 512, "more images"),
        (WeightsCheck(0, 256, 0.904, None), 512, "end of the run"),
        (WeightsCheck(0, 0, None, None), 512, ""),
    ],
)
def test_little_agreement_is_explained(check: WeightsCheck, seen: int, expected: str) -> None:
    assert expected in check.advice(seen)
    assert bool(check.advice(seen)) == bool(expected)
    if check.agreement is not None:
        assert f"{100 * check.agreement:.1f} % of 256 images" in str(check)
        assert ("80.0 %, the adapter's 82.0 %" in str(check)) == (check.accuracy is not None)


def test_the_page_explains_it_too(options: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fretta.deploy.result.AGREES", 1.01)
    assert adapt_images(options()).weights is not None
    assert "--statistics 64" in (options().out / "summary.html").read_text()
