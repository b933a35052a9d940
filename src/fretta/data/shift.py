"""Names and severities of corruptions, and data sets corrupted while they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..corruptions import ALL, CORRUPTIONS, EXTRA
from ..errors import ConfigError
from .domain import Dataset, check_choice, check_integer

SEVERITIES = (1, 2, 3, 4, 5)
CONSTANTS = (None, "cifar", "imagenet")
GROUPS = {"all": CORRUPTIONS, "extra": EXTRA}
# A severity, or a severity and the set of constants it refers to.
Strength = float | tuple[float, str | None]


def corruption_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name or several, "all" (the 15 of the benchmark, also None) or "extra" (the other 4)."""
    given = ["all"] if names is None else [names] if isinstance(names, str) else list(names)
    chosen = [name for entry in given for name in GROUPS.get(entry, (entry,))]
    for name in chosen:
        if name not in ALL:
            raise ConfigError(f"unknown corruption {name!r}; known: {', '.join(ALL)}")
    if not chosen:
        raise ConfigError("corruption= names no corruption; give names, or 'all' for the 15")
    return tuple(dict.fromkeys(chosen))


def severity_levels(severity: float | Sequence[float], integers: bool = True) -> tuple[float, ...]:
    """One severity or several; files hold `integers` only."""
    levels = tuple(severity) if isinstance(severity, Sequence) else (severity,)
    for level in levels:
        number = isinstance(level, (int, float)) and not isinstance(level, bool)
        if not number or not 1 <= level <= 5 or (integers and level not in SEVERITIES):
            raise ConfigError(
                f"severity={severity!r}; {'whole ' * integers}numbers from 1 to 5 are expected"
            )
    if not levels or len(set(levels)) < len(levels):
        raise ConfigError(f"severity={severity!r}; at least one is expected, and none twice")
    return tuple(int(level) if level in SEVERITIES else level for level in levels)


def _pair(name: str, given: Sequence[Any]) -> tuple[float, str | None]:
    """(number, constants), where each corruption has its own severity."""
    if len(given) == 2 and isinstance(given[0], (int, float)) and isinstance(given[1], str | None):
        return given[0], given[1]
    raise ConfigError(
        f"severity={{{name!r}: {given!r}}}; a corruption of its own severity has one: a number, or"
        " (number, constants) such as (3, 'imagenet'); several are for all: severity=[1, 3]"
    )


def domain_name(corruption: str, severity: float, several: bool) -> str:
    """`fog`, or `fog/3` where a data set has several severities."""
    return f"{corruption}/{severity:g}" if several else corruption


def with_corruptions(
    clean: Dataset,
    corruption: str | Sequence[str] = "all",
    severity: float | Sequence[float] | Mapping[str, Strength] = 5,
    seed: int = 0,
    constants: str | None = None,
) -> Dataset:
    """Every domain of `clean` under each corruption, at each severity.

    corruption: a name, several, "all" (the 15) or "extra" (the 4 held-out ones).
    severity: one for all, several (each makes a domain, as gradual streams need), or a mapping
    that gives each corruption its own, as a number or as (number, constants).
    seed: of the pixels; the order of a stream has its own.
    constants: "cifar" or "imagenet"; None chooses by image size.
    Domains are called `fog`; `fog/3` with several severities; `photo/fog` with several domains.
    """
    check_integer("corruption_seed", seed, 0)
    if isinstance(severity, Mapping) and (odd := [name for name in severity if name not in ALL]):
        raise ConfigError(f"severity= of unknown corruption {odd[0]!r}; known: {', '.join(ALL)}")
    shifted = []
    for domain in clean.domains:
        prefix = "" if len(clean.domains) == 1 else f"{domain.name}/"
        for name in corruption_names(corruption):
            given: float | Sequence[float] | Strength = (
                severity.get(name, 5) if isinstance(severity, Mapping) else severity
            )
            table = constants
            if isinstance(severity, Mapping) and isinstance(given, (tuple, list)):
                given, table = _pair(name, given)
            check_choice("constants", table, CONSTANTS)
            levels = severity_levels(given, integers=False)  # type: ignore[arg-type]
            for level in levels:
                shifted.append(
                    replace(
                        domain,
                        name=prefix + domain_name(name, level, len(levels) > 1),
                        corruption=name,
                        severity=level,
                        made=True,
                        seed=seed,
                        constants=table,
                    )
                )
    return replace(clean, domains=shifted)
