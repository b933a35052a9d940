"""The guard at work: watch each batch, notice trouble, undo it, end in a safe place."""

from __future__ import annotations

import math
import warnings
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import FrettaWarning
from ..method import Method
from ..parts.classifier import Classifier
from ..parts.undo import Undo, flat, journals
from .config import Guard
from .evidence import Comparison, Recent, Trouble, judge, pair_row
from .health import Health
from .measure import FeatureTap, Numbers, measure

FEW = 16  # a batch of fewer images is not judged by itself
SAMPLED = 32  # images over which `changed` is counted
CALM = 8  # good batches in a row after which trouble must show on more images
PROBATION = 4  # batches compared in full after trouble


class Subject(Protocol):
    """What the keeper needs of an adapter."""

    model: Classifier
    method: Method
    tap: FeatureTap | None

    def learn(self, x: Tensor) -> Tensor: ...  # predict and adapt
    def current(self, x: Tensor) -> Tensor: ...  # predict only
    def source_forward(self, x: Tensor) -> Tensor: ...
    def restart(self) -> None: ...
    def running(self) -> dict[str, Any]: ...


class Keeper:
    """Runs the batches of an adapter, measures its health, and acts by the policy of a guard.

    learning    the normal state
    paused      after repeated trouble: predicts, but does not learn for a while
    safe        no adapted state can be trusted on these images: the source model predicts, and
                the adapted one is compared with it until it can be trusted again
    """

    def __init__(self, guard: Guard | None, subject: Subject, classes: int) -> None:
        self.guard, self.config = guard, guard or Guard("warn")
        self.a, self.unit = subject, math.log(classes)
        self.acts = guard is not None and guard.policy != "warn"
        self.undo = Undo(subject.model.net, subject.model.parameters())
        self.origin = flat(subject.model.origin.values())
        self.said: set[str] = set()
        self.begin()

    def begin(self) -> None:
        """In its initial state."""
        self.count = 0
        self.safe = False
        self.strikes, self.pause_left, self.calm = 0, 0, 0
        self.probation, self.quiet, self.backoff = 0, 0, 8
        self.credit, self.compared, self.entries = 0.0, 0, 0
        self.own: tuple[float, float] | None = None  # running (entropy, marginal), of ln C
        self.recent = Recent(self.config.window // 2)  # the adapted model alone
        self.sampled = Recent(SAMPLED)  # with the source model, on a few images
        self.past = Recent(2 * self.config.window)  # the same over a longer time
        self.pairs = Recent(self.config.window)  # with the source model, on whole batches
        self.ring: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.since = 0  # good batches since the last snapshot

    # ---- one batch ---------------------------------------------------------------------------

    def batch(self, x: Tensor) -> tuple[Tensor, Health]:
        """Logits to return, and the record."""
        if self.safe:
            logits, numbers, trouble = self._safe_batch(x)
        else:
            logits, numbers, trouble = self._batch(x)
        self.count += 1
        action = "" if trouble is None or self.guard is None else self.guard.policy
        health = Health(
            batch=self.count - 1,
            samples=len(x),
            nrs=numbers.nrs,
            entropy=numbers.entropy,
            marginal_entropy=numbers.marginal_entropy,
            reference_marginal=None if self.own is None else self.own[1] * self.unit,
            changed=1 - float(self.sampled.mean()[2]) if self.sampled.n else None,
            pass_rate=numbers.pass_rate,
            drift=numbers.drift,
            update_norm=numbers.update_norm,
            action=action,
            reason=trouble.reason if action and trouble is not None else "",
        )
        return logits, health

    def _batch(self, x: Tensor) -> tuple[Tensor, Numbers, Trouble | None]:
        a = self.a
        objects = a.running()
        learning = self.pause_left == 0
        moment: dict[str, Any] | None = None
        before = flat(self.undo.parameters)
        if learning and self.acts:
            moment = self.undo.take(objects)
            try:
                logits = a.learn(x)
            except BaseException:  # a batch that fails, or is interrupted, leaves no trace
                self.undo.back(a.method, objects, moment)
                raise
        else:
            logits = a.learn(x) if learning else a.current(x)
            self.pause_left = max(0, self.pause_left - 1)
        numbers = self._measure(logits, before)
        trouble, source = self._look(x, logits, numbers)
        if trouble is None:
            self._accept(numbers, moment, objects)
            return logits, numbers, None
        if not self.acts:
            if self.guard is not None:
                self._say(trouble, "nothing is done about it (policy 'warn')")
            return logits, numbers, trouble
        if moment is not None:
            self.undo.back(a.method, objects, moment)
        logits = self._recover(x, trouble, source)
        again = measure(logits, a.method)
        finite = numbers.finite
        numbers = Numbers(
            **{**vars(numbers), "entropy": again.entropy, "mean": again.mean, "finite": finite}
        )
        return logits, numbers, trouble

    def _measure(self, logits: Tensor, before: Tensor | None) -> Numbers:
        return measure(
            logits,
            self.a.method,
            features=None if self.a.tap is None else self.a.tap.features,
            now=flat(self.undo.parameters),
            before=before,
            origin=self.origin,
        )

    # ---- is it well? -------------------------------------------------------------------------

    def _look(
        self, x: Tensor, logits: Tensor, numbers: Numbers
    ) -> tuple[Trouble | None, Tensor | None]:
        """Trouble, if there is any, and the source model's logits of the batch, if computed."""
        if self.guard is None:  # callbacks only: measure, and judge nothing
            if numbers.finite:
                self._sample(x, logits)
            return None, None
        if not numbers.finite:
            return Trouble("not finite", "logits or parameters are not finite"), None
        if numbers.drift is not None and numbers.drift > self.config.max_drift:
            reason = (
                f"the parameters moved {numbers.drift:.2f} of their norm from the source model's"
            )
            return Trouble("drift", reason), None
        if not self._doubtful(numbers):
            self._sample(x, logits)
            return None, None
        source = self.a.source_forward(x)
        row = pair_row(logits, source)
        self.compared += len(x)
        for kept in (self.pairs, self.sampled, self.past):
            kept.add(len(x), row)
        seen = Comparison.of(self.pairs.n, self.pairs.mean())
        if seen.images < 8:
            return None, source
        own = None if self.own is None else self.own[1]
        past = (
            Comparison.of(self.past.n, self.past.mean()).source_marginal
            if self.past.n >= self.config.window
            else None
        )
        trouble = judge(seen, self.config, own, past)
        enough = self.pairs.n >= self.config.window // 2
        if trouble is None and enough:
            self._reassured()
        if trouble is not None and trouble.kind == "entropy" and self.calm >= CALM and not enough:
            return None, source  # it went well so far: a few hard images are no trouble yet
        return trouble, source

    def _doubtful(self, numbers: Numbers) -> bool:
        """Whether this batch is compared with the source model in full."""
        self.recent.add(
            numbers.samples,
            torch.cat([torch.tensor([numbers.entropy], dtype=torch.float64), numbers.mean]),
        )
        if self.compared < self.config.window or self.probation > 0 or self.pairs.n:
            return True
        h, m = self._own_now()
        if self.own is not None and self.recent.n >= FEW:
            # two thirds of what would be harm
            less_certain = h - self.own[0] > self.config.entropy_gap * 2 / 3
            fewer = self.own[1] - m > self.config.collapse_gap * 2 / 3
            if less_certain or fewer:
                return True
        if self.sampled.n >= 8 and self.count >= self.quiet:
            seen = Comparison.of(self.sampled.n, self.sampled.mean())
            return seen.entropy - seen.source_entropy > self.config.entropy_gap
        return False

    def _own_now(self) -> tuple[float, float]:
        row = self.recent.mean()
        marginal = float(torch.special.entr(row[1:]).sum())
        return float(row[0]) / self.unit, marginal / self.unit

    def _reassured(self) -> None:
        """Compared, and found well: take today's numbers as normal; ask again later, and rarer."""
        self.pairs.clear()
        self.probation = max(0, self.probation - 1)
        self.own = self._own_now()
        self.quiet = self.count + self.backoff
        self.backoff = min(2 * self.backoff, 128)

    def _sample(self, x: Tensor, logits: Tensor) -> None:
        """Show the source model a few images; evenly spread, another place in each batch."""
        self.credit += len(x) * self.config.sample
        k = min(int(self.credit), len(x))
        if k < min(2, len(x)):
            return
        self.credit -= k
        places = (torch.arange(k, device=x.device) * (len(x) // k) + self.count) % len(x)
        row = pair_row(logits[places], self.a.source_forward(x[places]))
        self.sampled.add(k, row)
        self.past.add(k, row)

    def _accept(
        self, numbers: Numbers, moment: dict[str, Any] | None, objects: dict[str, Any]
    ) -> None:
        if not numbers.finite:
            return
        if self.guard is None:
            now = (numbers.entropy / self.unit, numbers.marginal_entropy / self.unit)
        else:
            now = self._own_now()
        self.own = (
            now
            if self.own is None
            else (0.9 * self.own[0] + 0.1 * now[0], 0.9 * self.own[1] + 0.1 * now[1])
        )
        self.calm += 1
        if self.calm % 64 == 0:
            self.strikes = max(0, self.strikes - 1)
        if moment is None:
            return
        self.since += 1
        due = self.since >= self.config.every or not self.ring
        if self.config.policy == "rollback" and due and not self.pairs.n:
            self.ring = [*self.ring, (moment, objects)][-self.config.keep :]
            self.since = 0
        oldest = self.ring[0][0] if self.ring else moment
        for name, journal in journals(objects).items():
            if name in oldest["running"]:
                journal.forget(oldest["running"][name])

    # ---- trouble -----------------------------------------------------------------------------

    def _recover(self, x: Tensor, trouble: Trouble, source: Tensor | None) -> Tensor:
        """Go to a state that can be trusted; its logits, or the source model's."""
        a = self.a
        source = a.source_forward(x) if source is None else source
        logits = self._trusted(x, trouble, source)
        self.pairs.clear()
        self.recent.clear()
        self.probation, self.calm, self.backoff = PROBATION, 0, 8
        if trouble.kind != "not finite":
            self.strikes += 1
        done = {
            "skip": "the update is undone",
            "rollback": "the last good state is back",
            "reset": "the model is back in its initial state",
        }[self.config.policy]
        if logits is None:
            self.safe = True
            self.entries += 1
            # each time it takes twice the evidence to come back
            self.pairs.images = 4 * self.config.window * 2 ** min(self.entries - 1, 20)
            done += " and the source model predicts until adaptation can be trusted"
        if self.strikes >= self.config.strikes:
            over = self.strikes - self.config.strikes
            forever = over >= self.config.strikes
            self.pause_left = 2**62 if forever else self.config.pause * 2**over
            done += "; learning stops" + (" until a reset" if forever else " for a while")
        self._say(trouble, done)
        return source if logits is None else logits

    def _trusted(self, x: Tensor, trouble: Trouble, source: Tensor) -> Tensor | None:
        """Restore the first state that is well on this batch; None if there is none.

        The state before the update is tried first only where the update itself was the trouble.
        """
        tries: list[int | None] = []  # places in the ring; -1: as it is; None: the initial state
        if trouble.kind == "not finite" or self.config.policy == "skip":
            tries.append(-1)
        if self.config.policy == "rollback":
            tries += list(range(len(self.ring)))[::-1]
        if self.config.policy != "skip":
            tries.append(None)
        for place in tries:
            self._go_to(place)
            logits = self.a.current(x)
            if not bool(logits.isfinite().all()):
                continue
            if len(x) < FEW:  # too few to judge: trust it if it was the update that went wrong
                well = trouble.kind in ("not finite", "drift")
            else:
                row = pair_row(logits, source)
                well = judge(Comparison.of(len(x), row), self.config) is None
            if well:
                return logits
        return None

    def _go_to(self, place: int | None) -> None:
        if place == -1:
            return
        if place is None:
            self.a.restart()
            self.ring.clear()
        else:
            moment, objects = self.ring[place]
            del self.ring[place + 1 :]
            self.undo.back(self.a.method, objects, moment)
        self.since = 0

    def _safe_batch(self, x: Tensor) -> tuple[Tensor, Numbers, Trouble | None]:
        """The source model predicts; the adapted one does so silently, and does not learn."""
        source = self.a.source_forward(x)
        logits = self.a.current(x)
        before = flat(self.undo.parameters)
        numbers = self._measure(source, before)
        row = pair_row(logits, source)
        if bool(row.isfinite().all()):
            for kept in (self.pairs, self.sampled, self.past):
                kept.add(len(x), row)
        reason = "the source model predicts until adaptation can be trusted"
        trouble = Trouble("safe", reason)
        if self.pairs.n >= self.pairs.images:
            seen = Comparison.of(self.pairs.n, self.pairs.mean())
            if judge(seen, self.config, strict=True) is None:
                self.safe = False
                self.pairs.clear()
                self.pairs.images = self.config.window
                self.probation = PROBATION
        return source, numbers, trouble

    def _say(self, trouble: Trouble, done: str) -> None:
        """Once per kind of event, not per batch."""
        if trouble.kind not in self.said:
            self.said.add(trouble.kind)
            message = f"guard, batch {self.count}: {trouble.reason}; {done}"
            warnings.warn(message, FrettaWarning, stacklevel=6)

    # ---- state -------------------------------------------------------------------------------

    PLAIN = (
        *("count", "safe", "strikes", "pause_left", "calm", "probation", "quiet", "backoff"),
        *("credit", "compared", "entries", "own", "since"),
    )
    WINDOWS = ("recent", "sampled", "past", "pairs")

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {name: getattr(self, name) for name in self.PLAIN}
        state.update({name: getattr(self, name).state() for name in self.WINDOWS})
        state["said"] = sorted(self.said)
        state["pairs_images"] = self.pairs.images
        state["ring"] = [moment for moment, _ in self.ring]
        state["journals"] = {n: j.journal_state() for n, j in journals(self.a.running()).items()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.begin()
        for name in self.PLAIN:
            setattr(self, name, state[name])
        for name in self.WINDOWS:
            getattr(self, name).load(state[name])
        self.said = set(state["said"])
        self.pairs.images = state["pairs_images"]
        objects = self.a.running()
        self.ring = [(moment, objects) for moment in state["ring"]]
        for name, journal in journals(objects).items():
            journal.load_journal(state["journals"][name])
