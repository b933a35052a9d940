"""The guard at work: measure each batch, notice harm, undo it, and decide who predicts next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any

from torch import Tensor

from ..errors import warn
from ..learner import Learner
from ..prepare import predicts
from ..state import capture, copy_value, restore_snapshot, take_snapshot
from .examiner import Examiner
from .guard import Guard
from .health import Health
from .judge import Harm
from .monitor import flat, measure
from .references import References

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
        self.learner = learner
        self.measures_only = guard is None
        self.guard = guard or Guard("warn")
        self.acts = self.guard.policy != "warn"
        self.origin = flat(learner.model.origin.values())
        self.learns = bool(learner.model.adapted)
        self.keeps = self.learns and self.guard.policy == "rollback"
        self.examiner = Examiner(learner, self.guard, classes)
        self.warned: set[str] = set()  # kinds of harm
        self.reset()

    def reset(self) -> None:
        self.batch = 0
        self.mode = Mode.LEARNED
        self.by_source = False  # the last batch got the source model's logits
        self.until: int | None = None  # the batch at which a pause ends; None: a reset, or evidence
        self.strikes = 0  # times of harm by learning, less one for every long calm
        self.calm = 0  # good batches in a row
        self.proof = self.guard.window // 2  # images on which to do better than the source model
        self.missing = 0  # of these
        self.examiner.reset()
        self.ring: list[dict[str, Any]] = []  # snapshots of good states, the newest last

    # ---- one batch ---------------------------------------------------------------------------

    def run(self, x: Tensor, before: dict[str, Any] | None = None) -> tuple[Tensor, Health]:
        """Logits to return, and the record. `before`: a snapshot of now, if there is one."""
        if self.until is not None and self.batch >= self.until:
            self.mode, self.until = Mode.LEARNED, None
        if self.mode is Mode.SOURCE:
            logits, health, harm = self._source_batch(x)
        else:
            logits, health, harm = self._adapted_batch(x, before)
        self.batch += 1
        health = replace(
            health,
            reference_marginal=self.examiner.reference_marginal(),
            changed=self.examiner.monitor.changed,
        )
        if harm is not None:
            health = replace(health, action=self.guard.policy, reason=harm.reason)
        return logits, health

    def _adapted_batch(
        self, x: Tensor, snapshot: dict[str, Any] | None
    ) -> tuple[Tensor, Health, Harm | None]:
        learner, examiner = self.learner, self.examiner
        learning = self.mode is Mode.LEARNED
        before = flat(learner.model.parameters())
        if not (learning and self.acts):
            snapshot = None
        elif snapshot is None:
            snapshot = take_snapshot(learner.model, learner.method, copy_value)
        logits = learner.learn(x) if learning else learner.watch(x)
        health, mean = self._measure(logits, before, learner.head_input)
        beside = References(learner, x)
        if self.measures_only:
            examiner.sample(x, logits, health)
            return logits, health, None
        harm = examiner.examine(logits, beside, health, mean, learning and self.learns)
        if harm is None:
            self._accept(snapshot)
        elif self.acts:
            logits = self._recover(beside, harm, snapshot)
        else:
            self._warn(harm, "the guard only warns")
        if examiner.doubted and self.mode is not Mode.SOURCE and self.acts:
            logits = beside.source
            harm = harm or Harm("source", "statistics are in doubt: the source model predicts")
        if harm is not None and self.acts:
            again, _ = measure(logits, learner.method, self.batch)
            health = replace(health, entropy=again.entropy, marginal_entropy=again.marginal_entropy)
        others = ("source",) if examiner.has_batch_norms else ("source", "unlearned")
        self.by_source = any(logits is vars(beside).get(name) for name in others)
        return logits, health, harm

    def _source_batch(self, x: Tensor) -> tuple[Tensor, Health, Harm | None]:
        """The source model predicts; the statistics do so silently, and nothing is learned."""
        self.by_source = True
        source = self.learner.source_forward(x)
        # no features: those that are kept are of the adapted model, on an earlier batch
        health, _ = self._measure(source, flat(self.learner.model.parameters()), None)
        unlearned = self.learner.watch(x)
        self.missing -= len(x)
        if self.examiner.returns(unlearned, source, enough=self.missing <= 0):
            self._learn_or_pause()
        reason = "the source model predicts until adaptation can be trusted"
        return source, health, Harm("source", reason)

    def _measure(
        self, logits: Tensor, before: Tensor | None, features: Tensor | None
    ) -> tuple[Health, Tensor]:
        return measure(
            logits,
            self.learner.method,
            self.batch,
            features=features,
            now=flat(self.learner.model.parameters()),
            before=before,
            origin=self.origin,
        )

    def _accept(self, snapshot: dict[str, Any] | None) -> None:
        """A good batch. A state that does well is kept for later."""
        self.examiner.accept()
        if self.examiner.good and self.keeps and snapshot is not None:
            self.ring = [*self.ring, snapshot][-self.guard.keep :]
        self.calm += 1
        if self.calm % FORGIVEN == 0:
            self.strikes = max(0, self.strikes - 1)

    # ---- after harm --------------------------------------------------------------------------

    def _recover(self, beside: References, harm: Harm, before: dict[str, Any] | None) -> Tensor:
        """Go to a state that can be trusted; its logits, or a reference's."""
        self.examiner.after(harm)
        self.calm = 0
        if harm.kind == "not finite":
            self._restore(before)
            self._warn(harm, DONE["skip"])
            return self._finite_logits(beside)
        if harm.kind == "statistics":
            self._forget()
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
        """Of the state before the update, which is back; else of a reference. An episode begins
        unlearned."""
        episodic = self.learner.method.episodic
        logits = beside.unlearned if episodic else self.learner.current(beside.x)
        for other in ("unlearned", "source"):
            if not bool(predicts(logits).all()):
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
            if self.examiner.well(logits, unlearned):
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

    PLAIN = ("batch", "until", "strikes", "calm", "proof", "missing")

    def state_dict(self, keep: Callable[[Any], Any] = capture) -> dict[str, Any]:
        """`keep=list`: for memory, where snapshots need no copy."""
        return {
            **{name: getattr(self, name) for name in self.PLAIN},
            "mode": self.mode.value,
            "warned": sorted(self.warned),
            "examiner": self.examiner.state_dict(),
            "ring": keep(self.ring),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reset()
        for name in self.PLAIN:
            setattr(self, name, state[name])
        self.mode = Mode(state["mode"])
        self.warned = set(state["warned"])
        self.examiner.load_state_dict(state["examiner"])
        self.ring = capture(state["ring"])
