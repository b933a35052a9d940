"""Killed at any moment and resumed: the same bytes as if nothing had happened."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deploy_nets import save_images

from fretta.deploy import AdaptOptions, AdaptResult, adapt_images
from fretta.deploy.result import Counts
from fretta.errors import StoreError

Make = Callable[..., AdaptOptions]
FILES = ("predictions.csv", "health.jsonl", "adapted.safetensors")


def content(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in FILES]


def run(plan: AdaptOptions, **options: Any) -> AdaptResult:
    return adapt_images(plan, **options)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"compare_source": True, "prior": {"ant": 0.5}},
        {"method": "g-fret", "hyperparameters": {}},
        {"method": "sar", "hyperparameters": {}, "guard": "reset"},
        {"guard": "none"},
        {"hyperparameters": {"lr": 30.0}},  # the guard has much to do
    ],
)
def test_what_kill_leaves_behind_goes_on(plan: Make, tmp_path: Path, changes: Any) -> None:
    """A copy of the folder between two batches is what kill -9 leaves."""

    def copy(counts: Counts) -> None:
        if counts.batches in (2, 4):
            shutil.copytree(tmp_path / "out", tmp_path / f"killed{counts.batches}")

    seconds = {"checkpoint_seconds": 0.0}
    whole = run(plan(**changes, **seconds), on_batch=copy)
    assert whole.complete
    expected = content(tmp_path / "out")
    for at in (2, 4):
        out = tmp_path / f"killed{at}"
        assert (out / "predictions.csv").read_bytes().count(b"\n") == 8 * at + 1
        (out / ".lock").unlink()
        outcome = run(plan(**changes, out=out), resume=True)
        assert outcome.resumed_at == at - 1  # the copy was made before its checkpoint
        assert content(out) == expected
        assert outcome.estimate == whole.estimate
        assert outcome.counts == whole.counts
        assert not (out / "checkpoint.pt").exists()


def test_killed_before_the_first_checkpoint(plan: Make, tmp_path: Path) -> None:
    def copy(counts: Counts) -> None:
        if counts.batches == 2:
            shutil.copytree(tmp_path / "out", tmp_path / "killed")

    run(plan(), on_batch=copy)
    assert not (tmp_path / "killed" / "checkpoint.pt").exists()
    (tmp_path / "killed" / ".lock").unlink()
    run(plan(out=tmp_path / "killed"), resume=True)
    assert content(tmp_path / "killed") == content(tmp_path / "out")


def test_stopping_writes_everything_and_resumes(plan: Make, tmp_path: Path) -> None:
    run(plan(out=tmp_path / "whole"))
    batches: list[int] = []
    outcome = run(
        plan(), on_batch=lambda t: batches.append(t.batches), stopped=lambda: len(batches) >= 2
    )
    assert not outcome.complete
    assert batches == [1, 2]
    assert "interrupted" in (tmp_path / "out" / "summary.html").read_text()
    assert (tmp_path / "out" / "adapted.safetensors").is_file()
    assert run(plan(), resume=True).complete
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_an_error_keeps_what_was_done(plan: Make, tmp_path: Path) -> None:
    run(plan(out=tmp_path / "whole"))

    def fail(counts: Counts) -> None:
        if counts.batches == 3:
            raise RuntimeError("lightning")

    with pytest.raises(RuntimeError, match="lightning"):
        run(plan(), on_batch=fail)
    outcome = run(plan(), resume=True)
    assert outcome.resumed_at == 3
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def stopped_run(make: Make, **changes: Any) -> None:
    batches: list[int] = []
    run(
        make(**changes),
        on_batch=lambda t: batches.append(1),
        stopped=lambda: len(batches) >= 2,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "eta", "hyperparameters": {}}, "method: 'tent', now 'eta'"),
        ({"hyperparameters": {"lr": 0.02}}, "hyperparameters"),
        ({"batch_size": 16}, "batch_size: 8, now 16"),
        ({"limit": 10}, "count: 44, now 10"),
        ({"guard": "none"}, "guard"),
        ({"prior": {"ant": 0.5}}, "prior: None, now {'ant': 0.5}"),
    ],
)
def test_other_settings_are_refused(plan: Make, changes: Any, said: str) -> None:
    stopped_run(plan)
    with pytest.raises(StoreError, match="began with other settings") as error:
        run(plan(**changes), resume=True)
    assert said in str(error.value)
    assert run(plan(workers=1), resume=True).complete  # how fast is free


def test_other_files_or_weights_are_refused(plan: Make, images: Path) -> None:
    stopped_run(plan)
    shutil.copy(images / "000.png", images / "new.png")
    with pytest.raises(StoreError, match="count: 44, now 45"):
        run(plan(), resume=True)
    (images / "new.png").unlink()
    (images / "000.png").rename(images / "0.png")
    with pytest.raises(StoreError, match="files"):
        run(plan(), resume=True)
    (images / "0.png").rename(images / "000.png")
    weights = Path(str(plan().weights))
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(StoreError, match="weights"):
        run(plan(), resume=True)


def test_paths_from_a_stream_resume_if_they_come_again(plan: Make, images: Path) -> None:
    names = "\n".join(sorted(p.name for p in images.iterdir())).encode()
    whole = plan(data="-", root=images, out=images.parent / "whole")
    run(whole, stdin=io.BytesIO(names))
    part = plan(data="-", root=images)
    batches: list[int] = []
    run(
        part,
        stdin=io.BytesIO(names),
        on_batch=lambda t: batches.append(1),
        stopped=lambda: len(batches) >= 2,
    )
    with pytest.raises(StoreError, match="the 16 paths before the checkpoint are not those"):
        run(part, resume=True, stdin=io.BytesIO(names[4:]))
    run(part, resume=True, stdin=io.BytesIO(names))
    assert content(part.out) == content(whole.out)


def test_nothing_is_overwritten(plan: Make, tmp_path: Path) -> None:
    run(plan())
    with pytest.raises(StoreError, match=r"is not empty .*--resume.*--force"):
        run(plan())
    with pytest.raises(StoreError, match="is complete: there is nothing to resume"):
        run(plan(), resume=True)
    (tmp_path / "out" / "mine.txt").write_text("keep me")
    before = content(tmp_path / "out")
    run(plan(), force=True)
    assert content(tmp_path / "out") == before
    assert (tmp_path / "out" / "mine.txt").read_text() == "keep me"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(StoreError, match="holds no run to resume"):
        run(plan(out=tmp_path / "other"), resume=True)


def test_a_mistake_leaves_an_earlier_run_alone(plan: Make, tmp_path: Path) -> None:
    run(plan())
    before = content(tmp_path / "out")
    with pytest.raises(Exception, match="does not fit"):
        run(plan(num_classes=None, model="deploy_nets:gray", mean=(0.5,), std=(0.5,)), force=True)
    assert content(tmp_path / "out") == before


def test_one_run_at_a_time(plan: Make) -> None:
    def second(counts: Counts) -> None:
        with pytest.raises(StoreError, match="another run is writing"):
            run(plan(), resume=True)

    run(plan(), on_batch=second)


def test_a_damaged_checkpoint_is_named(plan: Make, tmp_path: Path) -> None:
    stopped_run(plan)
    (tmp_path / "out" / "checkpoint.pt").write_bytes(b"junk")
    with pytest.raises(StoreError, match=r"checkpoint.* cannot be read"):
        run(plan(), resume=True)


def test_a_shortened_table_is_noticed(plan: Make, tmp_path: Path) -> None:
    stopped_run(plan)
    (tmp_path / "out" / "predictions.csv").write_bytes(b"path\n")
    with pytest.raises(StoreError, match="was changed or cut"):
        run(plan(), resume=True)


def test_the_order_of_folders(plan: Make, tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        save_images(tmp_path / "classes" / name, 9)
    data = str(tmp_path / "classes")
    outcome = run(plan(data=data))
    rows = (tmp_path / "out" / "predictions.csv").read_text().splitlines()[1:]
    paths = [row.split(",")[0] for row in rows]
    assert paths != sorted(paths)
    assert any("shuffled (seed 0)" in text for text in outcome.notes)
    assert sum(outcome.counts.labeled) == 18
    assert outcome.counts.compared == 18  # all, since the classes are known
    run(plan(data=data, shuffle=False), force=True)
    rows = (tmp_path / "out" / "predictions.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == sorted(paths)


def test_a_batch_cut_off_by_a_stop_is_not_taken(images: Path) -> None:
    """Ctrl-C closes the pipe as well: the rest of a batch must not pass for the last one."""
    import threading

    from fretta.data.images import Decoding
    from fretta.data.read_ahead import read_ahead

    names = sorted(os.listdir(images))[:3]
    asked = iter([False, True])  # before waiting, and once something came
    batches = read_ahead(
        [names], lambda n: images / n, Decoding(16), 1, threading.Event(), lambda: next(asked)
    )
    assert list(batches) == []
