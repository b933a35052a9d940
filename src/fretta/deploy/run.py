"""One run of `fretta adapt`, from the first file to the page, or from where it stopped."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from typing import Any, BinaryIO

from ..data.read_ahead import FileBatch, group, read_ahead
from ..errors import DataError, FrettaWarning, StoreError
from ..estimate import Estimate, Estimator
from ..estimate.shares import measure_source
from ..estimate.verdict import HELPS
from ..guard import Health
from ..prepare import predicted_classes
from . import output
from .label_me import ask, read_predictions, set_aside, write_questions
from .options import AdaptOptions
from .output import CHECKPOINT, HEALTH, PREDICTIONS, AppendedFile, write_file
from .progress import ADAPTING, CHECK, STATISTICS, Progress
from .result import SPREAD, AdaptResult, Counts
from .setup import Setup, prepare
from .summary import summary_page
from .weights import write_weights

SAMPLE = 8  # without labels, the source model sees one image in so many
SHARE = 20  # writing checkpoints takes at most 1/SHARE of the time


def adapt_images(
    options: AdaptOptions,
    *,
    resume: bool = False,
    force: bool = False,
    stdin: BinaryIO | None = None,
    stopped: Callable[[], bool] = lambda: False,
    on_start: Callable[[Setup, Counts], None] = lambda setup, counts: None,
    on_batch: Callable[[Counts], None] = lambda counts: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_note: Callable[[str], None] = lambda text: None,
) -> AdaptResult:
    """Adapt along the images and write everything into the folder `options.out`.

    stopped      called between batches; True ends the run cleanly, to be resumed
    on_start     called once with what was found; on_batch after every batch with the counts
    on_progress  called whenever some images are done, adapting or writing the weights
    on_note      called with every warning and note, once each
    """
    with output.lock_folder(options.out), _notes(on_note) as notes:
        previous = output.read_previous(options.out, resume, force)
        setup = prepare(options, stdin, notes.add)
        run = Run(setup, notes, previous, on_progress)
        try:
            on_start(setup, run.counts)
            with closing(run.batches(stopped)) as batches:
                for batch in batches:
                    run.step(batch)
                    on_batch(run.counts)
                    run.save_if_due()
            complete = not stopped()
            run.save()
            return run.finish(complete)
        except BaseException:
            run.save_after_error()
            raise
        finally:
            run.predictions.close()
            run.health.close()


class Run:
    """Adapter, estimator, counts and files, as they are after some batches."""

    def __init__(
        self,
        setup: Setup,
        notes: Notes,
        previous: dict[str, Any] | None,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.setup, self.options, self.notes = setup, setup.options, notes
        self.out = setup.options.out
        self.adapter = setup.options.adapter(setup.case)
        self.adapter.on_health(self._write_health)
        known = measure_source(setup.case, self.options.batch_size) if setup.prior is None else None
        self.estimator = Estimator(prior=setup.prior, source=known)
        self.counts = Counts.empty(len(setup.case.labels.names))
        sizes, digests = {PREDICTIONS: 0, HEALTH: 0}, {}
        if previous is None:
            set_aside(self.out / output.LABEL_ME)
            output.clear(self.out)
        else:
            output.check_same(previous["identity"], setup.identity(), self.out)
            if (saved := output.read_checkpoint(self.out / CHECKPOINT)) is not None:
                values, state = saved
                self.counts, sizes = Counts(**values["counts"]), values["sizes"]
                digests = values.get("digests", {})
                self.adapter.load_state_dict(state["adapter"])
                self.estimator.load_state_dict(state["estimator"])
        self.resumed_at = self.counts.batches
        self._write_settings(None)
        self.predictions, self.health = (
            AppendedFile(self.out / name, sizes[name], digests.get(name))
            for name in (PREDICTIONS, HEALTH)
        )
        if not self.predictions.size:
            self.predictions.append(output.csv_rows([output.COLUMNS]))
        self.saved_at, self.pause = time.monotonic(), self.options.checkpoint_seconds
        self.between_batches = True  # the state belongs to the end of a batch
        total = setup.total or 0
        ending = {STATISTICS: min(self.options.statistics, total), CHECK: min(SPREAD, total)}
        self.progress = Progress(ending, on_progress)
        self.progress.begin(ADAPTING, setup.total, self.counts.files)

    # ---- batches -----------------------------------------------------------------------------

    def batches(self, stopped: Callable[[], bool]) -> Generator[FileBatch]:
        """The batches that are left; their images are read ahead."""
        setup, options, stop = self.setup, self.options, threading.Event()
        left = None if setup.total is None else setup.total - self.counts.files
        names = self._names_left(setup.names(stop), self.counts.files, self.counts.names_hash)
        batches = read_ahead(
            group(names, options.batch_size, left),
            setup.listing.path,
            setup.decoding,
            options.workers,
            stop,
            stopped,
        )
        begin = time.monotonic()
        with closing(batches):
            for batch in batches:
                self.progress.reading += time.monotonic() - begin
                if not options.skip_unreadable:
                    batch.check_readable(
                        f"everything before this batch is kept in {self.out}: repair or remove the"
                        " file, or continue with --resume --skip-unreadable"
                    )
                yield batch
                begin = time.monotonic()

    def _names_left(self, names: Iterator[str], done: int, names_hash: str) -> Iterator[str]:
        """The names after those a resumed run has seen, which must be the same as then."""
        seen = Counts.empty(0)
        seen.add_names(islice(names, done))
        if seen.names_hash != names_hash:
            raise StoreError(
                f"the {done:,} paths before the checkpoint are not those of the run in"
                f" {str(self.out)!r}; give the same paths in the same order, or --force"
            )
        yield from names

    def step(self, batch: FileBatch) -> None:
        """Predict and adapt; write the rows and count."""
        self.between_batches = False
        folders = [os.path.dirname(batch.names[i]) for i in batch.kept]
        labels = [self.setup.folder_classes.get(folder, -1) for folder in folders]
        classes: list[list[int]] = []
        predicted: list[int] = []
        confidences: list[list[float]] = []
        source = [-1] * len(labels)
        if batch.kept:
            x = self.setup.to_input(batch.pixels)
            logits = self.adapter(x).float().cpu()
            every = 1 if self.options.compare_source or self.setup.folder_classes else SAMPLE
            first = -(self.counts.files - self.counts.unreadable) % every  # along the whole run
            if len(sampled := x[first::every]):
                with self.progress.timing_forward(len(sampled)):
                    source_logits = self.adapter.source_logits(sampled).float().cpu()
                self.estimator.update(source_logits, logits[first::every])
                source[first::every] = predicted_classes(source_logits).tolist()
            predicted = predicted_classes(logits).tolist()
            # a stable sort: equal values keep the order of the classes
            best = logits.softmax(1).sort(dim=1, descending=True, stable=True)
            classes, confidences = (
                best.indices[:, : output.TOP].tolist(),
                best.values[:, : output.TOP].tolist(),
            )
        names = self.setup.case.labels.names
        ranked = [
            (row, shares) if number >= 0 else ([], [])
            for number, row, shares in zip(predicted, classes, confidences, strict=True)
        ]
        self.predictions.append(output.prediction_rows(batch, ranked, source, names))
        self.counts.add(batch, predicted, source, labels, self.options.statistics)
        self.between_batches = True
        self.progress.advance(len(batch.names))

    def _write_health(self, health: Health) -> None:
        self.health.append((json.dumps(health.to_json(), allow_nan=False) + "\n").encode())

    # ---- checkpoints -------------------------------------------------------------------------

    def save(self) -> None:
        """Files first, then the checkpoint that says how much of them counts."""
        begin = time.monotonic()
        self.predictions.sync()
        self.health.sync()
        files = {PREDICTIONS: self.predictions, HEALTH: self.health}
        values = {
            "counts": vars(self.counts),
            "sizes": {name: file.size for name, file in files.items()},
            "digests": {name: file.digest for name, file in files.items()},
        }
        state = {
            "adapter": self.adapter.state_dict(),
            "estimator": self.estimator.state_dict(),
        }
        output.write_checkpoint(self.out / CHECKPOINT, values, state)
        self.saved_at = time.monotonic()
        if self.pause:  # 0: after every batch, whatever it costs
            took = self.saved_at - begin
            self.pause = max(self.options.checkpoint_seconds, SHARE * took)

    def save_if_due(self) -> None:
        if time.monotonic() - self.saved_at >= self.pause:
            self.save()

    def save_after_error(self) -> None:
        """Keep what was done; where nothing was, leave no trace."""
        if not self.counts.files:
            output.clear(self.out)
        elif self.between_batches:
            with suppress(StoreError):  # the first error is the one to report
                self.save()

    # ---- the end -----------------------------------------------------------------------------

    def finish(self, complete: bool) -> AdaptResult:
        """Weights, page and settings."""
        counts, names = self.counts, self.setup.case.labels.names
        result = AdaptResult(self.out, complete, counts, self.resumed_at, names)
        result.notes = self.notes
        if not counts.images:
            if complete and not counts.files:
                raise DataError(
                    "no path arrived on the standard input (--data -); it takes a path per line, as"
                    " find prints them"
                )
            if complete:
                raise DataError(f"none of {counts.files:,} files could be read")
            return result  # stopped before the first batch
        result.estimate = self.estimator.result(counts.predicted)
        if not self.adapter.method.adapts:
            result.why_source = "nothing was adapted"
        elif self.adapter.safe:
            result.why_source = "the guard set adaptation aside"
        result.weights = write_weights(
            self.setup, self.adapter, counts, self.progress, self.notes.add
        )
        unsure = result.verdict == HELPS[None] and not result.too_few
        if complete and unsure and result.measured is None:
            result.asked = self._ask(result.estimate)
        text = summary_page(self.setup, self.adapter.hyperparameters, result)
        write_file(self.out / output.PAGE, text.encode("utf-8", "backslashreplace"))
        self._write_settings(result)
        if complete:
            (self.out / CHECKPOINT).unlink(missing_ok=True)
        return result

    def _ask(self, found: Estimate) -> int:
        """Write the images whose labels would decide; how many."""
        self.predictions.sync()
        method = self.options.method
        seen = read_predictions(self.out, self.setup.case.labels.names, method)
        file = self.out / output.LABEL_ME
        asked = ask(seen, method, found.change, found.level)
        if asked:
            with output.disk_errors(file):
                write_questions(file, seen, method, asked)
        return len(asked)

    def _write_settings(self, result: AdaptResult | None) -> None:
        values: dict[str, Any] = {
            "format": "fretta-adapt/2",
            "complete": result is not None and result.complete,
            "options": self.options.to_json(),
            "identity": self.setup.identity(),
            "classes": self.setup.case.labels.names,
            "preprocessing": self.setup.case.preprocessing.to_json(),
            "decoding": vars(self.setup.decoding),
            "hyperparameters": self.adapter.hyperparameters,
        }
        if result is not None:
            values["result"] = result.to_json()
        write_file(self.out / output.SETTINGS, (json.dumps(values, indent=2) + "\n").encode())


class Notes(list[str]):
    """Sentences for the user, each once."""

    def __init__(self, on_note: Callable[[str], None]) -> None:
        super().__init__()
        self.on_note = on_note

    def add(self, text: str) -> None:
        if text not in self:
            self.append(text)
            self.on_note(text)


@contextmanager
def _notes(on_note: Callable[[str], None]) -> Iterator[Notes]:
    """Warnings become notes: they belong on the page, not between the lines of a bar."""
    notes = Notes(on_note)

    def show(message: Warning | str, *_: Any) -> None:
        notes.add(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", FrettaWarning)
        # large photographs are fine; what Pillow refuses is reported by name
        warnings.filterwarnings("ignore", "Image size .* exceeds limit")
        warnings.filterwarnings("ignore", module=r"PIL\..*")
        warnings.showwarning = show  # type: ignore[assignment]
        yield notes
