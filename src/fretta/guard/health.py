"""The record of one batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Health:
    """How an adapter is doing, seen from one batch. Plain numbers; what we do not have is None."""

    batch: int  # number of the batch since the first day: 0, 1, ...
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

    def __repr__(self) -> str:
        """What is known, in a line."""
        shares = {"changed": self.changed, "passed": self.pass_rate}
        numbers = {"NRS": self.nrs, "drift": self.drift, "update": self.update_norm}
        known = [
            f"entropy {self.entropy:.3g} (of the mean prediction {self.marginal_entropy:.3g})",
            *(f"{name} {value:.0%}" for name, value in shares.items() if value is not None),
            *(f"{name} {value:.3g}" for name, value in numbers.items() if value is not None),
            *([f"{self.action}: {self.reason}"] if self.action else []),
        ]
        return f"<Health of batch {self.batch}: {self.samples} images, {', '.join(known)}>"

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; a number that is not finite becomes None, which JSON can say."""
        return {k: None if _endless(v) else v for k, v in asdict(self).items()}


def _endless(value: Any) -> bool:
    return isinstance(value, float) and (value != value or value in (float("inf"), -float("inf")))
