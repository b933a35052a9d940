"""The selection rules: which data a setting is judged on, and by which number."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from ...data import EXTRA_CORRUPTIONS, Dataset, dataset_options
from ...data.datasets import check_name
from ...data.order import Order
from ...errors import ConfigError, FrettaError, SuiteError
from ..case import open_data
from ..records import Record
from ..suite import CaseEntry, Suite

Root = str | os.PathLike[str] | None
DIVERSITY = 4.0  # weight of ln E against H in the label-free score


class Rule(StrEnum):
    """What a setting is chosen by. There is no default: each is a different claim."""

    ORACLE = "oracle"
    FIRST_DOMAIN = "first-domain"
    EXTRA_CORRUPTIONS = "extra-corruptions"
    LABEL_FREE = "label-free"

    @classmethod
    def parse(cls, text: str) -> Rule:
        try:
            return cls(text)
        except ValueError:
            raise ConfigError(f"rule={text!r} is unknown; choose from {', '.join(cls)}") from None


CLAIMS = {  # what a number found by the rule may be called
    Rule.ORACLE: "chosen with target labels",
    Rule.FIRST_DOMAIN: "chosen with the labels of the first domain only (its own number saw them)",
    Rule.EXTRA_CORRUPTIONS: (
        "chosen with labels under four held-out corruptions, none of them evaluated"
    ),
    Rule.LABEL_FREE: "chosen without any label",
}


# ---- the data a setting is judged on ------------------------------------------------------------


def judged_on(suite: Suite, rule: Rule, root: Root) -> tuple[Suite, tuple[str, ...]]:
    """The part of the suite that the rule may see, and a description per case."""
    if rule is Rule.FIRST_DOMAIN:
        case, names = _first_domain(suite, root)
        return replace(suite, cases=(case,)), (f"{case.name}: {', '.join(names)}",)
    domains = "all its domains"
    if rule is Rule.EXTRA_CORRUPTIONS:
        domains = ", ".join(EXTRA_CORRUPTIONS)
        suite = replace(suite, cases=tuple(_extra(case, suite.name, root) for case in suite.cases))
    return suite, tuple(f"{case.name}: {domains}" for case in suite.cases)


def _open(case: CaseEntry, data: dict[str, Any], suite: str, root: Root) -> Dataset:
    try:
        return open_data(data, None if root is None else os.fspath(root))
    except FrettaError as error:
        raise SuiteError(f"suite {suite!r}, case {case.name!r}: {error}") from error


def _first_domain(suite: Suite, root: Root) -> tuple[CaseEntry, list[str]]:
    """The first case of the suite, cut to the first domain of its stream.

    What comes before a domain in a stream decides its accuracy, what comes after does not: the
    runs stop after the first. A gradual stream keeps all severities of its first corruption.
    """
    case = suite.cases[0]
    domains = case.protocol.get("domains")
    if domains is None:
        domains = _open(case, case.data, suite.name, root).names
    names = [domains] if isinstance(domains, str) else list(domains)
    first = names[:1]
    if Order.parse(case.protocol["order"]).arrangement == "gradual":
        corruption = first[0].rpartition("/")[0]
        first = [name for name in names if name.rpartition("/")[0] == corruption]
    if first != names:
        return replace(case, protocol={**case.protocol, "domains": first}), first
    data = {str((c.data, c.protocol.get("domains"))) for c in suite.cases}
    if len(data) == 1:
        raise SuiteError(
            f"suite {suite.name!r} has one domain only, {', '.join(names)}, and reports it; use the"
            " rule 'label-free', or 'oracle' and say so"
        )
    return case, names


def _extra(case: CaseEntry, suite: str, root: Root) -> CaseEntry:
    """The same clean images under the four corruptions that the benchmark holds out."""
    where = f"suite {suite!r}, case {case.name!r}"
    evaluated = {domain.corruption for domain in _open(case, case.data, suite, root).domains}
    if None in evaluated:
        raise SuiteError(
            f"{where}: its images are not corrupted, and corrupting them would use the labels that"
            " are reported; use the rule 'first-domain' or 'label-free'"
        )
    if evaluated & set(EXTRA_CORRUPTIONS):
        raise SuiteError(
            f"{where}: it is itself evaluated on {', '.join(sorted(map(str, evaluated)))}, so the"
            " extra corruptions are not held out; use the rule 'first-domain' or 'label-free'"
        )
    failures = []
    for data in _extra_data(case.data):
        try:
            _open(case, data, suite, root)
        except SuiteError as error:
            failures.append(str(error.__cause__))
            continue
        protocol = {k: v for k, v in case.protocol.items() if k != "domains"}
        return replace(case, data=data, protocol=protocol)
    raise SuiteError(
        f"{where}: no images under {', '.join(EXTRA_CORRUPTIONS)}, which the rule"
        f" 'extra-corruptions' needs: {'; '.join(failures)}"
    )


def _extra_data(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Where the extra corruptions may come from, best first: made while reading, read from the
    files of the corrupted set, made from the clean set beside it."""
    name = check_name(data["name"])
    if "corruption" in dataset_options(name):
        return [{**data, "corruption": "extra"}]
    ways = [{**data, "domains": list(EXTRA_CORRUPTIONS)}]
    if name in ("cifar10c", "cifar100c"):
        kept = {k: v for k, v in data.items() if k in ("severity", "size", "verify")}
        ways.append({"name": name.removesuffix("c"), "corruption": "extra", **kept})
    return ways


# ---- the number it is judged by -----------------------------------------------------------------


def score(rule: Rule, records: Sequence[Record]) -> float | None:
    """The mean over runs of the rule's number; larger is better. None where a run has none."""
    if any(record.overall.get("entropy", 0.0) is None for record in records):
        return None  # the model diverged
    if rule is Rule.LABEL_FREE:
        values = [label_free(record.rows) for record in records]
    else:
        values = [record.overall["mean_over_domains"] for record in records]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return sum(finite) / len(finite) if finite and len(finite) == len(values) else None


def label_free(rows: Sequence[dict[str, Any]]) -> float | None:
    """S = mean over domains of 4 ln E - H, from the predictions alone.

    E    effective number of predicted classes (exp of the entropy of their shares): diversity
    H    mean entropy of the predictions, in nats: confidence

    Confidence alone is best when everything is one class. Collapse (E = 1, H = 0, S = 0) must lose:
    it does against whatever predicts more than e^(H/4) classes. The redundancy score (NRS) is not
    in it: S-FRET lowers it to any depth while accuracy falls. docs/tuning.md has the measurements.
    None where the entropy is not finite: the model diverged.
    """
    values = []
    for row in rows:
        if row["entropy"] is None or row["predicted_classes"] is None:
            return None
        values.append(DIVERSITY * math.log(row["predicted_classes"]) - row["entropy"])
    return sum(values) / len(values) if values else None
