"""The settings of a guard."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ..errors import ConfigError

POLICIES = ("warn", "skip", "rollback", "reset")


@dataclass(frozen=True)
class Guard:
    """What counts as harm, and what to do about it.

    policy   "warn"      only warn
             "skip"      undo the update of the batch
             "rollback"  return to the last good state, or to the initial one if that is no better
             "reset"     return to the initial state
             With all but "warn", the model without learning predicts after repeated harm by
             learning, and the source model where the statistics of the batches do harm.
    """

    policy: str = "rollback"
    max_cost: float = 0.12  # harm: learning overturns so much belief of the model without it, as a
    # share of that model's doubt
    errors: float = 2.0  # harm: statistics lose against the source model by so many standard errors
    max_drift: float = 0.5  # harm: ‖θ - θ_0‖ / ‖θ_0‖ above this
    sample: float = 1 / 8  # share of the images that the model without learning sees too, after a
    # good start; the source model sees a quarter of that
    window: int = 256  # images over which evidence is gathered
    keep: int = 2  # snapshots
    strikes: int = 3  # times of harm until learning pauses; twice as many stop it until a reset
    pause: int = 32  # batches of the first pause; each further one is twice as long

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ConfigError(
                f"guard: policy={self.policy!r} is unknown; choose from {', '.join(POLICIES)}"
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "policy":
                continue
            integer = isinstance(field.default, int)
            kind = int if integer else (int, float)
            good = isinstance(value, kind) and not isinstance(value, bool) and value > 0
            if not good or not (math.isfinite(value) or field.name == "max_drift"):
                wanted = "an integer above 0" if integer else "a number above 0"
                raise ConfigError(f"guard: {field.name}={value!r} cannot work; give {wanted}")
        if self.sample > 1:
            raise ConfigError(f"guard: sample={self.sample!r} cannot work; give a share in (0, 1]")

    def __repr__(self) -> str:
        """The policy, and what differs from the defaults."""
        others = [f for f in fields(self)[1:] if getattr(self, f.name) != f.default]
        changes = "".join(f", {f.name}={getattr(self, f.name)!r}" for f in others)
        return f"Guard({self.policy!r}{changes})"

    @classmethod
    def of(cls, value: Guard | str | None) -> Guard | None:
        """From what `fretta.adapt(guard=...)` takes."""
        if value is None or isinstance(value, Guard):
            return value
        if value == "none":  # as the command line says it
            return None
        if isinstance(value, str):
            return cls(value)
        raise ConfigError(
            f"guard is a {type(value).__name__}; give a policy ({', '.join(POLICIES)}), a"
            " fretta.Guard, or None"
        )
