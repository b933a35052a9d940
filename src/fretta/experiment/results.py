"""Records to rows: filter, aggregate, export. Imports no torch."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, FrettaWarning, MissingExtraError
from .records import Record, digest
from .store import Store

if TYPE_CHECKING:
    from pandas import DataFrame

FORMATS = ("table", "csv", "json", "parquet")
LEVELS = ("methods", "runs", "domains")


def select(
    records: Iterable[Record],
    suite: str | None = None,
    case: str | None = None,
    method: str | None = None,
    status: str | None = None,
    keys: set[str] | None = None,
) -> list[Record]:
    """The records that match everything asked for; a method by its name or its label.

    One that several suites share comes once for each.
    """
    return [
        r
        for record in records
        for r in record.in_suites()
        if (suite is None or r.tags.get("suite") == suite)
        and (case is None or r.tags.get("case") == case)
        and (method is None or method in (r.run["method"], r.tags.get("label")))
        and (status is None or r.status == status)
        and (keys is None or r.key in keys)
    ]


def _identity(record: Record) -> dict[str, Any]:
    return {
        "suite": record.tags.get("suite"),
        "case": record.tags.get("case"),
        "method": record.tags.get("label") or record.run["method"],
    }


def _setting(run: dict[str, Any]) -> str:
    """What tells runs of one label apart: hyper-parameters, order, images, model."""
    parts = {
        **run.get("hyperparameters", {}),
        **run.get("order_options", {}),
        **run.get("adapter", {}),
    }
    text = " ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in parts.items())
    order = run.get("order", "continual")
    return " ".join(filter(None, ["" if order == "continual" else order, text]))


def _group(record: Record) -> str:
    """Everything that decides the number but the seed: only such runs may be averaged."""
    return digest({k: v for k, v in record.run.items() if k != "seed"})


def _flags(record: Record) -> dict[str, Any]:
    return {"tuning": record.tags.get("tuning"), "dirty": record.provenance.get("dirty")}


def by_run(records: Iterable[Record]) -> list[dict[str, Any]]:
    """One row per run."""
    rows = []
    for r in records:
        done = r.overall
        rows.append(
            {
                **_identity(r),
                "setting": _setting(r.run),
                "seed": r.run["seed"],
                "status": r.status,
                "accuracy": done.get("mean_over_domains"),
                "accuracy_micro": done.get("accuracy"),
                "accuracy_macro": done.get("accuracy_macro"),
                "ece": done.get("ece"),
                "nll": done.get("nll"),
                "seconds_per_batch": done.get("seconds_per_batch"),
                "peak_memory": r.provenance.get("peak_memory"),
                "collapsed": done.get("collapsed"),
                **_flags(r),
                "key": r.key,
            }
        )
    return rows


def by_domain(records: Iterable[Record]) -> list[dict[str, Any]]:
    """One row per run and domain."""
    return [
        {**_identity(r), "seed": r.run["seed"], **row, **_flags(r), "key": r.key}
        for r in records
        for row in r.rows
    ]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; the latter is None for a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def by_method(records: Iterable[Record]) -> list[dict[str, Any]]:
    """One row per suite, case and method: mean and deviation over seeds, best first."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for r in records:
        groups.setdefault((*_identity(r).values(), _group(r)), []).append(r)
    rows = []
    for members in groups.values():
        done = [r for r in members if r.status == "done"]
        row: dict[str, Any] = {**_identity(members[0]), "setting": _setting(members[0].run)}
        row["seeds"] = len(done)
        row["failed"] = len(members) - len(done)
        row["accuracy"], row["deviation"] = (
            mean_and_deviation([r.overall["mean_over_domains"] for r in done])
            if done
            else (None, None)
        )
        for name in ("accuracy_macro", "ece", "seconds_per_batch"):
            values = [r.overall[name] for r in done if r.overall.get(name) is not None]
            row[name] = mean_and_deviation(values)[0] if values else None
        row["collapsed"] = sum(bool(r.overall.get("collapsed")) for r in done)
        row["tuning"] = members[0].tags.get("tuning")
        row["dirty"] = any(r.provenance.get("dirty") for r in members)
        rows.append(row)
    return sorted(
        rows,
        key=lambda r: (str(r["suite"]), str(r["case"]), -(r["accuracy"] or 0), str(r["method"])),
    )


def rows_of(records: Iterable[Record], level: str) -> list[dict[str, Any]]:
    makers = {"methods": by_method, "runs": by_run, "domains": by_domain}
    if level not in makers:
        raise ConfigError(f"level {level!r} is unknown; choose from {', '.join(LEVELS)}")
    return makers[level](records)


def load_results(store: str | os.PathLike[str], level: str = "domains") -> DataFrame:
    """What a store holds as a pandas DataFrame; damaged records are left out with a warning.

    level   a row for each "domains" of each run, for each of the "runs", or for the "methods"
    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise MissingExtraError("pandas", "report", "load_results") from error
    damaged: list[str] = []
    records = select(Store(store).records(damaged))
    for message in damaged:
        warnings.warn(message, FrettaWarning, stacklevel=2)
    return pandas.DataFrame(rows_of(records, level))


# ---- export --------------------------------------------------------------------------------------


def export(rows: list[dict[str, Any]], form: str, path: Path | None) -> str | None:
    """The rows as text, or into a file; a value we do not have is empty (null), never a number."""
    if form == "parquet":
        if path is None:
            raise ConfigError("parquet is binary: say where to write it, --out FILE.parquet")
        _parquet(rows, path)
        return None
    text = _csv(rows) if form == "csv" else json.dumps(rows, indent=1)
    if path is None:
        return text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return None


def _csv(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _parquet(rows: list[dict[str, Any]], path: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyarrow", "parquet", "a parquet file") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
