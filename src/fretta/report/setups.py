"""Records put together: a setup is one stream and one model, its rows are the methods on it.

Only runs that differ in nothing but the seed are averaged, and only rows of one setup are
compared: with equal seeds they saw the same batches. In suites that leave one domain out (cases
`resnet18/sketch`, …) each case is one domain, and the cases of a backbone and a data set make one
setup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from pandas import DataFrame, MultiIndex, Series

from ..experiment.records import Record, canonical, digest
from ..experiment.results import SETUP, config_of, setup_of
from .data import Batches
from .suites import label_order, suite_facts, suite_order, suite_title

STREAM = ("order", "order_options", "batch_size")  # of a setup; the rest is data and model
# What a reader must know before believing a number, and how the tables say it.
DIRTY = "uncommitted code"
ORACLE = "tuned on target labels"


@dataclass
class Setup:
    """What the rows of one table have in common, and their results.

    rows      indexed by `row`: label, method, setting, flags, section (of tables of several setups)
    runs      one per run: row, case, seed, done, key, record
    results   of finished runs, indexed by (row, seed, domain): the measures, `key`, and `right`
              and `sizes`, the right answers and images of each batch, or None
    """

    suite: str
    heading: str  # the title of the suite
    name: str  # the case, or the backbone of several cases
    domains: list[str]
    cases: dict[str, str]  # domain -> case, where each case is a domain; else empty
    rows: DataFrame
    runs: DataFrame
    results: DataFrame
    note: str = ""  # tells it from others of the same name
    _measures: dict[str, DataFrame] = field(default_factory=dict, repr=False)
    _scores: dict[tuple[str, tuple[str, ...]], DataFrame] = field(default_factory=dict, repr=False)

    @property
    def title(self) -> str:
        return f"{self.name} ({self.note})" if self.note else self.name

    @property
    def run(self) -> dict[str, Any]:
        """Of any of its records: data, model and stream are the same in all."""
        found: dict[str, Any] = self.runs["record"].iloc[0].run
        return found

    @property
    def paper(self) -> str:
        return suite_facts(self.suite).paper

    @property
    def dataset(self) -> str:
        return str(self.run.get("data", {}).get("name", ""))

    @property
    def source(self) -> int | None:
        """The row that adapting is measured against."""
        done = self.runs[self.runs["done"]]["row"].unique()
        rows = [i for i in self.rows.index[self.rows["method"] == "source"] if i in done]
        return int(rows[0]) if rows else None

    @property
    def seeds(self) -> list[int]:
        return sorted(self.runs["seed"].unique().tolist())

    def scores(self, domains: Sequence[str], measure: str = "accuracy") -> DataFrame:
        """A measure as `value`, of the seeds that have all these domains; see significance.py."""
        wanted = tuple(dict.fromkeys(domains))
        key = (measure, wanted)
        if key not in self._scores:
            if measure not in self._measures:
                self._measures[measure] = self._of_measure(measure)
            found = self._measures[measure]
            found = found[found.index.isin(wanted, level="domain")]
            if len(wanted) != 1:
                counts = found["value"].groupby(["row", "seed"]).transform("size")
                found = found[counts == len(wanted)]
            self._scores[key] = found
        return self._scores[key]

    def _of_measure(self, measure: str) -> DataFrame:
        if measure not in self.results:
            return self.results.iloc[:0].assign(value=0.0)
        found = self.results[["images", "right", "sizes", "key", measure]].dropna(subset=measure)
        found = found.rename(columns={measure: "value"}).astype({"value": float})
        if measure != "accuracy":  # no share of images
            found = found.assign(images=0, right=None, sizes=None)
        return found

    def failed(self, case: str | None = None) -> Series:
        """How many runs of each row failed, of a case or of all."""
        runs = zip(self.runs["row"], self.runs["case"], self.runs["done"], strict=True)
        counts = Counter(row for row, at, done in runs if not done and case in (None, at))
        return Series([counts[row] for row in self.rows.index], index=self.rows.index)


def setups_of(records: Iterable[Record], batches: Batches | None = None) -> list[Setup]:
    """All setups, suite by suite; `batches` looks up those of a run, for paired tests."""

    def suite_of(record: Record) -> tuple[bool, int, str]:
        return suite_order(str(record.tags.get("suite") or ""))

    return [
        setup
        for (*_, suite), mine in groupby(sorted(records, key=suite_of), suite_of)
        for setup in _of_suite(suite, list(mine), batches)
    ]


def _case(record: Record) -> str:
    return str(record.tags.get("case") or record.run.get("data", {}).get("name") or "")


def _of_suite(suite: str, records: list[Record], batches: Batches | None) -> list[Setup]:
    one_each = all("/" in _case(r) and len(r.rows) <= 1 for r in records)
    groups: dict[tuple[str, ...], list[Record]] = {}
    generation = _generations(records)
    for record in records:
        if one_each:
            data = {k: v for k, v in (record.run.get("data") or {}).items() if k != "domains"}
            same = [data, record.run.get("model"), *(record.run.get(k) for k in STREAM)]
            group = _case(record).split("/")[0], digest([same, generation[_subject(record)]])
        else:
            group = _case(record), setup_of(record.run)
        groups.setdefault(group, []).append(record)
    order = {case: i for i, case in enumerate(suite_facts(suite).cases)}
    made = []
    for (name, _), mine in groups.items():
        mine.sort(key=lambda r: (order.get(_case(r), 999), _case(r), r.run["seed"]))
        made.append(_setup(suite, name, mine, one_each, batches))
    _tell_apart(made)
    first = {id(s): min(order.get(case, 999) for case in s.runs["case"]) for s in made}
    return sorted(made, key=lambda s: (first[id(s)], s.name, -len(s.rows), s.note))


def _subject(record: Record) -> str:
    keys = [k for k in SETUP if k not in STREAM]
    return digest([_case(record), *(record.run.get(k) for k in keys)])


def _generations(records: list[Record]) -> dict[str, int]:
    """Where weights or data of a case changed, newest first: the newest of each case belong
    together, and so on."""
    newest: dict[str, dict[str, float]] = {}
    for record in records:
        times = newest.setdefault(_case(record), {})
        time, subject = float(record.provenance.get("finished") or 0), _subject(record)
        times[subject] = max(time, times.get(subject, 0.0))
    return {
        subject: number
        for times in newest.values()
        for number, subject in enumerate(sorted(times, key=lambda s: -times[s]))
    }


def _setup(
    suite: str, name: str, records: list[Record], one_each: bool, batches: Batches | None
) -> Setup:
    by_row: dict[tuple[str, str], list[Record]] = {}
    domains: dict[str, str] = {}
    for record in records:
        label = str(record.tags.get("label") or record.run["method"])
        ignored = ("source", "source_hash") if one_each else ()  # they differ from case to case
        by_row.setdefault((label, config_of(record.run, *ignored)), []).append(record)
        for row in record.rows:
            domains.setdefault(str(row.get("domain")), _case(record))
    if one_each:  # a case all of whose runs failed still has its column
        for case in dict.fromkeys(map(_case, records)):
            if case not in domains.values():
                domains[case.split("/", 1)[1]] = case
    ordered = sorted(by_row.items(), key=lambda item: label_order(suite, item[0][0]))
    labels = [label for (label, _), _ in ordered]
    mine = [found for _, found in ordered]
    rows = DataFrame(
        {
            "label": labels,
            "method": [found[0].run["method"] for found in mine],
            "setting": _settings(labels, [found[0].run for found in mine]),
            "flags": [_flags(found) for found in mine],
            "section": "",
        }
    )
    runs = DataFrame(
        [
            {
                "row": number,
                "case": _case(r),
                "seed": r.run["seed"],
                "done": r.status == "done",
                "key": r.key,
                "record": r,
            }
            for number, found in enumerate(mine)
            for r in found
        ]
    )
    heading = suite_title(suite, records)
    cases = domains if one_each else {}
    results = _results(runs, batches)
    return Setup(suite, heading, name, list(domains), cases, rows, runs, results)


def _results(runs: DataFrame, batches: Batches | None) -> DataFrame:
    index, found = [], []
    for number, seed, record in zip(runs["row"], runs["seed"], runs["record"], strict=True):
        if record.status == "done":
            counts = batches(record) if batches else {}
            for row in record.rows:
                domain = str(row.get("domain"))
                right, sizes = counts.get(domain, (None, None))
                index.append((number, seed, domain))
                facts = {"key": record.key, "right": right, "sizes": sizes}
                found.append({**row, "images": int(row.get("images") or 0), **facts})
    names = ["row", "seed", "domain"]
    if not found:
        return DataFrame(
            columns=["accuracy", "images", "right", "sizes", "key"],
            index=MultiIndex.from_arrays([[], [], []], names=names),
        )
    results = DataFrame(found, index=MultiIndex.from_tuples(index, names=names))
    for name in ("right", "sizes"):  # None stays None
        results[name] = Series([row[name] for row in found], index=results.index, dtype=object)
    results = results[~results.index.duplicated(keep="last")]
    return results.sort_index(level=["row", "seed"], sort_remaining=False)


# ---- settings and flags in a few words -----------------------------------------------------------


def _settings(labels: list[str], runs: list[dict[str, Any]]) -> list[str]:
    """What differs between rows of one label; own settings of one that has no label."""
    known = (*SETUP, "seed", "method")  # the same in all rows of a table
    entries = [_flat({k: v for k, v in run.items() if k not in known}) for run in runs]
    texts = [""] * len(labels)
    for label in dict.fromkeys(labels):
        rows = [i for i, other in enumerate(labels) if other == label]
        for i, differs in zip(rows, _differing([entries[i] for i in rows]), strict=True):
            own = entries[i].items() if label == runs[i]["method"] else ()
            shown = {k: v for k, v in own if k.startswith(("hyperparameters", "adapter"))}
            texts[i] = _text({**shown, **differs})
    return texts


def _tell_apart(setups: list[Setup]) -> None:
    """Name what differs between setups of one name, of what all runs of each have in common."""
    for name in dict.fromkeys(s.name for s in setups):
        same = [s for s in setups if s.name == name]
        if len(same) == 1:
            continue
        runs = [[_flat({k: r.run.get(k) for k in SETUP}) for r in s.runs["record"]] for s in same]
        mixed = {entry for each in runs for differs in _differing(each) for entry in differs}
        common = [{k: v for k, v in each[0].items() if k not in mixed} for each in runs]
        differences = _differing(common)
        rest = "all images" if any("order_options.limit" in d for d in differences) else "default"
        notes: list[str] = []
        for setup, differs in zip(same, differences, strict=True):
            text = _text(differs) or (rest if any(differences) else "")
            note = "; ".join(filter(None, [text, _domains(setup, same)]))
            again = notes.count(note)
            notes.append(note)
            setup.note = f"{note} ({again + 1})" if again else note


def _domains(setup: Setup, others: list[Setup]) -> str:
    """Which domains a mean is over, where each is a case and other tables have others."""
    if not setup.cases or all(set(s.domains) == set(setup.domains) for s in others):
        return ""
    return ", ".join(setup.domains) if len(setup.domains) <= 4 else f"{len(setup.domains)} domains"


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}; empty tables vanish."""
    if not isinstance(value, dict):
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return found


