"""label-me.csv: written where the verdict is "cannot tell", filled in by a person, read again."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._util import replace_file
from ..errors import ConfigError, StoreError, warn
from ..estimate.answers import Answered, Question, questions, verdict_of, wanted
from ..estimate.verdict import exact_p
from .options import AdaptOptions
from .output import LABEL_ME, PAGE, PREDICTIONS, SETTINGS, csv_rows, label_cell, path_cell

COLUMNS = ("path", "label", "source", "adapted", "method", "stratum", "weight")
UNSURE = ("", "?")  # no answer
MARK = "<!-- answers -->"  # where summary.html gets them


@dataclass
class Predicted:
    """What the source model and each method predict for every image, in their order."""

    paths: list[str]  # as the files write them
    source: NDArray[np.int64]
    adapted: dict[str, NDArray[np.int64]]  # by method
    names: list[str]  # of the classes

    def __post_init__(self) -> None:
        """Classes of the same name count as the first of them, -1 (no prediction) stays; of an
        image that was shown several times its first turn counts."""
        first = np.array([*_first(self.names), -1], dtype=np.int64)
        rows = sorted({path: i for i, path in reversed([*enumerate(self.paths)])}.values())
        self.paths = [self.paths[i] for i in rows]
        self.source = first[self.source[rows]]
        self.adapted = {name: first[classes[rows]] for name, classes in self.adapted.items()}

    def cell(self, number: np.int64) -> str:
        """A class as the files write it; empty where there is no prediction."""
        return label_cell(self.names[number]) if number >= 0 else ""

    def disagreement(self) -> float:
        """Share of images on which some method differs from the source model."""
        return float(np.any([a != self.source for a in self.adapted.values()], axis=0).mean())


def ask(found: Predicted, method: str, change: float, level: float) -> list[Question]:
    """Images to label, with strata that follow `method`; none where so few could not decide."""
    first = found.adapted[method]
    others = [a for name, a in found.adapted.items() if name != method]
    d = float((first != found.source).mean())
    asked = questions(found.source, [first, *others], wanted(d, change, level))
    return asked if exact_p(len(asked), 0) <= 1 - level else []  # where all answers agree


def write_questions(file: Path, found: Predicted, method: str, asked: list[Question]) -> None:
    """label-me.csv."""
    set_aside(file)
    replace_file(file, csv_rows([COLUMNS, *(_row(found, q, method) for q in asked)]))


def set_aside(file: Path) -> None:
    """A file with answers gets another name before it is replaced: they are somebody's work."""
    try:
        answered = any(row["label"] not in UNSURE for row in _read(file))
    except ConfigError:  # there is none, or none of ours
        return
    if answered:
        names = (file.with_stem(f"{file.stem}-{i}") for i in itertools.count(1))
        aside = next(name for name in names if not name.exists())
        file.rename(aside)
        warn(f"{file.name} had answers: it is {aside.name} now")


def check_answers(file: Path, names: Sequence[str]) -> None:
    """What can be known of the answers before anything is predicted."""
    classes = _classes(names)
    for line, row in enumerate(_read(file), 2):
        if not re.fullmatch(r"(class )?\d+", row["label"]):  # the model may have more classes
            _label(row["label"], classes, f"{str(file)!r}, line {line}")


def _row(found: Predicted, question: Question, method: str) -> list[str]:
    i = question.image
    before, after = (found.cell(classes[i]) for classes in (found.source, found.adapted[method]))
    numbers = [str(question.stratum), f"{question.weight:.10g}"]
    return [path_cell(found.paths[i]), "", before, after, method, *numbers]


def read_answers(file: Path, found: Predicted, level: float = 0.9) -> dict[str, Answered]:
    """The verdict on each method from a file that somebody filled in."""
    rows = _read(file)
    where = {path_cell(path): i for i, path in enumerate(found.paths)}
    classes = _classes(found.names)
    images, labels = [], []
    for line, row in enumerate(rows, 2):
        place = f"{str(file)!r}, line {line}"
        if row["path"] not in where:
            raise ConfigError(
                f"{place}: {row['path']!r} is no image of this stream; give the images, the order"
                " and the limit that the file was written for"
            )
        images.append(where[row["path"]])
        _check_same(found, images[-1], row, place)
        labels.append(_label(row["label"], classes, place))
    if len(set(images)) < len(images):
        twice = next(row["path"] for i, row in enumerate(rows) if images[i] in images[:i])
        raise ConfigError(f"{str(file)!r} names {twice!r} twice; keep one of the rows")
    strata = np.array([_number(row, "stratum", file) for row in rows]).astype(np.int64)
    weights = np.array([_number(row, "weight", file) for row in rows])
    there = found.disagreement()
    if abs(weights.sum() - there) > 1e-6:
        raise ConfigError(
            f"{str(file)!r} stands for {weights.sum():.2%} of the images, but the models differ on"
            f" {there:.2%}: rows are missing, or the images or methods are others; fill in the file"
            " as it was written (a row may stay empty), for the same command"
        )
    chosen = np.array(images)
    return {
        name: verdict_of(
            strata,
            weights,
            found.source[chosen],
            adapted[chosen],
            np.array(labels, dtype=np.int64),
            level,
        )
        for name, adapted in found.adapted.items()
    }


