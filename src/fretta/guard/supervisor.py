"""The guard at work: measure each batch, notice harm, undo it, and decide who predicts next."""

from __future__ import annotations

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
    Harm,
    does_well,
    judge_learning,
    judge_statistics,
    learning_in_doubt,
    statistics_in_doubt,
    trusted_again,
)
from .monitor import Monitor, add_pair, compare, flat, measure
from .references import Learner, References
from .schedule import Looks

MOVED = 0.1  # of ln C: entropy or marginal so far from what it was, and the references are asked
WATCHED = 1 / 32  # share of the images that the source model sees without a guard
MOVING = 10.0  # times the limit where statistics move: without learning they would be others
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
        self.limits = self.guard
        if learner.model.statistics is not None:  # they are those of the learned model
            self.limits = replace(self.guard, max_cost=MOVING * self.guard.max_cost)
        self.acts = self.guard.policy != "warn"
        self.origin = flat(learner.model.origin.values())
        self.learns = bool(learner.model.adapted)
        self.keeps = self.learns and self.guard.policy == "rollback"
        method = learner.method
        hedged = method.settles and learner.model.statistics is not None  # sees to it by itself
        self.has_statistics = bool(learner.model.batch_norms) and method.adapts and not hedged
        self.warned: set[str] = set()  # kinds of harm
        self.reset()

    def reset(self) -> None:
        self.batch = 0
        self.mode = Mode.LEARNED
        self.until: int | None = None  # the batch at which a pause ends; None: a reset, or evidence
        self.strikes = 0  # times of harm by learning, less one for every long calm
        self.calm = 0  # good batches in a row
        window, share = self.guard.window, self.guard.sample
        self.look_unlearned, self.look_source = Looks(share, window), Looks(share / 4, window)
        self.proof = window // 2  # images on which to do better than the source model, to be back
        self.missing = 0  # of these
        self.doubted = False  # whether the statistics are in doubt, on the first images
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
            logits = learner.learn(x) if learning else learner.watch(x)
        except BaseException:  # a batch that fails, or is interrupted, leaves no trace
            self._restore(snapshot)
            raise
        health, mean = self._measure(logits, before)
        beside = References(learner, x)
        harm = self._examine(logits, beside, health, mean, snapshot)
        if harm is None:
            self._accept(health)
        elif self.acts:
            logits = self._recover(beside, harm, snapshot)
        else:
            self._warn(harm, "the guard only warns")
        if self.doubted and self.mode is not Mode.SOURCE and self.acts:
            logits = beside.source
            harm = harm or Harm("source", "statistics are in doubt: the source model predicts")
        if harm is not None and self.acts:
            again, _ = measure(logits, learner.method, self.batch)
            health = replace(health, entropy=again.entropy, marginal_entropy=again.marginal_entropy)
        return logits, health, harm

    def _source_batch(self, x: Tensor) -> tuple[Tensor, Health, Harm | None]:
        """The source model predicts; the statistics do so silently, and nothing is learned."""
        source = self.learner.source_forward(x)
        health, _ = self._measure(source, flat(self.learner.model.parameters()))
        unlearned = self.learner.watch(x)
        self.monitor.add_changed(unlearned, source)
        seen = add_pair(self.monitor.statistics, unlearned, source)
        self.missing -= len(x)
        if seen is not None and self.missing <= 0 and trusted_again(seen, self.guard):
            self._look_closely()
            self.doubted = False
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
        self.monitor.add_own(health, mean)
        learned = self.mode is Mode.LEARNED and self.learns
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
            harm = self._examine_learning(logits, beside, snapshot)
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

    def _examine_learning(
        self, logits: Tensor, beside: References, snapshot: dict[str, Any] | None
    ) -> Harm | None:
        """The learned model beside the one without learning. A good state is kept for later."""
        if not self.learner.model.batch_norms:
            beside.unlearned = beside.source
        seen = add_pair(self.monitor.learning, logits, beside.unlearned)
        if seen is None:
            return None
        if learning_in_doubt(seen, self.limits):
            self.look_unlearned.ask(1)
        elif self.keeps and snapshot is not None:
            self.ring = [*self.ring, snapshot][-self.guard.keep :]
        return judge_learning(seen, self.limits)

    def _look_closely(self) -> None:
        for looks in (self.look_unlearned, self.look_source):
            looks.ask(self.guard.window)

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
        self.owed += len(x) * WATCHED
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

    def _recover(self, beside: References, harm: Harm, before: dict[str, Any] | None) -> Tensor:
        """Go to a state that can be trusted; its logits, or a reference's."""
        self.monitor.learning.clear()
        self.monitor.own.clear()
        self.calm = 0
        self._look_closely()
        if harm.kind == "not finite":
            self._restore(before)
            self._warn(harm, DONE["skip"])
            return self._finite_logits(beside)
        if harm.kind == "statistics":
            self._forget()
            self.monitor.statistics.clear()
            self.mode, self.until = Mode.SOURCE, None
            self.missing = self.proof
            self.proof *= 2  # each time it takes twice the evidence to come back
            self._warn(harm, "the source model predicts until adaptation can be trusted")
            return beside.source
        self.strikes += 1
        logits = self._trusted_logits(beside, before)
        done = DONE[self.guard.policy] + self._learn_or_pause()
        self._warn(harm, done)
        return beside.unlearned if self.mode is Mode.UNLEARNED else logits

    def _forget(self) -> None:
        """All that was learned."""
        self.learner.unlearn()
        self.ring.clear()

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
        self._forget()
        if over >= self.guard.strikes:
            self.until = None
            return "; learning stops until a reset"
        self.until = self.batch + 1 + self.guard.pause * 2**over
        return "; learning stops for a while"

    def _trusted_logits(self, beside: References, before: dict[str, Any] | None) -> Tensor:
        """Logits of the first earlier state that does well on this batch."""
        unlearned = beside.unlearned  # with the statistics of now
        for _ in self._earlier_states(before):
            logits = self.learner.current(beside.x)
            if does_well(compare(logits, unlearned), self.limits):
                return logits
        return unlearned

    def _earlier_states(self, before: dict[str, Any] | None) -> Iterator[None]:
        """Put the adapter in the states to try, one after the other, the latest first."""
        if self.guard.policy == "skip":
            self._restore(before)
            yield
        elif self.guard.policy == "reset":
            self.learner.start_over()
        else:
            while self.ring:
                self._restore(self.ring.pop(), learned_only=True)
                yield
            self._forget()

    def _restore(self, snapshot: dict[str, Any] | None, learned_only: bool = False) -> None:
        learner = self.learner
        if snapshot is not None:
            without = (*learner.method.lasting, "batch_norm") if learned_only else ()
            restore_snapshot(learner.model, learner.method, snapshot, without)

    def _warn(self, harm: Harm, done: str) -> None:
        """Once per kind of harm, not per batch."""
        if harm.kind not in self.warned:
            self.warned.add(harm.kind)
            message = f"guard, batch {self.batch}: {harm.reason}; {done}"
            warn(message)

    # ---- state -------------------------------------------------------------------------------

    PLAIN = ("batch", "until", "strikes", "calm", "proof", "missing", "owed", "doubted", "normal")

    def state_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in self.PLAIN},
            "mode": self.mode.value,
            "warned": sorted(self.warned),
            "monitor": self.monitor.state_dict(),
            "looks": [self.look_unlearned.state_dict(), self.look_source.state_dict()],
            "ring": capture(self.ring),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reset()
        for name in self.PLAIN:
            setattr(self, name, state[name])
        self.mode = Mode(state["mode"])
        self.warned = set(state["warned"])
        self.monitor.load_state_dict(state["monitor"])
        for looks, saved in zip(
            (self.look_unlearned, self.look_source), state["looks"], strict=True
        ):
            looks.load_state_dict(saved)
        self.ring = capture(state["ring"])
