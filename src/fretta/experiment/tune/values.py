"""What tuning gives back: trials, and the result that was chosen among them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ...errors import ConfigError


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

    @property
    def claim(self) -> str:
        """What a number found this way may be called."""
        return {
            Rule.ORACLE: "oracle: chosen with target labels",
            Rule.FIRST_DOMAIN: (
                "first-domain: chosen with the labels of the first domain only"
                " (its own number saw them)"
            ),
            Rule.EXTRA_CORRUPTIONS: (
                "extra-corruptions: chosen with labels under four held-out"
                " corruptions, none of them evaluated"
            ),
            Rule.LABEL_FREE: "label-free: chosen without any label",
        }[self]

    @property
    def measure(self) -> str:
        return "label-free score" if self is Rule.LABEL_FREE else "mean accuracy"


@dataclass(frozen=True)
class Trial:
    """One setting and how it did. `score` is None where a run failed: such a trial never wins."""

    number: int
    settings: dict[str, Any]  # what differs from the method's defaults
    score: float | None
    keys: tuple[str, ...] = ()  # of its runs in the store: cases × seeds
    collapsed: bool = False  # in some domain, predictions fell into far fewer classes
    error: str = ""
    predicted_classes: tuple[float, ...] = ()  # effective ones, for every run and domain

    @property
    def failed(self) -> bool:
        return self.score is None

    @property
    def text(self) -> str:
        return describe(self.settings) or "defaults"


@dataclass(frozen=True)
class Result:
    """The best setting by one rule, and everything that was tried."""

    suite: str
    method: str
    title: str  # what the suite calls the method
    rule: Rule
    search: str  # "greedy", "product" or "optuna"
    space: dict[str, list[Any]]
    seeds: tuple[int, ...]
    judged_on: tuple[str, ...]  # case: domains, as the rule chose them
    trials: tuple[Trial, ...]  # the first is the setting the suite had
    best: Trial
    runs_done: int = 0
    runs_found: int = 0  # already in the store

    @property
    def settings(self) -> dict[str, Any]:
        return self.best.settings

    @property
    def score(self) -> float:
        return float("nan") if self.best.score is None else self.best.score

    @property
    def label(self) -> str:
        """What tables call the tuned method: the rule is part of its name."""
        return f"{self.title} (tuned: {self.rule})"

    @property
    def failed(self) -> tuple[Trial, ...]:
        return tuple(t for t in self.trials if t.failed)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def describe(settings: dict[str, Any]) -> str:
    return " ".join(
        f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in settings.items()
    )
