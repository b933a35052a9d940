"""Corruptions made on the fly: a clean data set becomes a shifted one without writing files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..corruptions import CORRUPTIONS
from ..corruptions import EXTRA as EXTRA_CORRUPTIONS
from ..errors import ConfigError
from .arrays import check_corruptions, severities, shifted_name
from .domain import Dataset

# One severity, or a severity and the set of constants it refers to.
Strength = float | tuple[float, str | None]
CONSTANTS = (None, "cifar", "imagenet")
NAMED = {"all": CORRUPTIONS, "extra": EXTRA_CORRUPTIONS}


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
    asked = NAMED.get(corruption, (corruption,)) if isinstance(corruption, str) else corruption
    shifted = []
    for domain in clean.domains:
        prefix = "" if len(clean.domains) == 1 else f"{domain.name}/"
        for name in check_corruptions(asked):
            given, table = _strength(severity, name, constants)
            levels = severities(given, whole=False)
            for level in levels:
                shifted.append(
                    replace(
                        domain,
                        name=prefix + shifted_name(name, level, len(levels) > 1),
                        corruption=name,
                        severity=level,
                        made=True,
                        seed=seed,
                        constants=table,
                    )
                )
    return replace(clean, domains=shifted)


def _strength(
    severity: float | Sequence[float] | Mapping[str, Strength], name: str, constants: str | None
) -> tuple[float | Sequence[float], str | None]:
    """Severity or severities of one corruption, and the constants they refer to."""
    given: float | Sequence[float]
    if not isinstance(severity, Mapping):
        given = severity
    else:
        own = severity.get(name, 5)
        given, constants = own if isinstance(own, (tuple, list)) else (own, constants)
    if constants not in CONSTANTS:
        raise ConfigError(f"constants={constants!r}; 'cifar', 'imagenet' or None is expected")
    return given, constants
