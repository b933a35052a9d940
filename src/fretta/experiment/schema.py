"""The shape of a suite file: which keys a table has, and what kind of value each takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import SuiteError

_NUMBER = (int, float)

KEYS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "suite": {
        "title": str,
        "about": str,
        "paper": str,
        "protocol": dict,
        "cases": list,
        "methods": list,
    },
    "protocol": {
        "order": str,
        "batch_size": int,
        "seeds": list,
        "limit": int,
        "domains": (list, str),
        "concentration": _NUMBER,
        "imbalance": _NUMBER,
    },
    "case": {
        "name": str,
        "data": dict,
        "model": dict,
        "source": dict,
        "protocol": dict,
        "adapter": dict,
    },
    "model": {
        "source": str,
        "spec": str,
        "weights": str,
        "num_classes": int,
        "head": str,
        "mean": list,
        "std": list,
        "size": int,
    },
    "adapter": {
        "steps": int,
        "episodic": bool,
        "predict": str,
        "reset_every": int,
        "guard": str,
    },
}

_WORDS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def check_keys(table: Mapping[str, Any], kind: str, where: str) -> None:
    """SuiteError on a key that `kind` of table does not have, or a value of another type."""
    valid = KEYS[kind]
    unknown = sorted(table.keys() - valid.keys())
    if unknown:
        raise SuiteError(
            f"{where}: unknown {', '.join(map(repr, unknown))}; valid are {', '.join(valid)}"
        )
    for key, value in table.items():
        expected = valid[key]
        kinds = expected if isinstance(expected, tuple) else (expected,)
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        if not fits:
            wanted = " or ".join(_WORDS[kind] for kind in kinds)
            raise SuiteError(f"{where}: {key} = {value!r}; {wanted} is expected")


def tables(value: Any, key: str, where: str) -> list[dict[str, Any]]:
    """The entries of [[key]]. One pair of brackets, a usual slip, makes a single table instead."""
    if isinstance(value, Mapping):
        raise SuiteError(f"{where}: [{key}] is one table; write [[{key}]], once for each entry")
    if not isinstance(value, Sequence) or not all(isinstance(entry, Mapping) for entry in value):
        raise SuiteError(f"{where}: {key} = {value!r}; a list of tables is expected, [[{key}]]")
    return [dict(entry) for entry in value]


def check_seeds(seeds: Sequence[Any], where: str) -> None:
    whole = all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds)
    if not seeds or not whole or len(set(seeds)) < len(seeds):
        raise SuiteError(
            f"{where}: seeds = {list(seeds)!r}; whole numbers from 0 are expected, at least one and"
            " none twice"
        )


def check_adapter(adapter: Mapping[str, Any], where: str) -> None:
    if adapter.get("predict", "before") not in ("before", "after"):
        raise SuiteError(
            f"{where}, adapter: predict = {adapter['predict']!r}; 'before' or 'after' is expected"
        )
    if adapter.get("steps", 1) < 1:
        raise SuiteError(f"{where}, adapter: steps = {adapter['steps']}; at least 1 is expected")


def check_matrix(matrix: Any, where: str) -> dict[str, list[Any]]:
    """{ name = [values] }, every list with something in it."""
    fine = isinstance(matrix, Mapping) and all(
        isinstance(values, list) and values for values in matrix.values()
    )
    if not fine:
        raise SuiteError(
            f"{where}: matrix = {matrix!r}; lists of values by name are expected, such as"
            " { lam = [0.1, 1.0] }"
        )
    return dict(matrix)
