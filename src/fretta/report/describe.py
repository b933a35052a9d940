"""Settings and flags of runs in a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..experiment.records import Record, canonical

# What a reader must know before believing a number, and how the tables say it.
DIRTY = "uncommitted code"
ORACLE = "tuned on target labels"
COLLAPSED = "collapsed"


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}; empty tables vanish."""
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, inner in value.items():
            found |= flat(inner, f"{prefix}.{key}" if prefix else str(key))
        return found
    return {prefix: value}


def differing(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each, the entries that are not the same in all."""
    names = list(dict.fromkeys(name for run in runs for name in run))
    varied = [n for n in names if len({canonical(run.get(n)) for run in runs}) > 1]
    return [{n: run[n] for n in varied if run.get(n) is not None} for run in runs]


def text_of(entries: dict[str, Any]) -> str:
    return ", ".join(
        str(value)
        if name == "data.name"
        else f"{name.rpartition('.')[2].replace('_hash', '')} {_value(value, name)}"
        for name, value in entries.items()
    )


def _value(value: Any, name: str) -> str:
    if name.endswith("_hash"):
        return str(value)[:8]
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return " ".join(map(str, value)) if len(value) <= 4 else f"({len(value)})"
    return str(value)


def flags_of(records: Sequence[Record]) -> tuple[str, ...]:
    """In words: color alone would not reach everybody."""
    flags = []
    failed = sum(r.status != "done" for r in records)
    if failed:
        flags.append(f"{failed} of {len(records)} runs failed")
    if any(r.tags.get("tuning") == "oracle" for r in records):
        flags.append(ORACLE)
    if any(r.provenance.get("dirty") for r in records):
        flags.append(DIRTY)
    collapsed = sum(bool(r.overall.get("collapsed")) for r in records)
    if collapsed:
        flags.append(f"{COLLAPSED} in {collapsed} of {len(records)} runs")
    return tuple(flags)


def protocol_text(run: dict[str, Any], seeds: Sequence[int]) -> str:
    """One line below a table: the stream, the model, the seeds."""
    options = run.get("order_options") or {}
    limit = options.get("limit")
    parts = [
        f"{run.get('data', {}).get('name', 'data')} in order {run.get('order', 'continual')!r}",
        f"batches of {run['batch_size']}" if run.get("batch_size") else "",
        f"{limit} images per domain" if limit else "",
        str(run.get("model", {}).get("spec") or ""),
        f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {seeds[0]}",
    ]
    return "; ".join(filter(None, parts))
