"""Every table that the results of a store allow."""

from __future__ import annotations

from collections.abc import Sequence

from pandas import Series

from ..experiment.records import Record
from .across import scale_table, shift_table
from .palette import CORRUPTIONS
from .paper import NOTES, paper_mean, paper_value
from .setups import Setup
from .table import Column, Table, column_of, keys_of, ranked_column, seed_means, slug, table_of

# In the order of the benchmark: noise and blur are 1-7, weather and digital 8-15.
SPANS = {"1-7": CORRUPTIONS[:7], "8-15": CORRUPTIONS[7:], "1-15": CORRUPTIONS}


def tables_of(setups: Sequence[Setup]) -> list[Table]:
    """Suite by suite: label shift, groups of corruptions, domains, cost; then across suites."""
    made: list[Table | None] = []
    for suite in dict.fromkeys(s.suite for s in setups):
        mine = [s for s in setups if s.suite == suite]
        made.append(shift_table(mine))
        for setup in mine:
            made += [_span_table(setup), _domain_table(setup), _cost_table(setup)]
    made.append(scale_table(setups))
    tables = [table for table in made if table is not None]
    taken: set[str] = set()
    for table in tables:  # no two tables write the same file: `a/b` and `a-b` are one stem
        stem, number = table.name, 2
        while table.name in taken:
            table.name, number = f"{stem}-{number}", number + 1
        taken.add(table.name)
    return tables


def _accuracy_table(setup: Setup, columns: list[Column], kind: str, title: str) -> Table:
    return table_of(
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
        ranked_column(
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
        columns.append(ranked_column("average", rows, scores, paper, failed, long=mean))
    if setup.source is not None:
        by_seed = seed_means(scores)
        there = setup.source in by_seed.index
        gain = by_seed.sub(by_seed.loc[setup.source], level="seed") if there else by_seed.iloc[:0]
        base = paper_mean(*place, "source", setup.domains)
        beyond = [None if p is None or base is None else p - base for p in paper]
        look = {"kind": "points", "long": "average above source, in points"}
        columns.append(
            column_of("gain", rows, gain.dropna(), keys_of(scores), beyond, failed, **look)
        )
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
        columns.append(ranked_column(span, rows, scores, paper, setup.failed(), long=long))
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
    passes = column_of("passes", rows, ratio.iloc[:0], {}, None, failed, "text")
    passes.long = "forwards (F) and backwards (B) per batch"
    if "passes" in setup.results:
        known = setup.results["passes"].dropna().astype(str).groupby("row").unique()
        passes.cells["text"] = [" or ".join(sorted(known.get(row, []))) for row in rows.index]
    ms, memory = by_seed("seconds_per_batch", 1000.0), by_seed("peak_memory")
    stream = "inside the adapter, for the whole stream"
    against = "seconds per batch, against source"
    mib = {"kind": "bytes", "long": "peak of the process, in MiB"}
    columns = [
        column_of(
            "seconds", rows, by_seed("seconds"), keys, seconds, failed, "seconds", long=stream
        ),
        column_of("ms per batch", rows, ms, keys, None, failed, "milliseconds"),
        column_of("ratio", rows, ratio, keys, times, failed, "ratio", long=against),
        passes,
        column_of("memory", rows, memory, keys, None, failed, **mib),
    ]
    hardware = list(dict.fromkeys(map(_hardware, done["record"])))
    mixed = "Runs were made on different hardware or thread counts: compare seconds with care."
    return table_of(
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
