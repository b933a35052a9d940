"""What adapting costs: seconds, passes, memory, and the ratio to source."""

from __future__ import annotations

from ..describe import protocol_text
from ..members import Member, Setup
from ..paper import paper_value
from ..significance import Sample, Series
from .notes import shared_flags
from .table import Cell, Column, Row, Table, cell_of, slug

COLUMNS = (
    Column("seconds", "seconds", ranked=False, long="inside the adapter, for the whole stream"),
    Column("ms per batch", "milliseconds", ranked=False),
    Column("ratio", "ratio", ranked=False, long="seconds per batch, against source"),
    Column("passes", "text", ranked=False, long="forwards (F) and backwards (B) per batch"),
    Column("memory", "bytes", ranked=False, long="peak of the process, in MiB"),
)
PAPER_DATA = "ImageNet-C/gaussian_noise"


def _of(member: Member, name: str, factor: float = 1.0) -> Series:
    """A measure of whole runs; where each case is a domain, the mean over the cases of a seed."""
    by_seed: dict[int, list[tuple[float, str]]] = {}
    for record in member.done:
        value = record.overall.get(name, record.provenance.get(name))
        if value is not None:
            by_seed.setdefault(record.run["seed"], []).append((factor * value, record.key))
    return {
        seed: Sample(sum(v for v, _ in pairs) / len(pairs), tuple(k for _, k in pairs))
        for seed, pairs in by_seed.items()
    }


def _ratio(mine: Series, base: Series) -> Series:
    return {
        s: Sample(mine[s].value / base[s].value, mine[s].keys)
        for s in mine
        if s in base and base[s].value > 0
    }


def cost_table(setup: Setup) -> Table:
    source = setup.source
    base = _of(source, "seconds_per_batch") if source else {}
    rows = []
    for member in setup.members:
        seconds = _paper(setup, member.label)
        paper = {"seconds": seconds, "ratio": _quotient(seconds, _paper(setup, "source"))}
        found = {
            "seconds": _of(member, "seconds"),
            "ms per batch": _of(member, "seconds_per_batch", 1000.0),
            "ratio": _ratio(_of(member, "seconds_per_batch"), base),
            "memory": _of(member, "peak_memory"),
        }
        failed = len(member.failed())
        cells = tuple(
            Cell(text=_passes(member), failed=failed)
            if c.kind == "text"
            else cell_of(found[c.name], c.kind, paper.get(c.name), failed)
            for c in COLUMNS
        )
        rows.append(Row(member.label, cells, member.setting, member.flags, method=member.method))
    shared, notes = shared_flags(rows)
    return Table(
        slug(setup.suite, setup.title, "cost"),
        f"Cost: {setup.title}",
        COLUMNS,
        tuple(rows),
        setup.suite,
        setup.heading,
        f"{setup.heading}. Mean over seeds. {_machines(setup)} "
        f"{protocol_text(setup.run, setup.seeds)}.",
        (*notes, *_warnings(setup)),
        shared,
    )


def _paper(setup: Setup, label: str) -> float | None:
    if setup.paper != "Eff":
        return None
    return paper_value("Eff", PAPER_DATA, setup.name, label, "seconds")


def _quotient(mine: float | None, base: float | None) -> float | None:
    return mine / base if mine is not None and base else None


def _passes(member: Member) -> str:
    found = {str(row["passes"]) for r in member.done for row in r.rows if row.get("passes")}
    return " or ".join(sorted(found))


def _hardware(setup: Setup) -> list[str]:
    """Device, processor and threads: what seconds depend on."""
    found = []
    for record in (r for m in setup.members for r in m.done):
        facts = record.provenance
        device = str(facts.get("device") or "")
        chip = facts.get("gpu") if device.startswith("cuda") else facts.get("processor")
        threads = f"{facts['threads']} threads" if facts.get("threads") else ""
        found.append(", ".join(filter(None, [str(chip or "unknown hardware"), threads])))
    return list(dict.fromkeys(found))


def _machines(setup: Setup) -> str:
    hardware = _hardware(setup)
    return f"On {'; '.join(hardware[:3])}." if hardware else ""


def _warnings(setup: Setup) -> list[str]:
    if len(_hardware(setup)) < 2:
        return []
    return ["Runs were made on different hardware or thread counts: compare seconds with care."]
