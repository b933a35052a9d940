"""`fretta adapt --ray`: streams side by side, each as if it had been alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deploy_nets import ENVIRONMENT, content, save_images

from commands import fretta
from fretta.deploy import AdaptOptions, adapt_images, on_ray
from fretta.deploy.on_ray import StreamEnd, adapt_on_ray, stream_names
from fretta.errors import ConfigError, DataError, MissingExtraError, StoreError

Make = Callable[..., AdaptOptions]


@pytest.fixture(autouse=True)
def _workers_find_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])


def test_names_of_output_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/day", "b/day", "night"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "night.txt").write_text("1.png\n")
    monkeypatch.chdir(tmp_path)
    assert stream_names(["a", "night.txt"]) == {"a": "a", "night": "night.txt"}
    assert stream_names(["a/day", "b/day/", "night"]) == {
        "a-day": "a/day",
        "b-day": "b/day/",
        "-".join(Path("night").absolute().parts[-2:]): "night",
    }
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path / "a")  # a name must not lead out of the output folder
        assert stream_names(["..", "day"]) == {tmp_path.name: "..", "day": "day"}
    for data, message in {
        ("a", "./a"): "twice",
        ("night", "night.txt"): "same name",
        ("-",): "stdin",
    }.items():
        with pytest.raises(ConfigError, match=message):
            stream_names(data)
    with pytest.raises(DataError, match="'c' is no folder"):
        stream_names(["a", "c"])


def test_what_cannot_begin(options: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = fretta("adapt", *("--model", "digits", "--data", "a", "--data", "b", "--out", "out"))
    assert result.returncode == 2
    assert "--data is given 2 times" in result.stderr
    assert "--ray" in result.stderr
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"extra 'ray'"):
        adapt_on_ray(options(), [options().data])
    (tmp_path / "out" / "images").mkdir(parents=True)
    (tmp_path / "out" / "images" / "mine.txt").touch()
    with pytest.raises(StoreError, match="not empty"):
        adapt_on_ray(options(), [options().data])


def doomed(deaths: Path, at: int) -> Callable[..., Any]:
    """A task that kills its worker once, after so many batches; nested: it travels by value."""

    def task(*arguments: Any) -> Any:
        import os
        import pathlib
        import signal

        import fretta.deploy.on_ray as inside

        plain, place = inside.adapt_images, pathlib.Path(deaths)

        def adapt_and_die(options: Any, **how: Any) -> Any:
            def count(counts: Any) -> None:
                if counts.batches == at and not any(place.iterdir()):
                    (place / str(os.getpid())).touch()
                    os.kill(os.getpid(), signal.SIGKILL)

            result = plain(options, **{**how, "on_batch": count})
            (place / f"resumed-{options.out.name}-{result.resumed_at}").touch()
            return result

        inside.adapt_images = adapt_and_die
        try:
            return inside._task(*arguments)
        finally:
            inside.adapt_images = plain

    return task


@pytest.mark.slow
@pytest.mark.ray
def test_streams_are_as_if_alone(
    options: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One folder, one list, one broken folder; a worker is killed and one stream fails."""
    ray = pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)  # relative paths must mean this folder to workers too
    names = [path.name for path in save_images(tmp_path / "listed", 30)]
    (tmp_path / "listed" / "some.txt").write_text("\n".join(names[::-1]) + "\n")
    save_images(tmp_path / "broken", 20)
    (tmp_path / "broken" / "012.png").write_bytes(b"no image")
    data, each = ["images", "listed/some.txt", "broken"], {"checkpoint_seconds": 0.0}
    for path, name in zip(data[:2], ("images", "some"), strict=True):
        adapt_images(options(data=path, out=Path("alone") / name, **each))
    (tmp_path / "deaths").mkdir()
    plain = on_ray._task
    monkeypatch.setattr(on_ray, "_task", doomed(tmp_path / "deaths", at=3))

    seen: list[StreamEnd] = []
    ends = adapt_on_ray(options(out=Path("out"), **each), data, on_end=seen.append)
    assert not ray.is_initialized()
    assert [end.name for end in ends] == ["images", "some", "broken"]
    assert sorted(end.name for end in seen) == ["broken", "images", "some"]
    assert [end.error for end in ends][:2] == ["", ""]
    assert "012.png" in ends[2].error
    resumed = sorted(p.name for p in (tmp_path / "deaths").glob("resumed-*"))
    assert resumed in (
        ["resumed-images-2", "resumed-some-0"],
        ["resumed-images-0", "resumed-some-2"],
        ["resumed-images-0", "resumed-some-0"],  # the one that fails was killed
    )
    for name in ("images", "some"):
        assert content(Path("out") / name) == content(Path("alone") / name)
        pages = [(p / name / "summary.html").read_bytes() for p in (Path("out"), Path("alone"))]
        assert pages[0].replace(b"out/", b"") == pages[1].replace(b"alone/", b"")
    assert sorted(os.listdir("out")) == ["broken", "images", "some"]

    # once more: what is complete stays, the one that failed goes on
    monkeypatch.setattr(on_ray, "_task", plain)
    given = options(out=Path("out"), skip_unreadable=True, **each)
    again = adapt_on_ray(given, data, resume=True)
    assert [end.there for end in again] == [True, True, False]
    assert [end.result["images"] for end in again] == [44, 30, 19]
    with pytest.raises(StoreError, match="other settings"):
        adapt_on_ray(options(out=Path("out"), method="bn", hyperparameters={}), data, resume=True)


@pytest.mark.slow
@pytest.mark.ray
def test_the_command(images: Path, options: Make, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    save_images(tmp_path / "more", 20)
    (tmp_path / "empty").mkdir()
    given = options()
    words = (
        *("adapt", "--model", "deploy_nets:tiny", "--weights", given.weights, "--out", "out"),
        *("--labels", given.labels, "--size", "16", "--mean", "0.5,0.5,0.5"),
        *("--std", "0.25,0.25,0.25", "--batch-size", "8", "--method", "tent"),
    )
    result = fretta(*words, "--data", "images", "--data", "more", "--ray", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["images", "44"] in [row[:2] for row in rows]
    assert ["more", "20"] in [row[:2] for row in rows]
    settings = json.loads((tmp_path / "out" / "more" / "settings.json").read_text())
    assert settings["complete"]
    again = fretta(*words, "--data", "more", "--data", "empty", "--ray", "--resume", cwd=tmp_path)
    assert again.returncode == 1
    assert "1 of 2 streams failed" in again.stdout
    assert "no images in" in again.stdout
    assert "more: 20 images, as before" in again.stdout