def _differing(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each, the entries that are not the same in all."""
    names = list(dict.fromkeys(name for run in runs for name in run))
    varied = [n for n in names if len({canonical(run.get(n)) for run in runs}) > 1]
    return [{n: run[n] for n in varied if run.get(n) is not None} for run in runs]


def _text(entries: dict[str, Any]) -> str:
    words = []
    for name, value in entries.items():
        short = name.rpartition(".")[2].removesuffix("_hash")
        if name.endswith("_hash"):
            text = str(value)[:8]
        elif isinstance(value, bool):
            text = "on" if value else "off"
        elif isinstance(value, list):
            text = " ".join(map(str, value)) if len(value) <= 4 else f"({len(value)})"
        else:
            text = f"{value:g}" if isinstance(value, float) else str(value)
        words.append(text if name == "data.name" else f"{short} {text}")
    return ", ".join(words)


def _flags(records: Sequence[Record]) -> list[str]:
    """In words: color alone would not reach everybody."""
    failed = sum(r.status != "done" for r in records)
    collapsed = sum(bool(r.overall.get("collapsed")) for r in records)
    flags = [
        f"{failed} of {len(records)} runs failed" if failed else "",
        ORACLE if any(r.tags.get("tuning") == "oracle" for r in records) else "",
        DIRTY if any(r.provenance.get("dirty") for r in records) else "",
        f"collapsed in {collapsed} of {len(records)} runs" if collapsed else "",
    ]
    return [flag for flag in flags if flag]


def principal_rows(setup: Setup) -> dict[str, int]:
    """By label; of several settings under one label, the one with most finished runs."""
    done = setup.runs.groupby("row")["done"].sum()
    ordered = sorted(setup.rows["label"].items(), key=lambda item: (done[item[0]], -item[0]))
    return {label: int(row) for row, label in ordered}
