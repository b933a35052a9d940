"""The command that repeats a run."""

from __future__ import annotations

import shlex
from typing import Any

from ..experiment.records import Record
from .suites import suite_facts


def command(record: Record) -> str:
    """Everything but the seed, into another store, so that what is there stays for comparison."""
    suite, run = str(record.tags.get("suite") or ""), record.run
    base, trial, _ = suite.partition("/tune")
    file = base if suite_facts(base).shipped else f"{base}.toml"
    limit = (run.get("order_options") or {}).get("limit")
    if trial:
        rule = record.tags.get("tuning") or "RULE"
        words = ["tune", file, *_options(method=run["method"], rule=rule, limit=limit)]
        for name, value in (run.get("hyperparameters") or {}).items():
            words += ["--grid", f"{name}={_text(value)}"]
    elif suite in ("", "evaluate") or _is_sensitivity(suite):
        words = ["evaluate", *_evaluate(run)]
    else:
        label = record.tags.get("label") or run["method"]
        words = ["run", file, *_options(case=record.tags.get("case"), method=label, limit=limit)]
    return shlex.join(["fretta", *words, "--store", "again"])


def needs(record: Record) -> str:
    """What must be at hand besides."""
    data = (record.run.get("data") or {}).get("name")
    parts = []
    if data != "digits":
        parts.append(f"FRETTA_DATA set to the folder that holds {data}")
    suite = str(record.tags.get("suite") or "").partition("/tune")[0]
    own = suite not in ("", "evaluate") and not _is_sensitivity(suite)
    if own and not suite_facts(suite).shipped:
        parts.append(f"the suite file {suite}.toml")
    weights = record.run.get("weights_hash")
    if weights and data != "digits":
        parts.append(f"the weights with SHA-256 {str(weights)[:16]}…")
    return "; ".join(parts)


def _is_sensitivity(suite: str) -> bool:
    """Of `fretta analyze sensitivity`, which has no file."""
    return suite.startswith("sensitivity-") and not suite_facts(suite).shipped


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _options(**values: Any) -> list[str]:
    """--name value, of those that have one."""
    words = []
    for name, value in values.items():
        text, option = str(value), f"--{name.replace('_', '-')}"
        if value is not None and text:
            words += [f"{option}={text}"] if text.startswith("-") else [option, text]
    return words


def _evaluate(run: dict[str, Any]) -> list[str]:
    data, model, options = (run.get(k) or {} for k in ("data", "model", "order_options"))
    spec, pre = str(model.get("spec") or "MODEL"), model.get("preprocessing") or {}
    if spec.startswith("digits:"):
        words = ["--model", "digits"]
    else:
        words = _options(model=spec, num_classes=model.get("num_classes"))
        words += ["--weights", "FILE"] if run.get("weights_hash") else []
        mean, std = (",".join(f"{v:g}" for v in pre.get(k) or []) for k in ("mean", "std"))
        words += _options(size=pre.get("size"), mean=mean, std=std, fit=data.get("fit"))
    words += _options(head=model.get("head"), data=data.get("name"))
    corruption = data.get("corruption") or []
    for name in [corruption] if isinstance(corruption, str) else corruption:
        words += _options(corruption=name)
    severity = data.get("severity") if corruption else []
    for level in severity if isinstance(severity, list) else [severity]:
        words += _options(severity=level)
    words += _options(method=run["method"])
    for name, value in (run.get("hyperparameters") or {}).items():
        words += ["--set", f"{name}={_text(value)}"]
    words += _options(order=run.get("order"), batch_size=run.get("batch_size"))
    words += _options(limit=options.get("limit"))
    for domain in options.get("domains") or []:
        words += _options(domain=domain)
    return words + _options(source=(run.get("source") or {}).get("name"))
