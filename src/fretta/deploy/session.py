"""One run of `fretta adapt`, from the first file to the page, or from where it stopped."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from typing import Any, BinaryIO

import torch

from ..adapter import Adapter
from ..errors import ConfigError, DataError, StoreError
from ..estimate import Estimator
from ..guard import Health
from ..methods import Source
from . import checkpoint
from .counting import count_batch
from .feed import Feed, Group, grouped, refuse_unreadable
from .folder import check_same, clear, earlier, locked
from .opened import Opened, names_of, open_adapter, open_plan
from .outputs import (
    CHECKPOINT,
    HEALTH,
    PAGE,
    PREDICTIONS,
    SETTINGS,
    WEIGHTS,
    AppendedFile,
    json_line,
    write_json,
    write_whole,
)
from .pace import ADAPTING, CHECK, STATISTICS, Pace
from .page import page
from .plan import Plan
from .remarks import Remarks
from .result import Exported, Outcome
from .rows import HEADER, Predicted, predicted, rows_of
from .tally import SPREAD, Tally
from .weights import write_weights

SAMPLE = 8  # without labels, the source model sees one image in so many
SHARE = 20  # writing checkpoints takes at most 1/SHARE of the time

__all__ = ["Outcome", "Session"]


class Session:
    """Adapts along the images of a plan and writes everything into its folder.

    stopped      asked between batches; True ends the run cleanly, to be resumed
    on_start     called once with what was found; on_batch after every batch with the counts
    on_progress  called whenever some images are done, adapting or writing the weights
    """

    def __init__(
        self,
        plan: Plan,
        *,
        resume: bool = False,
        force: bool = False,
        stdin: BinaryIO | None = None,
        stopped: Callable[[], bool] = lambda: False,
        on_start: Callable[[Opened, Tally], None] = lambda opened, tally: None,
        on_batch: Callable[[Tally], None] = lambda tally: None,
        on_progress: Callable[[Pace], None] = lambda pace: None,
        on_remark: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.plan, self.resume, self.force, self.stdin = plan, resume, force, stdin
        self.stopped, self.on_start, self.on_batch = stopped, on_start, on_batch
        self.on_progress, self.remarks = on_progress, Remarks(on_remark)

    def run(self) -> Outcome:
        with locked(self.plan.out), self.remarks.collecting():
            before = earlier(self.plan.out, self.resume, self.force)
            if before is not None and before.get("complete"):
                raise StoreError(
                    f"the run in {str(self.plan.out)!r} is complete: there is nothing to resume;"
                    " --force repeats it"
                )
            self.opened = open_plan(self.plan, self.stdin)
            self.decisive = self.opened.decisive(self.plan)
            for text in self.opened.remarks:
                self.remarks.add(text)
            self._begin(before)
            try:
                return self._go()
            except BaseException:
                if not self.tally.files:  # nothing is lost, and the next try finds it empty
                    clear(self.plan.out)
                raise
            finally:
                self.csv.close()
                self.jsonl.close()

    # ---- the beginning -----------------------------------------------------------------------

    def _begin(self, before: dict[str, Any] | None) -> None:
        plan, opened = self.plan, self.opened
        self.health: Health | None = None
        self.adapter: Adapter = open_adapter(plan, opened, self._note)
        self.estimator = Estimator(prior=opened.prior)
        self.tally, csv, jsonl = Tally(), 0, 0
        if before is not None:
            check_same(before["decisive"], self.decisive, plan.out)
            saved = checkpoint.load(plan.out / CHECKPOINT)
            if saved is not None:
                facts, tensors = saved
                self.tally = Tally.from_json(facts["tally"])
                csv, jsonl = facts["csv"], facts["jsonl"]
                self.adapter.load_state_dict(tensors["adapter"])
                self.estimator.load_state_dict(tensors["estimator"])
        else:
            clear(plan.out)
        self.resumed_at = self.tally.batches
        self._settings(None)
        self.csv = AppendedFile(plan.out / PREDICTIONS, csv)
        self.jsonl = AppendedFile(plan.out / HEALTH, jsonl)
        if not csv:
            self.csv.append(HEADER)
        self.saved, self.pause = time.monotonic(), plan.checkpoint_seconds
        self.whole = True  # the state belongs to the end of a batch
        self.on_start(opened, self.tally)
        total = opened.total or 0
        ending = {STATISTICS: min(plan.statistics, total), CHECK: min(SPREAD, total)}
        self.pace = Pace(ending, self.on_progress)
        self.pace.begin(ADAPTING, opened.total, self.tally.files)

    def _settings(self, outcome: Outcome | None) -> None:
        values: dict[str, Any] = {
            "format": "fretta-adapt/1",
            "complete": outcome is not None and outcome.complete,
            "plan": {k: str(v) if isinstance(v, os.PathLike) else v for k, v in _plain(self.plan)},
            "decisive": self.decisive,
            "preprocessing": self.opened.preprocessing.to_json(),
            "decoding": asdict(self.opened.decoding),
            "hyperparameters": self.adapter.hyperparameters,
        }
        if outcome is not None:
            values["result"] = outcome.to_json()
        write_json(self.plan.out / SETTINGS, values)

    def _note(self, health: Health) -> None:
        self.health = health

    # ---- the loop ----------------------------------------------------------------------------

    def _go(self) -> Outcome:
        begin = time.monotonic()
        ended = False
        try:
            ended = self._stream()
        except BaseException:
            if self.whole:  # the first error is the one to tell
                with suppress(StoreError):
                    self._save()
            raise
        self._save()
        outcome = Outcome(self.plan.out, ended, self.tally, remarks=self.remarks.texts)
        if not self.tally.images and not ended:  # stopped before there was anything
            return outcome
        if not self.tally.images:
            raise DataError(
                f"none of {self.tally.files:,} files could be read: nothing to adapt to"
            )
        outcome.resumed_at = self.resumed_at
        counts = [self.tally.adapted.get(i, 0) for i in range(len(self.opened.labels.names))]
        outcome.estimate = self.estimator.result(counts)
        outcome.names = self.opened.labels.names
        outcome.why_source = self._why_source()
        outcome.exported = self._export()
        outcome.seconds = time.monotonic() - begin
        text = page(self.plan, self.opened, self.adapter, outcome)
        write_whole(self.plan.out / PAGE, text.encode("utf-8", "backslashreplace"))
        self._settings(outcome)
        if ended:
            (self.plan.out / CHECKPOINT).unlink(missing_ok=True)
        return outcome

    def _why_source(self) -> str:
        if isinstance(self.adapter.method, Source):
            return "nothing was adapted"
        return "the guard set adaptation aside" if self.adapter.safe else ""

    def _export(self) -> Exported | None:
        """The weights; None where the method cannot be written down as weights."""
        path = self.plan.out / WEIGHTS
        if self.adapter.safe:
            self.remarks.add(
                "at the end the guard let the source model predict, since adaptation looked"
                " harmful: the written weights are the original ones. A source model that is sure"
                " and wrong can mislead it: --guard warn only watches, and tells whether adapting"
                " is estimated to help"
            )
        try:
            return write_weights(path, self.adapter, self.opened, self.plan, self.tally, self.pace)
        except ConfigError as error:
            self.remarks.add(f"no weights were written: {error}")
            return None

    def _stream(self) -> bool:
        """Every batch; whether the end was reached."""
        plan, opened = self.plan, self.opened
        stop = threading.Event()
        left = None if opened.total is None else opened.total - self.tally.files
        names = self._remaining(names_of(opened, plan, stop), self.tally.files, self.tally.chain)
        groups = grouped(names, plan.batch_size, left)
        with Feed(groups, opened.listing.path, opened.decoding, plan.workers, stop) as feed:
            while (group := self._take(feed)) is not None:
                if not plan.skip_unreadable:
                    refuse_unreadable(
                        group,
                        f"everything before this batch is kept in {plan.out}: repair or remove the"
                        " file, or go on with --resume --skip-unreadable",
                    )
                self._batch(group)
                self.on_batch(self.tally)
                self.pace.advance(len(group.names))
                if time.monotonic() - self.saved >= self.pause:
                    self._save()
        return feed.ended

    def _take(self, feed: Feed) -> Group | None:
        with self.pace.waiting():
            return feed.take(self.stopped)

    def _remaining(self, names: Iterator[str], done: int, chain: str) -> Iterator[str]:
        """The names after those a resumed run has seen, which must be the same as then."""
        seen = Tally()
        seen.link(islice(names, done))
        if seen.chain != chain:
            raise StoreError(
                f"the {done:,} paths before the checkpoint are not those of the run in"
                f" {str(self.plan.out)!r}; give the same paths in the same order, or --force"
            )
        yield from names

    def _batch(self, group: Group) -> None:
        seen: Predicted | None = None
        self.whole, self.health = False, None
        if group.kept:
            seen = self._predict(group)
        self.csv.append(rows_of(group, seen, self.opened.labels))
        health: Health | None = self.health
        if health is not None:
            self.jsonl.append(json_line(health.to_json()))
        count_batch(self.tally, group, seen, self.opened.truth, self.plan.statistics)
        self.whole = True

    def _predict(self, group: Group) -> Predicted:
        x = self.opened.preprocessing.apply(group.pixels, self.opened.device)
        logits = self.adapter(x).float().cpu()
        rows = torch.arange(len(x))
        if not (self.plan.compare_source or self.opened.truth):
            rows = rows[::SAMPLE]
        with self.pace.forwarding(len(rows)):
            source = self.adapter.source_logits(x[rows.to(x.device)]).float().cpu()
        self.estimator.update(source, logits[rows])
        before = dict(zip(rows.tolist(), source.argmax(1).tolist(), strict=True))
        return predicted(logits, before)

    def _save(self) -> None:
        """Files first, then the checkpoint that says how much of them counts."""
        begin = time.monotonic()
        self.csv.sync()
        self.jsonl.sync()
        facts = {"tally": self.tally.to_json(), "csv": self.csv.size, "jsonl": self.jsonl.size}
        tensors = {
            "adapter": self.adapter.state_dict(),
            "estimator": self.estimator.state_dict(),
        }
        checkpoint.save(self.plan.out / CHECKPOINT, facts, tensors)
        self.saved = time.monotonic()
        asked = self.plan.checkpoint_seconds  # 0: after every batch, whatever it costs
        self.pause = max(asked, SHARE * (self.saved - begin)) if asked else 0.0


def _plain(plan: Plan) -> list[tuple[str, Any]]:
    return [(k, dict(v) if isinstance(v, Mapping) else v) for k, v in vars(plan).items()]
