"""Tables that put several setups side by side: label shift, and scalability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..members import Member, Setup
from ..paper import NOTES, paper_value
from ..shipped import ACROSS, label_order, suite_facts
from ..significance import Ranking, Series, mean_of
from .domains import corrupted, with_mark
from .notes import mark_note, shared_flags
from .table import Column, Row, Table, cell_of, marked, slug

DOMAINS = {"vlcs": 4, "domainnet": 6, "imagenetc": 15}
SCALABLE = tuple(DOMAINS)


def imbalance(setup: Setup) -> float | None:
    """The imbalance factor of a label-shifted stream."""
    for options in (setup.run.get("data") or {}, setup.run.get("order_options") or {}):
        if options.get("imbalance") is not None:
            return float(options["imbalance"])
    return None


def shift_table(setups: Sequence[Setup]) -> Table | None:
    """Micro (over images) and macro (over classes) accuracy by imbalance factor, for one suite."""
    shifted = sorted(
        ((f, s) for s in setups if (f := imbalance(s)) is not None), key=lambda pair: pair[0]
    )
    factors = [f for f, _ in shifted]
    if len(set(factors)) < 2 or len(set(factors)) < len(factors):
        return None  # one factor alone, or several protocols: the tables per domain show those
    suite, first = shifted[0][1].suite, shifted[0][1]
    comparable = bool(first.paper) and all(corrupted(s) for _, s in shifted)
    columns = [
        Column(name, group=group)
        for group in ("over images (micro)", "over classes (macro)")
        for name in (*(f"IF {f:g}" for f in factors), "average")
    ]
    members: dict[str, dict[float, Member]] = {}
    for factor, setup in shifted:
        for member in setup.members:
            members.setdefault(member.settings_digest, {})[factor] = member
    order = sorted(
        members.values(), key=lambda found: label_order(suite, next(iter(found.values())).label)
    )
    series, cells = [], []
    for found in order:
        label = next(iter(found.values())).label
        failed = sum(len(m.failed()) for m in found.values())
        values: list[Series] = []
        for measure in ("accuracy", "accuracy_macro"):
            each = [
                found[f].mean(setup.domains, measure) if f in found else {} for f, setup in shifted
            ]
            values += [*each, mean_of(each)]
        series.append(values)
        names = [*(f"imbalance_factor={f:g}" for f in factors), "imbalance_factor=AVG"]
        printed = [
            paper_value(first.paper, first.dataset, "", label, n) if comparable else None
            for n in names
        ] + [None] * len(names)
        cells.append(
            [cell_of(v, "percent", p, failed) for v, p in zip(values, printed, strict=True)]
        )
    marks, rankings = marked(columns, series)
    rows = tuple(
        [
            Row(
                member.label,
                tuple(with_mark(c, k) for c, k in zip(row, row_marks, strict=True)),
                member.setting,
                tuple(dict.fromkeys(f for m in found.values() for f in m.flags)),
                method=member.method,
            )
            for found, row, row_marks in zip(order, cells, marks, strict=True)
            for member in [next(iter(found.values()))]
        ]
    )
    shared, told = shared_flags(rows)
    notes = (mark_note(rankings), *told, NOTES.get(first.paper, ""))
    return Table(
        slug(suite, "label-shift"),
        "Label shift by imbalance factor",
        tuple(columns),
        rows,
        suite,
        first.heading,
        f"{first.heading}. Accuracy in %, mean ± standard deviation over seeds.",
        tuple(filter(None, notes)),
        shared,
    )


def scale_table(setups: Sequence[Setup]) -> Table | None:
    """Average accuracy by backbone and data set, of the methods the paper shows and all others."""
    chosen = [s for s in setups if s.suite in SCALABLE and s.source is not None and not s.note]
    names = [n for n in SCALABLE if any(s.suite == n for s in chosen)]
    if not chosen:
        return None
    columns = [Column(_data_name(n), long=suite_facts(n).title) for n in names]
    rows: list[Row] = []
    rankings: list[Ranking] = []
    for backbone in dict.fromkeys(s.name for s in chosen):
        here = {s.suite: s for s in chosen if s.name == backbone}
        labels = sorted(
            {m.label for s in here.values() for m in s.members},
            key=lambda label: label_order("vlcs", label),
        )
        series: list[list[Series]] = []
        for label in labels:
            series.append(
                [m.mean(here[n].domains) if (m := _pick(here, n, label)) else {} for n in names]
            )
        marks, found = marked(columns, series)
        rankings += found
        for label, values, row_marks in zip(labels, series, marks, strict=True):
            members = [m for n in names if (m := _pick(here, n, label))]
            cells = tuple(
                with_mark(
                    cell_of(
                        v,
                        "percent",
                        _paper(here.get(n), n, backbone, label),
                        len(m.failed()) if (m := _pick(here, n, label)) else 0,
                    ),
                    mark,
                )
                for v, n, mark in zip(values, names, row_marks, strict=True)
            )
            flags = tuple(dict.fromkeys(f for m in members for f in m.flags))
            rows.append(Row(label, cells, "", flags, backbone, members[0].method))
    shared, told = shared_flags(rows)
    domainnet = NOTES["DomainNet"] if "domainnet" in names else ""
    return Table(
        "scalability",
        "Scalability: backbones and data sets",
        tuple(columns),
        tuple(rows),
        ACROSS,
        suite_facts(ACROSS).title,
        "Mean accuracy over the domains in %, mean ± standard deviation over seeds. Where a label "
        "has several settings, the one with most runs.",
        tuple(filter(None, (mark_note(rankings), *told, domainnet))),
        shared,
    )


def principal(setup: Setup, label: str) -> Member | None:
    """Of several settings under one label, the one with most runs."""
    same = [m for m in setup.members if m.label == label]
    return max(same, key=lambda m: len(m.done), default=None)


def _pick(here: Mapping[str, Setup], suite: str, label: str) -> Member | None:
    return principal(here[suite], label) if suite in here else None


def _paper(setup: Setup | None, suite: str, backbone: str, label: str) -> float | None:
    """The paper averages over all domains; so must we, to be compared."""
    if setup is None or len(setup.domains) < DOMAINS[suite]:
        return None
    return paper_value("Scalability", suite, backbone, label, "average")


def _data_name(suite: str) -> str:
    return {"vlcs": "VLCS", "domainnet": "DomainNet", "imagenetc": "ImageNet-C"}[suite]
