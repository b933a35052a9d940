"""Records put together: a setup is one stream and one model, its members are the methods on it.

Only runs that differ in nothing but the seed are averaged, and only members of one setup are
compared: with equal seeds they saw the same batches. In suites that leave one domain out (cases
`resnet18/sketch`, …) each case is one domain, and the cases of a backbone and a data set make one
setup.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..experiment.records import Record, digest
from .describe import differing, flags_of, flat, text_of
from .members import Batches, Member, Setup, no_batches
from .shipped import label_order, suite_facts, suite_order, suite_title

# Of a run: what makes the stream, what makes the model; the rest is the method.
PROTOCOL = ("order", "order_options", "batch_size")
SUBJECT = ("data", "data_hash", "model", "weights_hash")


def setups_of(records: Iterable[Record], batches: Batches = no_batches) -> list[Setup]:
    """All setups, suite by suite; `batches` looks up those of a run, for tests in pairs."""
    suites: dict[str, list[Record]] = {}
    for record in records:
        suites.setdefault(str(record.tags.get("suite") or ""), []).append(record)
    names = sorted(suites, key=suite_order)
    made = [setup for name in names for setup in _of_suite(name, suites[name])]
    for member in (m for setup in made for m in setup.members):
        member.batches = batches
    return made


def _case(record: Record) -> str:
    return str(record.tags.get("case") or record.run.get("data", {}).get("name") or "")


def _of_suite(suite: str, records: list[Record]) -> list[Setup]:
    one_each = all("/" in _case(r) and len(r.rows) <= 1 for r in records)
    piles: dict[tuple[str, str], list[Record]] = {}
    variants = _variants(records)
    for record in records:
        run = record.run
        protocol = {k: run.get(k) for k in PROTOCOL}
        name = _case(record).split("/", 1)[0] if one_each else _case(record)
        rest = [variants[_subject(record)], _kind(record)] if one_each else _subject(record)
        piles.setdefault((name, digest([protocol, rest])), []).append(record)
    order = {case: i for i, case in enumerate(suite_facts(suite).cases)}
    made = [_setup(suite, name, pile, one_each, order) for (name, _), pile in piles.items()]
    _tell_apart(made)
    return sorted(
        made,
        key=lambda s: (
            min((order.get(c, 999) for m in s.members for c in m.runs), default=999),
            s.name,
            -len(s.members),
            s.note,
        ),
    )


def _subject(record: Record) -> str:
    return digest([_case(record), *(record.run.get(k) for k in SUBJECT)])


def _kind(record: Record) -> str:
    """What the cases of one setup have in common where each is a domain: data set and model."""
    data = {k: v for k, v in (record.run.get("data") or {}).items() if k != "domains"}
    return digest([data, record.run.get("model")])


def _variants(records: list[Record]) -> dict[str, int]:
    """Where weights or data of a case changed, newest first: the first of each belong together."""
    newest: dict[str, dict[str, float]] = {}
    for record in records:
        times = newest.setdefault(_case(record), {})
        time = float(record.provenance.get("finished") or 0)
        subject = _subject(record)
        times[subject] = max(time, times.get(subject, 0.0))
    return {
        subject: number
        for times in newest.values()
        for number, subject in enumerate(sorted(times, key=lambda s: -times[s]))
    }


def _setup(
    suite: str, name: str, records: list[Record], one_each: bool, order: dict[str, int]
) -> Setup:
    members: dict[str, Member] = {}
    records = sorted(records, key=lambda r: (order.get(_case(r), 999), _case(r), r.run["seed"]))
    domains: dict[str, str] = {}
    for record in records:
        label = str(record.tags.get("label") or record.run["method"])
        rest = {k: v for k, v in record.run.items() if k not in (*SUBJECT, "seed")}
        if one_each:  # source images differ from case to case
            rest = {k: v for k, v in rest.items() if k not in ("source", "source_hash")}
        member = members.setdefault(digest([label, rest]), Member(label, record.run["method"], {}))
        member.runs.setdefault(_case(record), {})[record.run["seed"]] = record
        for row in record.rows:
            domains.setdefault(str(row.get("domain")), _case(record))
    if one_each:  # a case all of whose runs failed still has its column
        for case in dict.fromkeys(_case(r) for r in records):
            if case not in domains.values():
                domains[case.split("/", 1)[1]] = case
    ordered = sorted(members.values(), key=lambda m: label_order(suite, m.label))
    for member in ordered:
        member.flags = flags_of(member.records)
    _name_settings(ordered)
    cases = domains if one_each else {}
    heading = suite_title(suite, records)
    return Setup(suite, heading, name, ordered, list(domains), cases, records[0].run)


def _name_settings(members: list[Member]) -> None:
    """What differs between members of one label; own settings of one that carries no label."""
    by_label: dict[str, list[Member]] = {}
    for member in members:
        by_label.setdefault(member.label, []).append(member)
    for same in by_label.values():
        known = (*SUBJECT, *PROTOCOL, "seed", "method")  # the same in all of a table
        runs = [flat({k: v for k, v in m.records[0].run.items() if k not in known}) for m in same]
        for member, run, differs in zip(same, runs, differing(runs), strict=True):
            own = run if member.label == member.method else {}
            shown = {k: v for k, v in own.items() if k.startswith(("hyperparameters", "adapter"))}
            member.setting = text_of({**shown, **differs})


def _tell_apart(setups: list[Setup]) -> None:
    """Name what differs between setups of one name, of what all runs of each have in common."""
    by_name: dict[str, list[Setup]] = {}
    for setup in setups:
        by_name.setdefault(setup.name, []).append(setup)
    for same in (found for found in by_name.values() if len(found) > 1):
        runs = [[_circumstances(r) for m in s.members for r in m.records] for s in same]
        mixed = {name for each in runs for differs in differing(each) for name in differs}
        common = [{k: v for k, v in each[0].items() if k not in mixed} for each in runs]
        differences = differing(common)
        rest = "all images" if any("order_options.limit" in d for d in differences) else "default"
        texts = [text_of(d) or (rest if any(differences) else "") for d in differences]
        notes = [
            "; ".join(filter(None, [text, _domains(s, same)]))
            for s, text in zip(same, texts, strict=True)
        ]
        for number, (setup, note) in enumerate(zip(same, notes, strict=True)):
            again = notes[:number].count(note)
            setup.note = f"{note} ({again + 1})" if again else note


def _domains(setup: Setup, others: list[Setup]) -> str:
    """Which domains a mean is over, where each is a case and other tables have others."""
    if not setup.cases or all(set(s.domains) == set(setup.domains) for s in others):
        return ""
    return ", ".join(setup.domains) if len(setup.domains) <= 4 else f"{len(setup.domains)} domains"


def _circumstances(record: Record) -> dict[str, Any]:
    return flat({k: record.run.get(k) for k in (*PROTOCOL, *SUBJECT)})
