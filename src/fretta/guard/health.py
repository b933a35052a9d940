"""The record of one batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import Any


@dataclass(frozen=True)
class Health:
    """How an adapter is doing, seen from one batch. Plain numbers; None is not known."""

    batch: int  # number of the batch since the last reset: 0, 1, ...
    samples: int
    nrs: float | None  # normalized redundancy of the features that enter the head, in [0, 1]
    entropy: float  # mean entropy of the predictions, nats
    marginal_entropy: float  # entropy of the mean prediction of the batch, nats
    reference_marginal: float | None  # the same, averaged over the accepted batches so far
    changed: float | None  # share of predictions that differ from the source model's (sampled)
    pass_rate: float | None  # share of the batch that passed the method's filters
    drift: float | None  # ‖θ - θ_0‖ / ‖θ_0‖ over the adapted parameters
    update_norm: float | None  # ‖θ_t - θ_{t-1}‖
    action: str = ""  # what the guard did: "", "warn", "skip", "rollback" or "reset"
    reason: str = ""  # and why

    @property
    def finite(self) -> bool:
        """Whether logits and adapted parameters are finite."""
        return math.isfinite(self.entropy) and math.isfinite(self.drift or 0.0)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<Health of batch {self.batch}: {self.samples} images, {facts}>"

    def _repr_html_(self) -> str:
        return html_table(
            f"Health of batch {self.batch}", {"images": self.samples, **self._facts()}
        )

    def _facts(self) -> dict[str, str]:
        """What is known, for people."""
        shares = {"changed": self.changed, "passed": self.pass_rate}
        numbers = {"NRS": self.nrs, "drift": self.drift, "update": self.update_norm}
        return {
            "entropy": f"{self.entropy:.3g} (of the mean prediction {self.marginal_entropy:.3g})",
            **{name: f"{value:.0%}" for name, value in shares.items() if value is not None},
            **{name: f"{value:.3g}" for name, value in numbers.items() if value is not None},
            **({"guard": f"{self.action}: {self.reason}"} if self.action else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; a number that is not finite becomes None, since JSON has no word for it."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def html_table(title: str, facts: Mapping[str, object]) -> str:
    """A small table, as notebooks show it."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"
