"""Tables with several setups side by side: label shift, scalability."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from pandas import DataFrame, concat

from ..experiment.records import digest
from .palette import CORRUPTIONS
from .paper import NOTES, paper_value
from .setups import Setup, principal_rows
from .suites import ACROSS, label_order, suite_facts
from .table import Table, ranked_column, slug, table_of

# Suites of the scalability table: how the paper calls the data, and how many domains it averages.
SCALED = {"vlcs": ("VLCS", 4), "domainnet": ("DomainNet", 6), "imagenetc": ("ImageNet-C", 15)}


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


def shift_table(setups: Sequence[Setup]) -> Table | None:
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
            columns.append(
                ranked_column(f"IF {factor:g}", rows, scores, printed, failed, group=group)
            )
            each.append(scores.rename(index=lambda d, f=factor: f"{f:g} {d}", level="domain"))
        domains = sum(len(s.domains) for s in shifted.values())
        scores = concat(each)
        scores = scores[scores["value"].groupby(["row", "seed"]).transform("size") == domains]
        printed = paper("AVG") if measure == "accuracy" else None
        columns.append(ranked_column("average", rows, scores, printed, failed, group=group))
    return table_of(
        slug(first.suite, "label-shift"),
        "Label shift by imbalance factor",
        rows,
        columns,
        first,
        f"{first.heading}. Accuracy in %, mean ± standard deviation over seeds.",
        [NOTES.get(first.paper, "")],
    )


def scale_table(setups: Sequence[Setup]) -> Table | None:
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
        columns.append(ranked_column(title, rows, concat(found), paper, failed, long=long))
    table = table_of(
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
