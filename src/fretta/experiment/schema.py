"""The shape of a suite file: which keys a table has, and what each value must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import SuiteError

TEXT, NUMBER, WHOLE, LIST, TABLE = "a text", "a number", "a whole number", "a list", "a table"
FLAG, NAMES = "true or false", "a list or a text"
_TYPES: dict[str, tuple[type, ...]] = {
    TEXT: (str,),
    NUMBER: (int, float),
    WHOLE: (int,),
    LIST: (list,),
    TABLE: (dict,),
    FLAG: (bool,),
    NAMES: (list, str),
}


def _keys(**kinds: str) -> dict[str, str]:
    return kinds


KEYS = {
    "suite": _keys(title=TEXT, about=TEXT, paper=TEXT, protocol=TABLE, cases=LIST, methods=LIST),
    "protocol": _keys(
        order=TEXT,
        batch_size=WHOLE,
        seeds=LIST,
        limit=WHOLE,
        domains=NAMES,
        concentration=NUMBER,
        imbalance=NUMBER,
    ),
    "case": _keys(name=TEXT, data=TABLE, model=TABLE, source=TABLE, protocol=TABLE, adapter=TABLE),
    "model": _keys(
        source=TEXT,
        spec=TEXT,
        weights=TEXT,
        num_classes=WHOLE,
        head=TEXT,
        mean=LIST,
        std=LIST,
        size=WHOLE,
    ),
    "adapter": _keys(steps=WHOLE, episodic=FLAG, predict=TEXT, reset_every=WHOLE, guard=TEXT),
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
        wanted = valid[key]
        if not isinstance(value, _TYPES[wanted]) or (isinstance(value, bool) and wanted != FLAG):
            raise SuiteError(f"{where}: {key} = {value!r}; {wanted} is expected")


def tables(value: Any, key: str, where: str) -> list[dict[str, Any]]:
    """The entries of [[key]]. One pair of brackets, a usual slip, makes a single table instead."""
    if isinstance(value, Mapping):
        raise SuiteError(f"{where}: [{key}] is one table; write [[{key}]], once for each entry")
    if not isinstance(value, Sequence) or not all(isinstance(entry, Mapping) for entry in value):
        raise SuiteError(f"{where}: {key} = {value!r}; a list of tables is expected, [[{key}]]")
    return [dict(entry) for entry in value]


def check_seeds(seeds: Sequence[Any], where: str) -> None:
    valid = all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds)
    if not seeds or not valid or len(set(seeds)) < len(seeds):
        raise SuiteError(
            f"{where}: seeds = {list(seeds)!r}; whole numbers from 0 are expected, at least one and"
            " none twice"
        )


def check_matrix(matrix: Any, where: str) -> dict[str, list[Any]]:
    """{ name = [values] }, every list with something in it."""
    if not isinstance(matrix, Mapping) or not all(
        isinstance(values, list) and values for values in matrix.values()
    ):
        raise SuiteError(
            f"{where}: matrix = {matrix!r}; lists of values by name are expected, such as"
            " { lam = [0.1, 1.0] }"
        )
    return dict(matrix)
