"""The guard at work: measure each batch, notice harm, undo it, and decide who predicts next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import warn
from ..method import Method
from ..parts.classifier import Classifier
from ..state import capture, copy_value, restore_snapshot, take_snapshot
from .guard import Guard
from .health import Health
from .judge import FEW, Harm, judge, trusted_again
from .monitor import Monitor, compare, flat, measure

CALM = 8  # good batches in a row after which less certain predictions must show on more images
FORGIVEN = 64  # good batches in a row that take back a strike
DONE = {
    "skip": "the update is undone",
    "rollback": "the last good state is back",
    "reset": "the model is back in its initial state",
}


class Mode(StrEnum):
    LEARNING = "learning"  # the adapted model predicts and learns
    PAUSED = "paused"  # after repeated harm: it predicts, but does not learn
    SOURCE = "source"  # no adapted state can be trusted: the source model predicts


class Learner(Protocol):
    """What the supervisor needs of an adapter."""

    model: Classifier
    method: Method
    head_input: Tensor | None  # what entered the head in the last forward

    def learn(self, x: Tensor) -> Tensor: ...  # predict and adapt
    def current(self, x: Tensor) -> Tensor: ...  # predict only
    def source_forward(self, x: Tensor) -> Tensor: ...
    def start_over(self) -> None: ...  # model and method in their initial state


class Supervisor:
    """Runs the batches of an adapter, measures its health, and acts by the policy of a guard.

    Without a guard it only measures. With one it is in a `mode`, `until` a batch or until the
    evidence changes (None). In source mode the adapted model is compared silently, and trusted
    again once it is as good as the source model on enough images.
    """

    def __init__(self, learner: Learner, guard: Guard | None, classes: int) -> None:
        self.learner, self.classes = learner, classes
        self.measures_only = guard is None
        self.guard = guard or Guard("warn")
        self.acts = self.guard.policy != "warn"
        self.origin = flat(learner.model.origin.values())
        self.warned: set[str] = set()  # kinds of harm
        self.reset()

    def reset(self) -> None:
        window = self.guard.window
        self.batch = 0
        self.mode = Mode.LEARNING
        self.until: int | None = None  # the batch at which a pause ends; None: a reset, or evidence
        self.strikes = 0  # times of harm, less one for every long calm
        self.calm = 0  # good batches in a row
        self.trial = window  # images still to be compared with the source model in full
        self.proof = 4 * window  # images on which to be as good as the source model, to come back
        self.owed = 0.0  # images the source model has still to see, while all is well
        self.normal: tuple[float, float] | None = None  # running entropy and marginal, of ln C
        self.monitor = Monitor(self.guard, self.classes)
        self.ring: list[dict[str, Any]] = []  # snapshots of good states, the newest last

    # ---- one batch ---------------------------------------------------------------------------

    def run(self, x: Tensor) -> tuple[Tensor, Health]:
        """Logits to return, and the record."""
        if self.until is not None and self.batch >= self.until:
            self.mode, self.until = Mode.LEARNING, None
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
        learning = self.mode is Mode.LEARNING
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
        harm, source = self._examine(x, logits, health, mean)
        if harm is None:
            self._accept(health, snapshot)
        elif self.acts:
            self._restore(snapshot)
            logits = self._recover(x, harm, source)
            again, _ = measure(logits, learner.method, self.batch)
            health = replace(health, entropy=again.entropy, marginal_entropy=again.marginal_entropy)
        else:
            self._warn(harm, "the guard only warns")
        return logits, health, harm

    def _source_batch(self, x: Tensor) -> tuple[Tensor, Health, Harm | None]:
        """The source model predicts; the adapted one does so silently, and does not learn."""
        source = self.learner.source_forward(x)
        logits = self.learner.current(x)
        health, _ = self._measure(source, flat(self.learner.model.parameters()))
        self.monitor.add_pair(logits, source, entire=True)
        compared = self.monitor.compared
        if compared.images >= compared.size and trusted_again(compared.comparison(), self.guard):
            compared.rows.clear()
            compared.size = self.guard.window
            self.trial = 2 * self.guard.window
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
        self, x: Tensor, logits: Tensor, health: Health, mean: Tensor
    ) -> tuple[Harm | None, Tensor | None]:
        """Harm, if there is any, and the source model's logits of the batch, if computed."""
        guard, monitor = self.guard, self.monitor
        if self.measures_only:
            if health.finite:
                monitor.own.rows.clear()
                monitor.add_own(health, mean)
                self._sample(x, logits)
            return None, None
        if not health.finite:
            return Harm("not finite", "logits or parameters are not finite"), None
        if health.drift is not None and health.drift > guard.max_drift:
            moved = f"the parameters moved {health.drift:.2f} of their norm"
            return Harm("drift", f"{moved} from the source model's"), None
        monitor.add_own(health, mean)
        if not self._in_doubt():
            self._sample(x, logits)
            return None, None
        source = self.learner.source_forward(x)
        monitor.add_pair(logits, source, entire=True)
        self.trial = max(0, self.trial - len(x))
        if monitor.compared.images < 8:
            return None, source
        harm = judge(
            monitor.compared.comparison(),
            guard,
            own_past=None if self.normal is None else self.normal[1],
            source_past=monitor.past.comparison().source_marginal
            if monitor.past.images >= guard.window
            else None,
        )
        enough = monitor.compared.images >= guard.window // 2
        if harm is None and enough:
            monitor.compared.rows.clear()
            self.normal = monitor.level()
        if harm is not None and harm.kind == "entropy" and self.calm >= CALM and not enough:
            harm = None  # it went well so far: a few hard images are no harm yet
        return harm, source

    def _in_doubt(self) -> bool:
        """Whether this batch is compared with the source model in full."""
        guard, monitor = self.guard, self.monitor
        if self.trial > 0 or monitor.compared.images:
            return True
        entropy, marginal = monitor.level()
        if self.normal is not None and monitor.own.images >= FEW:
            # two thirds of what would be harm
            less_certain = entropy - self.normal[0] > guard.entropy_gap * 2 / 3
            fewer_classes = self.normal[1] - marginal > guard.collapse_gap * 2 / 3
            if less_certain or fewer_classes:
                return True
        if monitor.sampled.images < 8:
            return False
        harm = judge(monitor.sampled.comparison(), guard)
        return harm is not None and harm.kind == "entropy"

    def _sample(self, x: Tensor, logits: Tensor) -> None:
        """Show the source model a few images; evenly spread, another place in each batch."""
        self.owed += len(x) * self.guard.sample
        k = min(int(self.owed), len(x))
        if k < min(2, len(x)):
            return
        self.owed -= k
        places = (torch.arange(k, device=x.device) * (len(x) // k) + self.batch) % len(x)
        source = self.learner.source_forward(x[places])
        self.monitor.add_pair(logits[places], source, entire=False)

    def _accept(self, health: Health, snapshot: dict[str, Any] | None) -> None:
        if not health.finite:
            return
        new = self.monitor.level()
        if self.normal is not None:
            old = self.normal
            new = (0.9 * old[0] + 0.1 * new[0], 0.9 * old[1] + 0.1 * new[1])
        self.normal = new
        self.calm += 1
        if self.calm % FORGIVEN == 0:
            self.strikes = max(0, self.strikes - 1)
        due = not self.ring or self.calm % self.guard.every == 0
        keeps = self.guard.policy == "rollback" and not self.monitor.compared.rows
        if snapshot is not None and due and keeps:
            self.ring = [*self.ring, snapshot][-self.guard.keep :]

    # ---- after harm --------------------------------------------------------------------------

    def _recover(self, x: Tensor, harm: Harm, source: Tensor | None) -> Tensor:
        """Go to a state that can be trusted; its logits, or the source model's."""
        source = self.learner.source_forward(x) if source is None else source
        logits = self._trusted_logits(x, harm, source)
        self.monitor.compared.rows.clear()
        self.monitor.own.rows.clear()
        self.calm, self.trial = 0, max(self.trial, 2 * self.guard.window)
        if harm.kind != "not finite":
            self.strikes += 1
        done = DONE[self.guard.policy] + self._learn_or_pause()
        if logits is None:
            self.mode, self.until = Mode.SOURCE, None
            self.monitor.compared.size = self.proof
            self.proof *= 2  # each time it takes twice the evidence to come back
            done += "; the source model predicts until adaptation can be trusted"
        self._warn(harm, done)
        return source if logits is None else logits

    def _learn_or_pause(self) -> str:
        """Learn on, or pause after repeated harm; in words."""
        over = self.strikes - self.guard.strikes
        if over < 0:
            self.mode, self.until = Mode.LEARNING, None
            return ""
        self.mode = Mode.PAUSED
        if over >= self.guard.strikes:
            self.until = None
            return "; learning stops until a reset"
        self.until = self.batch + 1 + self.guard.pause * 2**over
        return "; learning stops for a while"

    def _trusted_logits(self, x: Tensor, harm: Harm, source: Tensor) -> Tensor | None:
        """Logits of the first state that does well on this batch; None if there is none."""
        for _ in self._earlier_states(harm):
            logits = self.learner.current(x)
            if not bool(logits.isfinite().all()):
                continue
            if len(x) < FEW:  # too few to judge: trust it if it was the update that went wrong
                well = harm.kind in ("not finite", "drift")
            else:
                well = judge(compare(logits, source), self.guard) is None
            if well:
                return logits
        return None

    def _earlier_states(self, harm: Harm) -> Iterator[None]:
        """Put the adapter in the states to try, one after the other, the latest first."""
        policy = self.guard.policy
        if policy == "skip" or harm.kind == "not finite":
            yield  # before the update: only where the update itself did the harm
        while policy == "rollback" and self.ring:
            self._restore(self.ring[-1])
            yield
            self.ring.pop()
        if policy != "skip":
            self.learner.start_over()
            yield

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

    PLAIN = ("batch", "until", "strikes", "calm", "trial", "proof", "owed", "normal")

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