def _read(file: Path) -> list[dict[str, str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            rows = [{k: v or "" for k, v in row.items() if k} for row in reader]
            columns = list(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"--answers {str(file)!r} cannot be read: {error}") from error
    missing = [c for c in COLUMNS if c not in columns]
    if missing:
        raise ConfigError(
            f"--answers {str(file)!r} has no column {', '.join(missing)}; fill in a {LABEL_ME} that"
            " was written here, with commas between the columns"
        )
    if not rows:
        raise ConfigError(f"--answers {str(file)!r} has no rows")
    for row in rows:
        row["label"] = row["label"].strip()  # typed by a person
    return rows


def _classes(names: Sequence[str]) -> dict[str, int]:
    """Names of classes as a person or the file may write them, and numbers where none is a name."""
    first = _first(names)
    numbers = {str(i): number for i, number in enumerate(first)}
    cells = {_key(label_cell(name)): i for name, i in zip(names, first, strict=True)}
    return {**numbers, **cells, **{_key(name): i for name, i in zip(names, first, strict=True)}}


def _first(names: Sequence[str]) -> list[int]:
    """For every class the first one of that name: no answer can tell them apart."""
    seen: dict[str, int] = {}
    return [seen.setdefault(_key(name), i) for i, name in enumerate(names)]


def _key(name: str) -> str:
    return name.strip().casefold()


def _label(text: str, classes: Mapping[str, int], place: str) -> int:
    if text in UNSURE:
        return -1
    if text.casefold() not in classes:
        near = get_close_matches(text.casefold(), classes, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ConfigError(
            f"{place}: {text!r} is no class of the model{hint}; leave the label empty where you"
            " cannot tell"
        )
    return classes[text.casefold()]


def _check_same(found: Predicted, image: int, row: Mapping[str, str], place: str) -> None:
    """The file was written for these predictions."""
    pairs = [("source", found.source)]
    if row["method"] in found.adapted:
        pairs.append(("adapted", found.adapted[row["method"]]))
    for column, classes in pairs:
        now = found.cell(classes[image])
        if row[column] != now:
            raise ConfigError(
                f"{place}: {row['path']!r} was {row[column]!r} by the {column} model and is now"
                f" {now!r}: the model, its settings or the order of the images changed; give the"
                " same ones, or let the file be written anew"
            )


def _number(row: Mapping[str, str], column: str, file: Path) -> float:
    try:
        return float(row[column])
    except ValueError as error:
        raise ConfigError(
            f"{str(file)!r}: {row[column]!r} of {row['path']!r} is no {column}; change the column"
            " `label` only"
        ) from error


# ---- the folder of `fretta adapt` ---------------------------------------------------------------


def read_predictions(out: Path, names: list[str], method: str) -> Predicted:
    """predictions.csv, as far as the source model saw the images too."""
    numbers = {label_cell(name): i for i, name in enumerate(names)}
    paths, before, after = [], [], []
    with (out / PREDICTIONS).open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["source_label"]:
                paths.append(row["path"])
                before.append(numbers[row["source_label"]])
                after.append(int(row["class"] or -1))
    source, adapted = np.array([before, after], dtype=np.int64)
    return Predicted(paths, source, {method: adapted}, names)


PLACES = ("data", "root", "weights", "labels", "source")  # written in one way or another


def same_place(one: str | None, other: str | None) -> bool:
    return None not in (one, other) and os.path.realpath(str(one)) == os.path.realpath(str(other))


def answer_run(options: AdaptOptions, file: Path) -> Answered:
    """The verdict on a finished run from answers; it is also written to its settings and page."""
    out = options.out
    try:
        settings: dict[str, Any] = json.loads((out / SETTINGS).read_text(encoding="utf-8"))
        complete, names, then = settings["complete"], settings["classes"], settings["options"]
        method = then["method"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StoreError(
            f"{str(out)!r} holds no run that answers could be about: {error}"
        ) from error
    if not complete:
        raise StoreError(f"the run in {str(out)!r} is not complete; --resume continues it")
    now = options.to_json()
    changed = [
        f"{k}: {then.get(k)!r}, here {now[k]!r}"
        for k in now.keys() - {"out", "workers", "checkpoint_seconds"}
        if then.get(k) != now[k] and not (k in PLACES and same_place(then.get(k), now[k]))
    ]
    if changed:
        raise ConfigError(
            f"--answers is about the run in {str(out)!r}, which had other options"
            f" ({'; '.join(sorted(changed)[:4])}); repeat its command"
        )
    answered = read_answers(file, read_predictions(out, names, method))[method]
    settings["result"]["answers"] = answered.to_json()
    replace_file(out / SETTINGS, (json.dumps(settings, indent=2) + "\n").encode())
    page = out / PAGE
    if page.is_file():
        text = page.read_text(encoding="utf-8")
        head, mark, rest = text.partition(MARK)
        rest = rest.partition(MARK)[2] if MARK in rest else rest
        line = f"{mark}<p><b>Adapting {escape(str(answered))}.</b></p>{mark}" if mark else ""
        replace_file(page, (head + line + rest).encode())
    return answered
