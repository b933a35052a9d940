"""Records as tables: a row per run and domain, per run, or per method. Imports no torch."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, FrettaWarning, MissingExtraError, StoreError
from .records import Record, digest
from .store import Store

if TYPE_CHECKING:
    from pandas import DataFrame

FORMATS = ("table", "csv", "json", "parquet")
LEVELS = ("methods", "runs", "domains")
# Of a run: what decides which images come in which order through which model.
SETUP = ("data", "data_hash", "model", "weights_hash", "order", "order_options", "batch_size")
# Averaged over the runs of a method.
AVERAGED = ("accuracy", "accuracy_macro", "ece", "seconds_per_batch")


def setup_of(run: dict[str, Any]) -> str:
    """Runs with the same setup can be compared: with equal seeds they saw the same batches."""
    return digest({k: run.get(k) for k in SETUP})


def config_of(run: dict[str, Any], *ignored: str) -> str:
    """The method and its settings. Only runs of one setup and config may be averaged."""
    return digest({k: v for k, v in run.items() if k not in (*SETUP, "seed", *ignored)})


def select(
    records: Iterable[Record],
    suite: str | None = None,
    case: str | None = None,
    method: str | None = None,
    status: str | None = None,
    keys: set[str] | None = None,
) -> list[Record]:
    """The records that match every filter given; a method by its name or its label.

    A record that several suites share comes once for each.
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


def load_results(store: str | os.PathLike[str], level: str = "domains") -> DataFrame:
    """The results of a store as a pandas DataFrame.

    A damaged file is skipped with a warning; a damaged line of a packed store is an error, which
    names it.

    level   a row for each of the "domains" of each run, for each of the "runs", or of the "methods"
    """
    damaged: list[str] = []
    opened = Store(store)
    if opened.local is not None and not opened.local.is_dir():
        raise StoreError(f"there is no store {opened.where!r}; `fretta run` makes one")
    records = select(opened.records(damaged))
    for message in damaged:
        warnings.warn(message, FrettaWarning, stacklevel=2)
    return results_table(records, level)


def results_table(records: Iterable[Record], level: str = "domains") -> DataFrame:
    """The records as a DataFrame, at one of the `LEVELS`."""
    if level not in LEVELS:
        raise ConfigError(f"level {level!r} is unknown; choose from {', '.join(LEVELS)}")
    from pandas import DataFrame

    if level == "domains":
        return DataFrame(
            [
                {**_about(r), "seed": r.run["seed"], **row, **_origin(r)}
                for r in records
                for row in r.rows
            ]
        )
    runs = DataFrame([_run_row(r) for r in records])
    return runs if level == "runs" or runs.empty else _by_method(runs)


def rows_of(records: Iterable[Record], level: str) -> list[dict[str, Any]]:
    """The same as plain dictionaries, with None for what is missing."""
    table = results_table(records, level).astype(object)
    rows: list[dict[str, Any]] = table.where(table.notna(), None).to_dict("records")
    return rows


def _about(record: Record) -> dict[str, Any]:
    return {
        "suite": record.tags.get("suite"),
        "case": record.tags.get("case"),
        "method": record.tags.get("label") or record.run["method"],
    }


def _origin(record: Record) -> dict[str, Any]:
    return {
        "tuning": record.tags.get("tuning"),
        "dirty": record.provenance.get("dirty"),
        "setup": setup_of(record.run)[:12],
        "config": config_of(record.run)[:12],
        "key": record.key,
    }


def _setting(run: dict[str, Any]) -> str:
    """Hyper-parameters, order and adapter options in a few words."""
    parts = {
        **run.get("hyperparameters", {}),
        **run.get("order_options", {}),
        **run.get("adapter", {}),
    }
    text = " ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in parts.items())
    order = run.get("order", "continual")
    return " ".join(filter(None, ["" if order == "continual" else order, text]))


def _run_row(record: Record) -> dict[str, Any]:
    overall = record.overall
    measures = ("accuracy_macro", "ece", "nll", "seconds_per_batch")
    return {
        **_about(record),
        "setting": _setting(record.run),
        "seed": record.run["seed"],
        "status": record.status,
        "accuracy": overall.get("mean_over_domains"),
        "accuracy_micro": overall.get("accuracy"),
        **{name: overall.get(name) for name in measures},
        "peak_memory": record.provenance.get("peak_memory"),
        "collapsed": overall.get("collapsed"),
        **_origin(record),
    }


def _by_method(runs: DataFrame) -> DataFrame:
    """One row per suite, case, method and settings: mean and deviation over seeds, best first."""
    runs = runs.astype(dict.fromkeys(AVERAGED, float))
    runs["done"] = runs.status == "done"
    groups = runs.groupby(["suite", "case", "method", "setup", "config"], dropna=False)
    table = groups.agg(
        setting=("setting", "first"),
        seeds=("done", "sum"),
        failed=("done", lambda done: (~done).sum()),
        accuracy=("accuracy", "mean"),
        deviation=("accuracy", "std"),
        **{name: (name, "mean") for name in AVERAGED[1:]},
        collapsed=("collapsed", lambda found: found.eq(True).sum()),
        tuning=("tuning", "first"),
        dirty=("dirty", lambda found: found.eq(True).any()),
    )
    order = ["suite", "case", "accuracy", "method"]
    return (
        table.reset_index()
        .sort_values(order, ascending=[True, True, False, True], kind="stable", ignore_index=True)
        .drop(columns=["setup", "config"])
    )


def export(rows: list[dict[str, Any]], form: str, path: Path | None) -> str | None:
    """The rows as text, or into a file; a missing value is empty (null), never a number."""
    from pandas import DataFrame

    if form == "parquet" and path is None:
        raise ConfigError("parquet is binary: say where to write it, --out FILE.parquet")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    if form == "parquet":
        try:
            DataFrame(rows).to_parquet(path, index=False)
        except ImportError as error:
            raise MissingExtraError("pyarrow", "parquet", "a parquet file") from error
        return None
    if form == "csv":
        text: str = DataFrame(rows).astype(object).to_csv(index=False, lineterminator="\n")
    else:
        text = json.dumps(rows, indent=1)
    if path is None:
        return text
    path.write_text(text, encoding="utf-8")
    return None
