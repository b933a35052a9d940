"""Shares of the classes, where the user knows them (--prior)."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Mapping
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import ConfigError

SHOWN = 8  # class names that an error lists
UNIFORM = "uniform"  # every class has the same share


def read_prior(text: str) -> dict[str, float]:
    """cat=0.8,dog=0.2, a JSON or CSV file of shares or counts, or uniform: no class by name."""
    if text.strip().casefold() == UNIFORM:
        return {}
    if os.path.isfile(text):
        pairs = _read_file(Path(text))
    else:
        parts = (part.rpartition("=") for part in text.split(","))
        pairs = [(name.strip(), value) for name, _, value in parts]
        if not all(name for name, _ in pairs):
            raise ConfigError(
                f"--prior {text!r} is neither a file nor shares of classes such as cat=0.8,dog=0.2"
            )
    found: dict[str, float] = {}
    for name, value in pairs:
        if name in found:
            raise ConfigError(f"--prior {text!r} names {name!r} twice")
        try:
            found[name] = float(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"--prior {text!r}: {value!r} of {name!r} is no number") from error
    return found


def _read_file(path: Path) -> list[tuple[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".json":
            content = json.loads(text)
            if not isinstance(content, dict):
                raise ValueError("a table {name: share} is expected")
            return list(content.items())
        rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]
        if any(len(row) != 2 for row in rows):
            raise ValueError("each line is the name of a class and its share")
    except (OSError, ValueError) as error:  # UnicodeDecodeError and JSON's are ValueErrors
        raise ConfigError(f"--prior {str(path)!r} cannot be read: {error}") from error
    try:
        float(rows[0][1])
    except (LookupError, ValueError):  # a header
        rows = rows[1:]
    return [(name, value) for name, value in rows]


def class_shares(
    prior: Mapping[str, float], numbers: Mapping[str, int], classes: int
) -> list[float]:
    """The share of every class; `numbers` has the number of each name, in lower case.

    Values that add up to 1 or less are shares, and classes that are not named divide the rest
    evenly. Larger ones are counts, and classes that are not named have none. An empty table means
    balanced classes.
    """
    if not prior:
        return [1 / classes] * classes
    unknown = [name for name in prior if name.casefold() not in numbers]
    if unknown:
        near = get_close_matches(unknown[0].casefold(), numbers, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        listed = ", ".join(islice(numbers, SHOWN)) + (", ..." if len(numbers) > SHOWN else "")
        raise ConfigError(
            f"the prior names what the model does not have: {', '.join(unknown)}{hint}; its"
            f" classes are {listed}"
        )
    for name, value in prior.items():
        if not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"the prior has {name}={value}; a share >= 0 is expected")
    total = sum(prior.values())
    if not total:
        raise ConfigError("the prior has nothing above 0; a share of each class is expected")
    if total > 1 and len(prior) == 1:
        (name,) = prior
        raise ConfigError(
            f"the prior has {name}={total:g} alone; write a share such as {name}=0.8, or counts of"
            " more than one class"
        )
    known: dict[int, float] = {}
    for name, value in prior.items():
        if numbers[name.casefold()] in known:
            raise ConfigError(f"the prior names a class twice, the second time as {name!r}")
        known[numbers[name.casefold()]] = value
    rest = max(0.0, 1 - total) / max(1, classes - len(known))
    shares = [known.get(number, rest) for number in range(classes)]
    return [share / sum(shares) for share in shares]
