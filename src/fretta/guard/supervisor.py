"""The guard at work: measure each batch, notice harm, undo it, and decide who predicts next."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from ..errors import warn
from ..state import capture, copy_value, restore_snapshot, take_snapshot
from .guard import Guard
from .health import Health
from .judge import (
    FEW,
    MANY,
    Harm,
    judge_learning,
    judge_statistics,
    learning_in_doubt,
    statistics_in_doubt,
    trusted_again,
)
from .monitor import Monitor, add_pair, compare, flat, measure
from .references import Learner, References

MOVED = 0.1  # of ln C: entropy or marginal so far from what it was, and the references are asked
FORGIVEN = 64  # good batches in a row that take back a strike
DONE = {
    "skip": "the update is undone",
    "rollback": "the last good state is back",
    "reset": "the model is back in its initial state",
}


class Mode(StrEnum):
    """Who predicts. The model learns in the first mode only."""

    LEARNED = "learned"
    UNLEARNED = "unlearned"  # after repeated harm by learning: the statistics alone
    SOURCE = "source"  # the statistics do harm: the source model


class Supervisor:
    """Runs the batches of an adapter, measures its health, and acts by the policy of a guard.

    Without a guard it only measures. With one it is in a `mode`, `until` a batch or until the
    evidence changes (None). In source mode the model without learning is compared silently, and
    trusted again once it does no worse than the source model on enough images.
    """

    def __init__(self, learner: Learner, guard: Guard | None, classes: int) -> None:
        self.learner, self.classes = learner, classes
        self.measures_only = guard is None
        self.guard = guard or Guard("warn")
        self.acts = self.guard.policy != "warn"
        self.origin = flat(learner.model.origin.values())
        self.learns = bool(learner.model.adapted)
        self.keeps = self.learns and self.guard.policy == "rollback"
        self.has_statistics = bool(learner.model.batch_norms) and learner.method.adapts
        self.warned: set[str] = set()  # kinds of harm
        self.reset()

    def reset(self) -> None:
        self.batch = 0
        self.mode = Mode.LEARNED
        self.until: int | None = None  # the batch at which a pause ends; None: a reset, or evidence
        self.strikes = 0  # times of harm by learning, less one for every long calm
        self.calm = 0  # good batches in a row
        self.trial = self.guard.window  # images that the references have still to see in full
        self.proof = self.guard.window // 2  # images on which to do no worse, to come back
        self.gap, self.next = 1, 0  # batches between two that the references see, and the next one
        self.owed = 0.0  # images the source model has still to see, without a guard
        self.normal: tuple[float, float] | None = None  # running entropy and marginal, of ln C
        self.monitor = Monitor(self.guard, self.classes)
        self.ring: list[dict[str, Any]] = []  # snapshots of good states, the newest last

    # ---- one batch ---------------------------------------------------------------------------

    def run(self, x: Tensor) -> tuple[Tensor, Health]:
        """Logits to return, and the record."""
        if self.until is not None and self.batch >= self.until:
            self.mode, self.until = Mode.LEARNED, None
        run = self._source_batch if self.mode is Mode.SOURCE else self._adapted_batch
        logits, health, harm = run(x)
        self.batch += 1
        health = replace(
            health,
            reference_marginal=None if self.normal is None else self.normal[1] * self.monitor.unit,
            changed=self.monitor.changed,
        )
        if harm is not None:
            health = replace(health, action=self.guard.policy, reason=harm.reason)
        return logits, health

    def _adapted_batch(self, x: Tensor) -> tuple[Tensor, Health, Harm | None]:
        learner = self.learner
        learning = self.mode is Mode.LEARNED
        before = flat(learner.model.parameters())
        snapshot = None
        if learning and self.acts:
            snapshot = take_snapshot(learner.model, learner.method, copy_value)
        try:
            logits = learner.learn(x) if learning else learner.current(x)
        except BaseException:  # a batch that fails, or is interrupted, leaves no trace
            self._restore(snapshot)
            raise
        health, mean = self._measure(logits, before)
        beside = References(learner, x)
        harm = self._examine(logits, beside, health, mean, snapshot)
        if harm is None:
            self._accept(health)
        elif self.acts:
            self._restore(snapshot)
            logits = self._recover(beside, harm)
            again, _ = measure(logits, learner.method, self.batch)
            health = replace(health, entropy=again.entropy, marginal_entropy=again.marginal_entropy)
        else:
            self._warn(harm, "the guard only warns")
        return logits, health, harm

    def _source_batch(self, x: Tensor) -> tuple[Tensor, Health, Harm | None]:
        """The source model predicts; the statistics do so silently, and nothing is learned."""
        source = self.learner.source_forward(x)
        health, _ = self._measure(source, flat(self.learner.model.parameters()))
        unlearned = self.learner.unlearned_forward(x)
        self.monitor.add_changed(unlearned, source)
        seen = add_pair(self.monitor.statistics, unlearned, source)
        self.trial -= len(x)
        if seen is not None and self.trial <= 0 and trusted_again(seen, self.guard):
            self.trial = self.guard.window
            self._learn_or_pause()
        reason = "the source model predicts until adaptation can be trusted"
        return source, health, Harm("source", reason)

    def _measure(self, logits: Tensor, before: Tensor | None) -> tuple[Health, Tensor]:
        return measure(
            logits,
            self.learner.method,
            self.batch,
            features=self.learner.head_input,
            now=flat(self.learner.model.parameters()),
            before=before,
            origin=self.origin,
        )

    # ---- is it well? -------------------------------------------------------------------------

    def _examine(
        self,
        logits: Tensor,
        beside: References,
        health: Health,
        mean: Tensor,
        snapshot: dict[str, Any] | None,
    ) -> Harm | None:
        """Harm, if there is any. A state that does well is kept for later."""
        if self.measures_only:
            if health.finite:
                self._sample(beside.x, logits)
            return None
        if not health.finite:
            return Harm("not finite", "logits or parameters are not finite")
        if health.drift is not None and health.drift > self.guard.max_drift:
            moved = f"the parameters moved {health.drift:.2f} of their norm"
            return Harm("drift", f"{moved} from the source model's")
        self.monitor.add_own(health, mean)
        due = self.batch >= self.next
        if due:
            self._look_again(len(beside.x))
        if not (due or self.trial > 0 or self._moved()):
            return None
        self.trial = max(0, self.trial - len(beside.x))
        harm, doubt = self._compare(logits, beside)
        if doubt and harm is None:
            self.trial = max(self.trial, 1)  # look again at the next batch
        elif harm is None and self.keeps and snapshot is not None and (due or not self.ring):
            self.ring = [*self.ring, snapshot][-self.guard.keep :]
        return harm

    def _look_again(self, size: int) -> None:
        """At so many images from here, and then after twice as many batches as the last time."""
        if self.gap > 1:
            self.monitor.learning.clear()  # it was another model
        self.gap = min(2 * self.gap, round(1 / self.guard.sample))
        self.next = self.batch + self.gap * math.ceil(MANY / size)
        self.trial = max(self.trial, MANY)

    def _compare(self, logits: Tensor, beside: References) -> tuple[Harm | None, bool]:
        """Beside both references: harm, and whether there is doubt."""
        guard, monitor, doubt = self.guard, self.monitor, False
        if self.mode is not Mode.LEARNED or not self.learns:
            beside.unlearned = logits
        monitor.add_changed(logits, beside.source)
        if self.has_statistics:
            seen = add_pair(monitor.statistics, beside.unlearned, beside.source)
            if seen is not None:
                harm = judge_statistics(seen, guard)
                if harm is not None:
                    return harm, True
                doubt = statistics_in_doubt(seen)
        else:
            beside.unlearned = beside.source
        if self.mode is Mode.LEARNED and self.learns:
            seen = add_pair(monitor.learning, logits, beside.unlearned)
            if seen is not None:
                harm = judge_learning(seen, guard)
                return harm, doubt or learning_in_doubt(seen, guard)
        return None, doubt

    def _moved(self) -> bool:
        """Whether the adapted model's own predictions are not what they were."""
        level = self.monitor.level()
        if level is None or self.normal is None or self.monitor.own.images < FEW:
            return False
        moved = level[0] - self.normal[0] > MOVED or self.normal[1] - level[1] > MOVED
        if moved:
            self.normal = level
        return moved

    def _sample(self, x: Tensor, logits: Tensor) -> None:
        """Show the source model a few images; evenly spread, another place in each batch."""
        self.owed += len(x) * self.guard.sample
        k = min(int(self.owed), len(x))
        if k < min(2, len(x)):
            return
        self.owed -= k
        places = (torch.arange(k, device=x.device) * (len(x) // k) + self.batch) % len(x)
        self.monitor.add_changed(logits[places], self.learner.source_forward(x[places]))

    def _accept(self, health: Health) -> None:
        new = self.monitor.level()
        if self.measures_only:  # a reference beside the records, from all batches
            new = (health.entropy / self.monitor.unit, health.marginal_entropy / self.monitor.unit)
        if not health.finite or new is None:
            return
        if self.normal is not None:
            old = self.normal
            new = (0.9 * old[0] + 0.1 * new[0], 0.9 * old[1] + 0.1 * new[1])
        self.normal = new
        self.calm += 1
        if self.calm % FORGIVEN == 0:
            self.strikes = max(0, self.strikes - 1)

    # ---- after harm --------------------------------------------------------------------------

    def _recover(self, beside: References, harm: Harm) -> Tensor:
        """Go to a state that can be trusted; its logits, or a reference's."""
        self.monitor.learning.clear()
        self.monitor.own.clear()
        self.calm, self.trial = 0, max(self.trial, self.guard.window)
        self.gap, self.next = 1, self.batch + 1
        if harm.kind == "not finite":
            self._warn(harm, DONE["skip"])
            return self._finite_logits(beside)
        if harm.kind == "statistics":
            self.learner.start_over()
            self.ring.clear()
            self.monitor.statistics.clear()
            self.mode, self.until = Mode.SOURCE, None
            self.trial = self.proof
            self.proof *= 2  # each time it takes twice the evidence to come back
            self._warn(harm, "the source model predicts until adaptation can be trusted")
            return beside.source
        self.strikes += 1
        logits = self._trusted_logits(beside)
        done = DONE[self.guard.policy] + self._learn_or_pause()
        self._warn(harm, done)
        return beside.unlearned if self.mode is Mode.UNLEARNED else logits

    def _finite_logits(self, beside: References) -> Tensor:
        """Of the state before the update, which is back; else of a reference."""
        logits = self.learner.current(beside.x)
        for other in ("unlearned", "source"):
            if not bool(logits.isfinite().all()):
                logits = getattr(beside, other)
        return logits

    def _learn_or_pause(self) -> str:
        """Learn on, or pause after repeated harm; in words."""
        over = self.strikes - self.guard.strikes
        if over < 0:
            self.mode, self.until = Mode.LEARNED, None
            return ""
        self.mode = Mode.UNLEARNED
        self.learner.start_over()
        self.ring.clear()
        if over >= self.guard.strikes:
            self.until = None
            return "; learning stops until a reset"
        self.until = self.batch + 1 + self.guard.pause * 2**over
        return "; learning stops for a while"

    def _trusted_logits(self, beside: References) -> Tensor:
        """Logits of the first earlier state that does well on this batch."""
        for _ in self._earlier_states():
            logits = self.learner.current(beside.x)
            if judge_learning(compare(logits, beside.unlearned), self.guard) is None:
                return logits
        return beside.unlearned

    def _earlier_states(self) -> Iterator[None]:
        """Put the adapter in the states to try, one after the other, the latest first."""
        if self.guard.policy == "skip":  # before the update
            yield
            return
        while self.guard.policy == "rollback" and self.ring:
            self._restore(self.ring.pop())
            yield
        self.learner.start_over()

    def _restore(self, snapshot: dict[str, Any] | None) -> None:
        if snapshot is not None:
            restore_snapshot(self.learner.model, self.learner.method, snapshot)

    def _warn(self, harm: Harm, done: str) -> None:
        """Once per kind of harm, not per batch."""
        if harm.kind not in self.warned:
            self.warned.add(harm.kind)
            message = f"guard, batch {self.batch}: {harm.reason}; {done}"
            warn(message)

    # ---- state -------------------------------------------------------------------------------

    PLAIN = ("batch", "until", "strikes", "calm", "trial", "proof", "gap", "next", "owed", "normal")

    def state_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in self.PLAIN},
            "mode": self.mode.value,
            "warned": sorted(self.warned),
            "monitor": self.monitor.state_dict(),
            "ring": capture(self.ring),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reset()
        for name in self.PLAIN:
            setattr(self, name, state[name])
        self.mode = Mode(state["mode"])
        self.warned = set(state["warned"])
        self.monitor.load_state_dict(state["monitor"])
        self.ring = capture(state["ring"])
