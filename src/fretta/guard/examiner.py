"""Is it well? Looks at each batch, and now and then at what the references predict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..learner import Learner
from .guard import Guard
from .health import Health
from .judge import (
    FEW,
    Comparison,
    Harm,
    does_well,
    judge_learning,
    judge_statistics,
    learning_in_doubt,
    statistics_in_doubt,
    trusted_again,
)
from .monitor import Monitor, add_pair, compare
from .references import References
from .schedule import Looks

MOVED = 0.1  # of ln C: entropy or marginal so far from what it was, and the references are asked
WATCHED = 1 / 32  # share of the images that the source model sees without a guard
MOVING = 10.0  # times the limit where statistics move: without learning they would be others


class Examiner:
    """Measures a stream and says what does harm. It changes neither model nor method.

    doubted   whether the statistics are in doubt, on the first images
    good      whether the last batch was compared, and learning did well on it
    """

    def __init__(self, learner: Learner, guard: Guard, classes: int) -> None:
        self.guard, self.classes = guard, classes
        self.source_forward = learner.source_forward
        model, method = learner.model, learner.method
        self.limits = guard
        if model.statistics is not None:  # they are those of the learned model
            self.limits = replace(guard, max_cost=MOVING * guard.max_cost)
        hedged = method.settles and model.statistics is not None  # sees to it by itself
        self.has_batch_norms = bool(model.batch_norms)
        self.has_statistics = self.has_batch_norms and method.adapts and not hedged
        self.reset()

    def reset(self) -> None:
        window, share = self.guard.window, self.guard.sample
        self.look_unlearned, self.look_source = Looks(share, window), Looks(share / 4, window)
        self.doubted = self.good = False
        self.owed = 0.0  # images the source model has still to see, without a guard
        self.normal: tuple[float, float] | None = None  # running entropy and marginal, of ln C
        self.monitor = Monitor(self.guard, self.classes)

    def examine(
        self, logits: Tensor, beside: References, health: Health, mean: Tensor, learned: bool
    ) -> Harm | None:
        """Harm, if there is any. `learned`: whether the logits are of a model that learns."""
        self.good = False
        if not health.finite:
            return Harm("not finite", "logits or parameters are not finite")
        self.monitor.add_own(health, mean)
        drift = health.drift if learned else None
        drifted = drift is not None and drift > self.guard.max_drift
        now, n = drifted or self._moved(), len(beside.x)
        if not learned:
            beside.unlearned = logits
        harm = None
        if self.look_source.due(n, now):
            self.monitor.add_changed(logits, beside.source)
            harm = self._examine_statistics(beside) if self.has_statistics else None
        if harm is None and drifted:
            moved = f"the parameters moved {drift:.2f} of their norm"
            return Harm("drift", f"{moved} from the source model's")
        if harm is None and learned and self.look_unlearned.due(n, now):
            harm = self._examine_learning(logits, beside)
        return harm

    def _examine_statistics(self, beside: References) -> Harm | None:
        """The model without learning beside the source model."""
        seen = add_pair(self.monitor.statistics, beside.unlearned, beside.source)
        if seen is None:
            return None
        doubt = statistics_in_doubt(seen)
        self.doubted = doubt and seen.images < self.guard.window // 2
        if doubt:
            self.look_source.ask(1)  # at the next batch
        return judge_statistics(seen, self.guard)

    def _examine_learning(self, logits: Tensor, beside: References) -> Harm | None:
        """The learned model beside the one without learning."""
        if not self.has_batch_norms:
            beside.unlearned = beside.source
        seen = add_pair(self.monitor.learning, logits, beside.unlearned)
        if seen is None:
            return None
        self.good = not learning_in_doubt(seen, self.limits)
        if not self.good:
            self.look_unlearned.ask(1)
        return judge_learning(seen, self.limits)

    def well(self, logits: Tensor, unlearned: Tensor) -> bool:
        """Whether an earlier state does well on this batch."""
        return does_well(compare(logits, unlearned), self.limits)

    def returns(self, unlearned: Tensor, source: Tensor, enough: bool) -> bool:
        """Whether statistics that did harm can be trusted again; asked at every batch."""
        self.monitor.add_changed(unlearned, source)
        seen: Comparison | None = add_pair(self.monitor.statistics, unlearned, source)
        if seen is None or not enough or not trusted_again(seen, self.guard):
            return False
        self.look_closely()
        self.doubted = False
        return True

    def look_closely(self) -> None:
        for looks in (self.look_unlearned, self.look_source):
            looks.ask(self.guard.window)

    def after(self, harm: Harm) -> None:
        """Begin again to gather evidence."""
        self.monitor.learning.clear()
        self.monitor.own.clear()
        if harm.kind == "statistics":
            self.monitor.statistics.clear()
        self.look_closely()

    def _moved(self) -> bool:
        """Whether the adapted model's own predictions are not what they were."""
        level = self.monitor.level()
        if level is None or self.normal is None or self.monitor.own.images < FEW:
            return False
        moved = level[0] - self.normal[0] > MOVED or self.normal[1] - level[1] > MOVED
        if moved:
            self.normal = level
        return moved

    def sample(self, x: Tensor, logits: Tensor, health: Health) -> None:
        """Without a guard: show the source model a few images, evenly spread, another place in each
        batch."""
        if not health.finite:
            return
        self._average(
            (health.entropy / self.monitor.unit, health.marginal_entropy / self.monitor.unit)
        )
        self.owed += len(x) * WATCHED
        k = min(int(self.owed), len(x))
        if k < min(2, len(x)):
            return
        self.owed -= k
        places = (torch.arange(k, device=x.device) * (len(x) // k) + health.batch) % len(x)
        self.monitor.add_changed(logits[places], self.source_forward(x[places]))

    def accept(self) -> None:
        """What the adapted model's own predictions are like."""
        level = self.monitor.level()
        if level is not None:
            self._average(level)

    def _average(self, new: tuple[float, float]) -> None:
        if self.normal is not None:
            old = self.normal
            new = (0.9 * old[0] + 0.1 * new[0], 0.9 * old[1] + 0.1 * new[1])
        self.normal = new

    def reference_marginal(self) -> float | None:
        return None if self.normal is None else self.normal[1] * self.monitor.unit

    # ---- state -------------------------------------------------------------------------------

    PLAIN = ("doubted", "owed", "normal")

    def state_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in self.PLAIN},
            "monitor": self.monitor.state_dict(),
            "looks": [self.look_unlearned.state_dict(), self.look_source.state_dict()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reset()
        for name in self.PLAIN:
            setattr(self, name, state[name])
        self.monitor.load_state_dict(state["monitor"])
        looks = (self.look_unlearned, self.look_source)
        for look, saved in zip(looks, state["looks"], strict=True):
            look.load_state_dict(saved)
