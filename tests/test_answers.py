"""A few labels decide: which images are asked for, what follows, and the files in between."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fretta.cli import app
from fretta.data import open_dataset
from fretta.deploy.label_me import Predicted, ask, read_answers, read_predictions, write_questions
from fretta.errors import ConfigError, FrettaError, FrettaWarning, StoreError
from fretta.estimate.answers import FEWEST, MOST, questions, verdict_of, wanted


def test_by_hand() -> None:
    """Two strata that hold 0.3 and 0.1 of the stream; class 0 by the source model, else 1."""
    strata = np.array([0, 0, 0, 0, 1, 1])
    weights = np.array([0.075] * 4 + [0.05] * 2)
    source, adapted = np.zeros(6, np.int64), np.ones(6, np.int64)
    found = verdict_of(strata, weights, source, adapted, np.array([1, 1, 1, 0, 2, 2]))
    assert (found.images, found.gained, found.lost) == (6, 3, 1)
    assert found.change == pytest.approx(0.3 * (3 - 1) / 4)
    assert found.p == pytest.approx(2 * (1 + 4) / 16)  # one of four or none, both ways
    assert found.helps is None
    # half a gain and half a loss are added, spread over the six answers
    p, q = (3 + 2 / 6) / (4 + 4 / 6), (1 + 2 / 6) / (4 + 4 / 6)
    other = (1 / 6) / (2 + 2 / 6)
    variance = 0.09 * (p + q - (p - q) ** 2) / 4 + 0.01 * 2 * other / 2
    assert found.high == pytest.approx(
        min(0.4, found.change + 1.6449 * math.sqrt(variance)), abs=1e-5
    )
    assert found.low == pytest.approx(found.change - 1.6449 * math.sqrt(variance), abs=1e-5)
    # one answer in the second stratum is too few: it counts with the first
    found = verdict_of(strata, weights, source, adapted, np.array([1, 1, 1, 0, 0, -1]))
    assert found.change == pytest.approx(0.4 * (3 - 2) / 5)
    assert (found.images, found.asked) == (5, 6)
    with pytest.raises(ConfigError, match="no image was answered"):
        verdict_of(strata, weights, source, adapted, np.full(6, -1))


def test_questions_are_about_disagreements_and_spread() -> None:
    random = np.random.default_rng(0)
    source, adapted = random.integers(0, 10, 1000), random.integers(0, 10, 1000)
    adapted[:500] = source[:500]
    other = source.copy()
    other[:20] = (source[:20] + 1) % 10  # a second method differs elsewhere
    found = questions(source, [adapted, other], 100)
    assert found == questions(source, [adapted, other], 100)
    images = [q.image for q in found]
    assert len(set(images)) == 100
    differ = (source != adapted) | (source != other)
    assert differ[images].all()
    assert sum(q.weight for q in found) == pytest.approx(differ.mean())
    assert {q.stratum for q in found[:10]} == set(range(10))  # any beginning is spread
    assert questions(source, [source], 100) == []
    assert wanted(0.5, 0.4, 0.9) == FEWEST
    assert wanted(0.5, 0.0, 0.9) == MOST
    assert wanted(0.5, 0.08, 0.9) == math.ceil((1.6449 * 0.5 / 0.08) ** 2)


def test_the_interval_holds_as_often_as_it_says() -> None:
    random, held, wrong = np.random.default_rng(0), 0, 0
    for _ in range(300):
        y, source = random.integers(0, 5, 600), random.integers(0, 5, 600)
        adapted = np.where(random.random(600) < 0.6, source, random.integers(0, 5, 600))
        source = np.where(random.random(600) < 0.5, y, source)
        true = float(((adapted == y).mean()) - (source == y).mean())
        asked = questions(source, [adapted], 60)
        rows = [q.image for q in asked]
        strata, weights = np.array([(q.stratum, q.weight) for q in asked]).T
        found = verdict_of(strata.astype(int), weights, source[rows], adapted[rows], y[rows])
        held += found.low <= true <= found.high
        wrong += found.helps is not None and found.helps != (true > 0)
    assert held >= 262  # 270 are meant, and more come: all images would be the truth
    assert wrong == 0


# ---- files --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ones(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """(folder, label of each file): clean digits, 80 % of them ones, in no folders of classes."""
    image = pytest.importorskip("PIL.Image")
    domain = open_dataset("digits", corruption=None).domains[0]
    labels = np.asarray(domain.labels)
    rows = [np.flatnonzero(labels == 1)[:52]]
    rows += [np.flatnonzero(labels == c)[:2] for c in range(10) if c not in (1, 8, 9, 4)]
    chosen = np.random.RandomState(0).permutation(np.concatenate(rows))
    folder = tmp_path_factory.mktemp("ones")
    truth = {}
    for number, (row, pixels) in enumerate(zip(chosen, domain.read(chosen), strict=True)):
        truth[f"{number:03}.png"] = int(labels[row])
        image.fromarray(pixels).save(folder / f"{number:03}.png")
    return folder, truth


def run(*arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": "120"}).invoke(app, list(arguments))
    assert done.exception is None, done.exception
    return done.output


def filled(file: Path, truth: Mapping[str, object], some: int = 1000) -> list[list[str]]:
    with file.open(newline="") as stream:
        head, *rows = list(csv.reader(stream))
    assert head[:2] == ["path", "label"]
    for row in rows[:some]:
        row[1] = str(truth[row[0]])
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([head, *rows])
    return rows


@pytest.mark.parametrize(("differ", "asked"), [(4, 0), (5, 5)])
def test_answers_that_could_not_decide_are_not_asked_for(differ: int, asked: int) -> None:
    source = np.zeros(64, dtype=np.int64)
    adapted = (np.arange(64) < differ).astype(np.int64)
    found = Predicted([str(i) for i in range(64)], source, {"bn": adapted}, ["a", "b"])
    chosen = ask(found, "bn", 0.01, 0.9)
    assert len(chosen) == asked
    if asked:  # all agree: decided
        numbers = np.array([(q.image, q.stratum) for q in chosen]).T
        weights = np.array([q.weight for q in chosen])
        pair = (source[numbers[0]], adapted[numbers[0]])
        assert verdict_of(numbers[1], weights, *pair, adapted[numbers[0]]).helps


def answered(found: Predicted, file: Path, truth: Mapping[str, object]) -> tuple[int, int]:
    """Answers gained and lost, over the file that a person fills in."""
    write_questions(file, found, "bn", ask(found, "bn", 0.01, 0.9))
    filled(file, truth)
    result = read_answers(file, found)["bn"]
    return result.gained, result.lost


def test_classes_of_one_name_are_one_class(tmp_path: Path) -> None:
    """Both models say "other", by different outputs: they agree, and neither loses."""
    names = ["cat", "other", "Other", "other"]
    source = np.repeat([0, 1, 0], [6, 6, 52])
    adapted = np.repeat([3, 2, 0], [6, 6, 52])
    found = Predicted([str(i) for i in range(64)], source, {"bn": adapted}, names)
    assert found.disagreement() == 6 / 64
    for truth in ("other", "OTHER", "3"):
        assert answered(found, tmp_path / "a.csv", {str(i): truth for i in range(64)}) == (6, 0)
        (tmp_path / "a.csv").unlink()
    rows = ["path,label,class,source_label", "0,other,1,other", "1,other,3,cat", "2,cat,0,"]
    (tmp_path / "predictions.csv").write_text("\n".join(rows) + "\n")
    found = read_predictions(tmp_path, names, "bn")
    assert found.paths == ["0", "1"]
    assert found.disagreement() == 1 / 2


def test_odd_names_are_found_again(tmp_path: Path) -> None:
    """Blanks at an end, bytes that are no UTF-8, what a spreadsheet takes for a formula."""
    paths = [" a.png", "b.png ", "\udcff.png", "=c.png", "d\re.png"]
    written = [" a.png", "b.png ", "\\udcff.png", "./=c.png", "d\re.png"]
    names = ["cat ", "\udcff", " =dog"]
    source = np.zeros(5, dtype=np.int64)
    found = Predicted(paths, source, {"bn": np.array([1, 1, 1, 2, 2])}, names)
    truth = dict(zip(written, ("cat", "\\udcff", " cat ", "=dog", "CAT"), strict=True))
    assert answered(found, tmp_path / "a.csv", truth) == (2, 3)


@pytest.mark.slow
def test_compare_asks_and_takes_answers(ones: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    folder, truth = ones
    line = ["compare", "--model", "digits", "--data", str(folder), "--methods", "bn,tent"]
    line += ["--batch-size", "32", "--out", str(tmp_path)]
    said = run(*line)
    assert "Cannot tell, classes look uneven: " in said
    assert "% predicted 1" in said
    assert "labels would decide" in said
    file = tmp_path / "label-me.csv"
    rows = filled(file, truth)
    said = run(*line, "--answers", str(file))
    assert "Adapting hurts (from " in said
    assert f"From {len(rows):,} answers, in points" in said
    with pytest.warns(FrettaWarning, match="it is label-me-1.csv now"):
        run(*line)  # asks anew: the answers are kept
    kept = tmp_path / "label-me-1.csv"
    labels, unknown = (
        [row["label"] for row in csv.DictReader(f.read_text().splitlines())] for f in (kept, file)
    )
    assert labels == [row[1] for row in rows]
    assert not any(unknown)
    said = run(*line, "--answers", str(kept))
    content = json.loads((tmp_path / "compare.json").read_text())
    for method in content["methods"]:
        if method["method"] != "source":
            assert method["verdict"] == "hurts"
            assert method["answered"]["high"] < 0
    for change, message in (
        ((0, 1, "x1"), "'x1' is no class of the model"),
        ((0, 0, "a.png"), "is no image of this stream"),
        ((0, 0, rows[1][0]), "twice"),
        ((0, 2, "7"), "by the source model and is now"),
        ((0, 6, "much"), "is no weight"),
        ((0, 6, "0.5"), "stands for"),
    ):
        number, column, value = change
        other = [list(row) for row in rows]
        if message == "twice":
            other[0] = list(other[1])
        other[number][column] = value
        bad = tmp_path / "bad.csv"
        with bad.open("w", newline="") as stream:
            csv.writer(stream).writerows(
                [["path", "label", "source", "adapted", "method", "stratum", "weight"], *other]
            )
        done = CliRunner().invoke(app, [*line, "--answers", str(bad)])
        assert isinstance(done.exception, FrettaError), message
        assert message in str(done.exception)


def test_adapt_asks_and_takes_answers(ones: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    folder, truth = ones
    line = ["adapt", "--model", "digits", "--data", str(folder), "--method", "bn"]
    line += [
        "--batch-size",
        "32",
        "--guard",
        "none",
        "--compare-source",
        "--out",
        str(tmp_path / "o"),
    ]
    assert "labels would decide" in run(*line)
    file = tmp_path / "o" / "label-me.csv"
    rows = filled(file, truth, some=25)  # partly, from the top
    said = run(*line, "--answers", str(file))
    assert said.startswith(f"Adapting hurts (from 25 of {len(rows)} answers): -")
    for _ in range(2):  # once more changes nothing
        run(*line, "--answers", str(file))
    page = (tmp_path / "o" / "summary.html").read_text()
    assert page.count("Adapting hurts (from 25") == 1
    settings = json.loads((tmp_path / "o" / "settings.json").read_text())
    assert settings["result"]["answers"]["verdict"] == "hurts"
    (tmp_path / "empty.csv").write_text("")
    for name, error, message in (
        ("empty.csv", ConfigError, "no column path"),
        ("no.csv", ConfigError, "cannot be read"),
    ):
        done = CliRunner().invoke(app, [*line, "--answers", str(tmp_path / name)])
        assert isinstance(done.exception, error)
        assert message in str(done.exception)
    done = CliRunner().invoke(app, [*line, "--method", "tent", "--answers", str(file)])
    assert isinstance(done.exception, ConfigError)
    assert "method: 'bn', here 'tent'" in str(done.exception)
    line[-1] = str(tmp_path)
    done = CliRunner().invoke(app, [*line, "--answers", str(file)])
    assert isinstance(done.exception, StoreError)


def test_an_image_that_was_shown_twice_is_asked_for_once(tmp_path: Path) -> None:
    """Its first turn counts; a class of -1 is no prediction."""
    source, adapted = np.array([0, 0, 1, 0]), np.array([1, 0, -1, 0])
    found = Predicted(["a", "b", "c", "a"], source, {"bn": adapted}, ["cat", "dog"])
    assert (found.paths, found.adapted["bn"].tolist()) == (["a", "b", "c"], [1, 0, -1])
    assert found.disagreement() == pytest.approx(2 / 3)
    file = tmp_path / "a.csv"
    write_questions(file, found, "bn", questions(found.source, [found.adapted["bn"]], 2))
    with file.open(encoding="utf-8", newline="") as stream:
        rows = {row["path"]: row["adapted"] for row in csv.DictReader(stream)}
    assert rows == {"a": "dog", "c": ""}
    filled(file, {"a": "dog", "c": "dog"})
    result = read_answers(file, found)["bn"]
    assert (result.gained, result.lost) == (1, 1)
