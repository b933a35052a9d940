"""The command that repeats a run."""

from __future__ import annotations

import shlex
from typing import Any

from ..experiment.records import Record
from .suites import suite_facts


def command(record: Record) -> str:
    """Everything but the seed, into another store, so that what is there stays for comparison."""
    suite = str(record.tags.get("suite") or "")
    base, trial, _ = suite.partition("/tune")
    if trial:
        rule = record.tags.get("tuning") or "RULE"
        return _join(
            *("fretta", "tune", _file(base)),
            *_option("--method", record.run["method"]),
            *_option("--rule", rule),
            *("--store", "again"),
        )
    if not suite or suite == "evaluate":
        return _evaluate(record)
    limit = (record.run.get("order_options") or {}).get("limit")
    return _join(
        *("fretta", "run", _file(suite)),
        *_option("--case", record.tags.get("case")),
        *_option("--method", record.tags.get("label") or record.run["method"]),
        *_option("--limit", limit),
        *("--store", "again"),
    )


def needs(record: Record) -> str:
    """What must be at hand besides."""
    data = (record.run.get("data") or {}).get("name")
    parts = []
    if data != "digits":
        parts.append(f"FRETTA_DATA set to the folder that holds {data}")
    suite = str(record.tags.get("suite") or "").partition("/tune")[0]
    if suite and suite != "evaluate" and not suite_facts(suite).shipped:
        parts.append(f"the suite file {suite}.toml")
    weights = record.run.get("weights_hash")
    if weights and data != "digits":
        parts.append(f"the weights with SHA-256 {str(weights)[:16]}…")
    return "; ".join(parts)


def _file(suite: str) -> str:
    return suite if suite_facts(suite).shipped else f"{suite}.toml"


def _option(name: str, value: Any) -> list[str]:
    if value is None or value == "":
        return []
    text = str(value)
    return [f"{name}={text}"] if text.startswith("-") else [name, text]


def _join(*words: str) -> str:
    return shlex.join(words)


def _evaluate(record: Record) -> str:
    run = record.run
    data, model, options = (run.get(k) or {} for k in ("data", "model", "order_options"))
    spec = str(model.get("spec") or "MODEL")
    pre = model.get("preprocessing") or {}
    words = ["fretta", "evaluate"]
    if spec.startswith("digits:"):
        words += ["--model", "digits"]
    else:
        words += ["--model", spec, *_option("--num-classes", model.get("num_classes"))]
        words += ["--weights", "FILE"] if run.get("weights_hash") else []
        words += _option("--size", pre.get("size"))
        for name in ("mean", "std"):
            words += _option(f"--{name}", ",".join(f"{v:g}" for v in pre.get(name) or []))
        words += _option("--fit", data.get("fit"))
    words += _option("--data", data.get("name"))
    words += _option("--corruption", data.get("corruption"))
    words += _option("--severity", data.get("severity")) if data.get("corruption") else []
    words += _option("--method", run["method"])
    for name, value in (run.get("hyperparameters") or {}).items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words += ["--set", f"{name}={text}"]
    words += _option("--order", run.get("order"))
    words += _option("--batch-size", run.get("batch_size"))
    words += _option("--limit", options.get("limit"))
    for domain in options.get("domains") or []:
        words += _option("--domain", domain)
    words += _option("--source", (run.get("source") or {}).get("name"))
    return _join(*words, "--store", "again")
