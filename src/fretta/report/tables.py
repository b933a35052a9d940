"""Every table that the results of a store allow, as values; render.py writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from pandas import DataFrame, Series, concat

from ..experiment.records import Record, digest
from .palette import CORRUPTIONS
from .paper import NOTES, paper_mean, paper_value
from .setups import DIRTY, ORACLE, Setup
from .significance import Test, basis, rank
from .suites import ACROSS, label_order, suite_facts

# In the order of the benchmark: noise and blur are 1-7, weather and digital 8-15.
SPANS = {"1-7": CORRUPTIONS[:7], "8-15": CORRUPTIONS[7:], "1-15": CORRUPTIONS}
# Suites of the scalability table: how the paper calls the data, and how many domains it averages.
SCALED = {"vlcs": ("VLCS", 4), "domainnet": ("DomainNet", 6), "imagenetc": ("ImageNet-C", 15)}
ALL_DIRTY = "All runs come from uncommitted code: they cannot be traced to a commit."
SHARED = {DIRTY: ALL_DIRTY, ORACLE: "All settings were tuned on target labels (oracle)."}


@dataclass
class Column:
    """A column. `cells` have, for each row of the table: value and std over seeds (in the unit that
    a reader sees, NaN if there is none), n, mark, paper, text instead of a value, keys of the runs
    behind it, failed."""

    name: str
    cells: DataFrame
    kind: str = "percent"  # percent, points (signed), seconds, milliseconds, bytes, ratio, text
    group: str = ""  # spans neighbors of the same group
    long: str = ""  # in full, where the name is short
    tests: list[Test] = field(default_factory=list)  # behind the marks


@dataclass
class Table:
    """A table. `rows` have label, setting, flags and section; only rows of one section are
    compared with each other."""

    name: str  # stem of its files
    title: str
    rows: DataFrame
    columns: list[Column]
    suite: str
    heading: str  # title of the suite
    caption: str
    notes: list[str]

    @property
    def shared(self) -> list[str]:
        """Flags that all rows carry: the notes say them once, so that others stand out."""
        return [f for f in SHARED if len(self.rows) and all(f in x for x in self.rows["flags"])]

    @cached_property
    def lines(self) -> list[tuple[Any, list[Any]]]:
        """Each row with its cells."""
        columns = [list(column.cells.itertuples()) for column in self.columns]
        rows = enumerate(self.rows.itertuples())
        return [(row, [cells[number] for cells in columns]) for number, row in rows]

    @property
    def has_paper(self) -> bool:
        return any(column.cells["paper"].notna().any() for column in self.columns)


def tables_of(setups: Sequence[Setup]) -> list[Table]:
    """Suite by suite: label shift, groups of corruptions, domains, cost; then across suites."""
    made: list[Table | None] = []
    for suite in dict.fromkeys(s.suite for s in setups):
        mine = [s for s in setups if s.suite == suite]
        made.append(_shift_table(mine))
        for setup in mine:
            made += [_span_table(setup), _domain_table(setup), _cost_table(setup)]
    made.append(_scale_table(setups))
    tables = [table for table in made if table is not None]
    taken: set[str] = set()
    for table in tables:  # no two tables write the same file: `a/b` and `a-b` are one stem
        stem, number = table.name, 2
        while table.name in taken:
            table.name, number = f"{stem}-{number}", number + 1
        taken.add(table.name)
    return tables


def slug(*parts: str) -> str:
    """A file stem of any name: [a-z0-9-], never empty."""
    text = re.sub(r"[^a-z0-9]+", "-", "-".join(filter(None, parts)).lower()).strip("-")
    return text[:80].strip("-") or "table"


# ---- columns -------------------------------------------------------------------------------------


def _column(
    name: str,
    rows: DataFrame,
    by_seed: Series,
    keys: Mapping[int, list[str]],
    paper: Iterable[float | None] | None,
    failed: Series,
    kind: str = "percent",
    **more: Any,
) -> Column:
    """Mean and deviation over seeds of values indexed by (row, seed)."""
    factor = 100.0 if kind in ("percent", "points") else 1.0
    groups = (factor * by_seed).groupby("row")
    cells = DataFrame(
        {
            "value": groups.mean(),
            "std": groups.std(),
            "n": groups.size().reindex(rows.index, fill_value=0),
            "mark": "",
            "text": "",
            "paper": np.array([None] * len(rows) if paper is None else list(paper), dtype=float),
            "keys": [list(dict.fromkeys(keys.get(row, []))) for row in rows.index],
            "failed": failed,
        },
        index=rows.index,
    )
    return Column(name, cells, kind, **more)


def _ranked(
    name: str,
    rows: DataFrame,
    scores: DataFrame,
    paper: Iterable[float | None] | None,
    failed: Series,
    **more: Any,
) -> Column:
    """The mean over domains; the highest of each section is marked, and what ties with it."""
    column = _column(name, rows, _by_seed(scores), _keys(scores), paper, failed, **more)
    marks: dict[int, str] = {}
    sections = rows["section"].unique()
    for section in sections:
        mine = rows.index[rows["section"] == section]
        same = scores if len(sections) == 1 else scores[scores.index.isin(mine, level="row")]
        found, tests = rank(same)
        marks |= found
        column.tests += tests
    column.cells["mark"] = [marks.get(row, "") for row in rows.index]
    return column


def _keys(scores: DataFrame) -> dict[int, list[str]]:
    """The runs behind each row."""
    found: dict[int, list[str]] = {}
    for (row, *_), key in zip(scores.index.tolist(), scores["key"].tolist(), strict=True):
        found.setdefault(row, []).append(key)
    return found


def _by_seed(scores: DataFrame) -> Series:
    return scores["value"].groupby(["row", "seed"]).mean()


# ---- notes ---------------------------------------------------------------------------------------


def _table(
    name: str,
    title: str,
    rows: DataFrame,
    columns: list[Column],
    setup: Setup,
    caption: str,
    notes: Iterable[str],
) -> Table:
    table = Table(name, title, rows, columns, setup.suite, setup.heading, caption, [])
    below = [_mark_note(columns), *(SHARED[flag] for flag in table.shared), *notes]
    table.notes = [note for note in below if note]
    return table


def _mark_note(columns: Sequence[Column]) -> str:
    """What the marks mean, and which test decided on them."""
    seen = {mark for column in columns for mark in column.cells["mark"]}
    if "best" not in seen:
        return ""
    parts = [
        "Bold: the highest mean",
        "†: not distinguishable from it" if "tie" in seen else "",
        "‡: not tested against it, no seed in common" if "untested" in seen else "",
    ]
    tests = [test for column in columns for test in column.tests]
    stated = f" Each row is tested against the bold one, at 5 %: {basis(tests)}." if tests else ""
    return f"{'; '.join(filter(None, parts))}.{stated}"


def _paper_notes(setup: Setup) -> list[str]:
    """What to know before comparing with the paper."""
    limit = (setup.run.get("order_options") or {}).get("limit")
    if not setup.paper:
        return []
    short = f"Only {limit} images per domain: the paper used all, compare with care."
    return [short if limit else "", NOTES.get(setup.paper, "")]


def _protocol(setup: Setup) -> str:
    """The stream, the model, the seeds."""
    run, seeds = setup.run, setup.seeds
    limit = (run.get("order_options") or {}).get("limit")
    parts = [
        f"{setup.dataset or 'data'} in order {run.get('order', 'continual')!r}",
        f"batches of {run['batch_size']}" if run.get("batch_size") else "",
        f"{limit} images per domain" if limit else "",
        str(run.get("model", {}).get("spec") or ""),
        f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {seeds[0]}",
    ]
    return "; ".join(filter(None, parts))


# ---- one setup: domains, groups of corruptions, cost ---------------------------------------------


def _accuracy_table(setup: Setup, columns: list[Column], kind: str, title: str) -> Table:
    return _table(
        slug(setup.suite, setup.title, kind),
        f"{title}: {setup.title}",
        setup.rows,
        columns,
        setup,
        f"{setup.heading}. Accuracy in %, mean ± standard deviation over seeds."
        f" {_protocol(setup)}.",
        _paper_notes(setup),
    )


def _domain_table(setup: Setup) -> Table:
    """Accuracy per domain, the average, and the gain over source."""
    rows, labels = setup.rows, setup.rows["label"]
    place = (setup.paper, setup.dataset, setup.name)
    columns = [
        _ranked(
            domain,
            rows,
            setup.scores([domain]),
            [paper_value(*place, label, domain) for label in labels],
            setup.failed(setup.cases.get(domain)),
        )
        for domain in setup.domains
    ]
    scores, failed = setup.scores(setup.domains), setup.failed()
    paper = [paper_mean(*place, label, setup.domains) for label in labels]
    if len(setup.domains) > 1:
        mean = "mean over the domains"
        columns.append(_ranked("average", rows, scores, paper, failed, long=mean))
    if setup.source is not None:
        by_seed = _by_seed(scores)
        there = setup.source in by_seed.index
        gain = by_seed.sub(by_seed.loc[setup.source], level="seed") if there else by_seed.iloc[:0]
        base = paper_mean(*place, "source", setup.domains)
        beyond = [None if p is None or base is None else p - base for p in paper]
        look = {"kind": "points", "long": "average above source, in points"}
        columns.append(_column("gain", rows, gain.dropna(), _keys(scores), beyond, failed, **look))
    return _accuracy_table(setup, columns, "accuracy", "Accuracy per domain")


def _span_table(setup: Setup) -> Table | None:
    """The mean over the first seven corruptions, the other eight, and all."""
    if not set(CORRUPTIONS) <= set(setup.domains):
        return None
    rows, columns = setup.rows, []
    for span, names in SPANS.items():
        paper = [
            paper_value("IC", setup.dataset, setup.name, label, span) if setup.paper else None
            for label in rows["label"]
        ]
        long = f"mean over {names[0]} to {names[-1]}"
        scores = setup.scores(names)
        columns.append(_ranked(span, rows, scores, paper, setup.failed(), long=long))
    return _accuracy_table(setup, columns, "corruption", "Groups of corruptions")


def _cost_table(setup: Setup) -> Table | None:
    """Seconds, passes, memory, and the ratio to source."""
    done = setup.runs[setup.runs["done"]]
    if done.empty:
        return None
    rows, failed = setup.rows, setup.failed()
    keys = done.groupby("row")["key"].agg(list).to_dict()

    def by_seed(name: str, factor: float = 1.0) -> Series:
        """Of whole runs; where each case is a domain, the mean over the cases of a seed."""
        found = [r.overall.get(name, r.provenance.get(name)) for r in done["record"]]
        values = Series(found, index=[done["row"], done["seed"]], dtype=float).dropna()
        return factor * values.groupby(["row", "seed"]).mean()

    steps = by_seed("seconds_per_batch")
    ratio = steps.iloc[:0]
    if setup.source is not None and setup.source in steps.index:
        base = steps.loc[setup.source]
        ratio = steps.div(base[base > 0], level="seed").dropna()
    seconds = [_paper_seconds(setup, label) for label in rows["label"]]
    first = _paper_seconds(setup, "source")
    times = [None if s is None or not first else s / first for s in seconds]
    passes = _column("passes", rows, ratio.iloc[:0], {}, None, failed, "text")
    passes.long = "forwards (F) and backwards (B) per batch"
    if "passes" in setup.results:
        known = setup.results["passes"].dropna().astype(str).groupby("row").unique()
        passes.cells["text"] = [" or ".join(sorted(known.get(row, []))) for row in rows.index]
    ms, memory = by_seed("seconds_per_batch", 1000.0), by_seed("peak_memory")
    stream = "inside the adapter, for the whole stream"
    against = "seconds per batch, against source"
    mib = {"kind": "bytes", "long": "peak of the process, in MiB"}
    columns = [
        _column("seconds", rows, by_seed("seconds"), keys, seconds, failed, "seconds", long=stream),
        _column("ms per batch", rows, ms, keys, None, failed, "milliseconds"),
        _column("ratio", rows, ratio, keys, times, failed, "ratio", long=against),
        passes,
        _column("memory", rows, memory, keys, None, failed, **mib),
    ]
    hardware = list(dict.fromkeys(map(_hardware, done["record"])))
    mixed = "Runs were made on different hardware or thread counts: compare seconds with care."
    return _table(
        slug(setup.suite, setup.title, "cost"),
        f"Cost: {setup.title}",
        rows,
        columns,
        setup,
        f"{setup.heading}. Mean over seeds. On {'; '.join(hardware[:3])}. {_protocol(setup)}.",
        [mixed if len(hardware) > 1 else ""],
    )


def _paper_seconds(setup: Setup, label: str) -> float | None:
    if setup.paper != "Eff":
        return None
    return paper_value("Eff", "ImageNet-C/gaussian_noise", setup.name, label, "seconds")


def _hardware(record: Record) -> str:
    """Device and threads: what seconds depend on."""
    facts = record.provenance
    on_gpu = str(facts.get("device") or "").startswith("cuda")
    chip = facts.get("gpu") if on_gpu else facts.get("processor")
    threads = f"{facts['threads']} threads" if facts.get("threads") else ""
    return ", ".join(filter(None, [str(chip or "unknown hardware"), threads]))


# ---- several setups side by side: label shift, scalability ---------------------------------------


def _imbalance(setup: Setup) -> float | None:
    """The imbalance factor of a label-shifted stream."""
    for options in (setup.run.get("data") or {}, setup.run.get("order_options") or {}):
        if options.get("imbalance") is not None:
            return float(options["imbalance"])
    return None


def _merged_rows(
    parts: Sequence[DataFrame], suite: str, sections: Sequence[str] = ("",)
) -> tuple[DataFrame, list[dict[int, int]]]:
    """One row for those that agree in `same`, and for each part its old rows -> new rows."""
    groups = concat(parts).groupby("same", sort=False)
    rows = groups.first()
    rows["flags"] = groups["flags"].agg(lambda each: list(dict.fromkeys(chain(*each))))
    places = [(sections.index(r.section), label_order(suite, r.label)) for r in rows.itertuples()]
    rows = rows.iloc[sorted(range(len(rows)), key=places.__getitem__)]
    number = {same: i for i, same in enumerate(rows.index)}
    renamed = [{old: number[same] for old, same in part["same"].items()} for part in parts]
    return rows.reset_index(drop=True), renamed


def _shift_table(setups: Sequence[Setup]) -> Table | None:
    """Micro (over images) and macro (over classes) accuracy by imbalance factor, for one suite."""
    shifted = {f: s for s in setups if (f := _imbalance(s)) is not None}
    if len(shifted) < 2 or len(shifted) < sum(_imbalance(s) is not None for s in setups):
        return None  # one factor alone, or several protocols: the tables per domain show those
    shifted = dict(sorted(shifted.items()))
    first = next(iter(shifted.values()))
    parts = []
    for setup in shifted.values():
        runs = setup.runs.groupby("row")["record"].first()
        settings = [digest([r.run.get("hyperparameters"), r.run.get("adapter")]) for r in runs]
        parts.append(setup.rows.assign(same=setup.rows["label"] + " " + settings))
    rows, renamed = _merged_rows(parts, first.suite)
    failed = sum(
        s.failed().rename(new).reindex(rows.index, fill_value=0)
        for s, new in zip(shifted.values(), renamed, strict=True)
    )
    complete = all(set(CORRUPTIONS) <= set(s.domains) for s in shifted.values())

    def paper(column: str) -> list[float | None] | None:
        if not first.paper or not complete:
            return None
        place = (first.paper, first.dataset, "")
        return [paper_value(*place, la, f"imbalance_factor={column}") for la in rows["label"]]

    columns = []
    groups = {"accuracy": "over images (micro)", "accuracy_macro": "over classes (macro)"}
    for measure, group in groups.items():
        each = []
        for (factor, setup), new in zip(shifted.items(), renamed, strict=True):
            scores = setup.scores(setup.domains, measure).rename(index=new, level="row")
            printed = paper(f"{factor:g}") if measure == "accuracy" else None
            columns.append(_ranked(f"IF {factor:g}", rows, scores, printed, failed, group=group))
            each.append(scores.rename(index=lambda d, f=factor: f"{f:g} {d}", level="domain"))
        domains = sum(len(s.domains) for s in shifted.values())
        scores = concat(each)
        scores = scores[scores["value"].groupby(["row", "seed"]).transform("size") == domains]
        printed = paper("AVG") if measure == "accuracy" else None
        columns.append(_ranked("average", rows, scores, printed, failed, group=group))
    return _table(
        slug(first.suite, "label-shift"),
        "Label shift by imbalance factor",
        rows,
        columns,
        first,
        f"{first.heading}. Accuracy in %, mean ± standard deviation over seeds.",
        [NOTES.get(first.paper, "")],
    )


def principal_rows(setup: Setup) -> dict[str, int]:
    """By label; of several settings under one label, the one with most finished runs."""
    done = setup.runs.groupby("row")["done"].sum()
    ordered = sorted(setup.rows["label"].items(), key=lambda item: (done[item[0]], -item[0]))
    return {label: int(row) for row, label in ordered}


def _scale_table(setups: Sequence[Setup]) -> Table | None:
    """Average accuracy by backbone and data set."""
    chosen = [s for s in setups if s.suite in SCALED and s.source is not None and not s.note]
    if not chosen:
        return None
    parts = []
    for setup in chosen:
        rows = setup.rows.loc[list(principal_rows(setup).values())]
        same = setup.name + "/" + rows["label"]
        parts.append(rows.assign(setting="", section=setup.name, same=same))
    backbones = list(dict.fromkeys(s.name for s in chosen))
    rows, renamed = _merged_rows(parts, "vlcs", backbones)
    columns = []
    for suite, (title, domains) in SCALED.items():
        pairs = [(s, new) for s, new in zip(chosen, renamed, strict=True) if s.suite == suite]
        if not pairs:
            continue
        found = []
        for setup, new in pairs:
            scores = setup.scores(setup.domains)
            mine = scores.index.isin(list(new), level="row")
            found.append(scores[mine].rename(index=new, level="row"))
        failed = concat([s.failed().loc[list(new)].rename(new) for s, new in pairs])
        complete = {s.name for s, _ in pairs if len(s.domains) >= domains}
        paper = [
            paper_value("Scalability", suite, row.section, row.label, "average")
            if row.section in complete  # the paper averages over all domains
            else None
            for row in rows.itertuples()
        ]
        failed = failed.reindex(rows.index, fill_value=0)
        long = suite_facts(suite).title
        columns.append(_ranked(title, rows, concat(found), paper, failed, long=long))
    table = _table(
        "scalability",
        "Scalability: backbones and data sets",
        rows,
        columns,
        chosen[0],
        "Mean accuracy over the domains in %, mean ± standard deviation over seeds. Where a label"
        " has several settings, the one with most runs.",
        [NOTES["DomainNet"] if any(s.suite == "domainnet" for s in chosen) else ""],
    )
    table.suite, table.heading = ACROSS, suite_facts(ACROSS).title
    return table
