"""Shares of the classes, as somebody who knows them gives them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import ConfigError

SHOWN = 8  # class names that an error lists
EXAMPLE = "cat=0.8,dog=0.2"


def read_prior(text: str) -> dict[str, float]:
    """What --prior says: cat=0.8,dog=0.2, or a JSON or CSV file of shares or counts."""
    path = Path(text)
    try:
        there = path.is_file()
    except (OSError, ValueError):  # too long for a file name
        there = False
    pairs = _from_file(path) if there else [_pair(part, text) for part in text.split(",")]
    found: dict[str, float] = {}
    for name, value in pairs:
        if name in found:
            raise ConfigError(f"--prior {text!r} names {name!r} twice")
        try:
            found[name] = float(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"--prior {text!r}: {value!r} of {name!r} is no number") from error
    return found


def _pair(part: str, text: str) -> tuple[str, Any]:
    name, equals, value = part.rpartition("=")
    if not equals:
        raise ConfigError(
            f"--prior {text!r} is neither a file nor shares of classes such as {EXAMPLE}"
        )
    return name.strip(), value.strip()


def _from_file(path: Path) -> list[tuple[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        content = json.loads(text) if path.suffix.lower() == ".json" else None
    except (OSError, ValueError) as error:  # UnicodeDecodeError and JSON's are ValueErrors
        raise ConfigError(f"--prior {str(path)!r} cannot be read: {error}") from error
    if isinstance(content, dict):
        return list(content.items())
    if content is not None:
        raise ConfigError(f"--prior {str(path)!r} holds no {{name: share}}")
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]
    if any(len(row) != 2 for row in rows):
        raise ConfigError(f"--prior {str(path)!r}: each line is the name of a class and its share")
    header = bool(rows) and not _is_number(rows[0][1])
    return [(name, value) for name, value in rows[header:]]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def class_shares(
    given: Mapping[str, float], numbers: Mapping[str, int], classes: int
) -> list[float]:
    """The share of every class; `numbers` has the number of each name, in lower case.

    Values that add up to 1 or less are shares, and classes that are not named divide the rest
    evenly. Larger ones are counts, and classes that are not named have none.
    """
    strange = [name for name in given if name.casefold() not in numbers]
    if strange:
        raise ConfigError(f"the prior names {_unknown(strange, list(numbers))}")
    wrong = [name for name, value in given.items() if not (math.isfinite(value) and value >= 0)]
    total = sum(given.values())
    if wrong or not total > 0:
        seen = f"{wrong[0]}={given[wrong[0]]}" if wrong else "nothing above 0"
        raise ConfigError(f"the prior has {seen}; a share >= 0 of each class is expected")
    if total > 1 and len(given) == 1:
        (name,) = given
        raise ConfigError(
            f"the prior has {name}={total:g} alone; a share is between 0 and 1, such as"
            f" {name}=0.8, and counts need more than one class"
        )
    shares = [math.nan] * classes
    for name, value in given.items():
        number = numbers[name.casefold()]
        if not math.isnan(shares[number]):
            raise ConfigError(f"the prior names a class twice, the second time as {name!r}")
        shares[number] = value
    absent = sum(map(math.isnan, shares))
    rest = max(0.0, 1 - total) / absent if absent else 0.0
    filled = [rest if math.isnan(share) else share for share in shares]
    return [share / sum(filled) for share in filled]


def _unknown(strange: list[str], names: list[str]) -> str:
    near = get_close_matches(strange[0].casefold(), names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    listed = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    what = "a class" if len(strange) == 1 else "classes"
    return f"{what} that the model does not have: {', '.join(strange)}{hint}; it has {listed}"
