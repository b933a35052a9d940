"""Join a data set, a model and a method, once: `evaluate` a stream, `execute` a run."""

from __future__ import annotations

import io
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..adapter import Adapter
from ..api import build_method
from ..data import Batch, Dataset, Preprocessing, Stream, make_stream, open_dataset
from ..errors import FrettaError, HeadError, ModelError, StateError
from ..method import Method, Need
from ..methods import Source, find_method
from ..models import load
from ..models.preprocessing import attach_preprocessing
from ..parts.redundancy import redundancy
from .evaluation import outcome_of
from .loop import stream_through
from .metrics import details, overall, per_domain
from .provenance import PeakMemory, provenance
from .records import Job, Outcome, Record, Run
from .store import Store

OnBatch = Callable[[int, int], None]  # (batches done, batches in total)


def evaluate(
    adapter: Adapter,
    stream: Stream,
    preprocessing: Preprocessing,
    device: torch.device | str = "cpu",
    start: int = 0,
) -> Iterator[tuple[Batch, Tensor, Outcome]]:
    """Predict and adapt along a stream. Labels meet logits here and never enter the adapter."""
    items = _prepared(stream, preprocessing, device, start)
    for item, steps in stream_through({"": adapter}, items):
        batch = item.batch
        outcome = outcome_of(batch.number, batch.domains, batch.y, steps[""])
        outcome.loading = item.loading
        yield batch, item.x, outcome


@dataclass(frozen=True)
class _Prepared:
    batch: Batch
    x: Tensor
    loading: float  # seconds it took to read, corrupt and copy

    @property
    def reset(self) -> bool:
        return self.batch.reset


def _prepared(
    stream: Stream, preprocessing: Preprocessing, device: torch.device | str, start: int
) -> Iterator[_Prepared]:
    begin = time.perf_counter()
    for batch in stream.batches(start):
        x = preprocessing.apply(batch.x, device)
        yield _Prepared(batch, x, time.perf_counter() - begin)
        begin = time.perf_counter()


# ---- the parts of a run -------------------------------------------------------------------------


def open_data(spec: dict[str, Any], root: str | None) -> Dataset:
    options = {k: v for k, v in spec.items() if k != "name"}
    return open_dataset(spec["name"], root, **options)


def open_stream(run: Run, root: str | None, workers: int = 0) -> Stream:
    dataset = open_data(run.data, root)
    return make_stream(
        dataset,
        run.order,
        seed=run.seed,
        batch_size=run.batch_size,
        workers=workers,
        **run.order_options,
    )


def open_model(run: Run, weights: str | None) -> tuple[nn.Module, Preprocessing]:
    net = load(run.model["spec"], weights=weights, num_classes=run.model.get("num_classes"))
    preprocessing = Preprocessing.from_json(run.model["preprocessing"])
    attach_preprocessing(net, preprocessing)
    return net, preprocessing


def open_adapter(
    job: Job, net: nn.Module, preprocessing: Preprocessing, device: torch.device | str
) -> Adapter:
    run = job.run
    fields = Method.field_names()  # of every method: a case may set them for all of its methods
    settings = {k: v for k, v in run.adapter.items() if k in fields} | run.hyperparameters
    method = build_method(run.method, settings)
    source = None
    if Need.SOURCE in find_method(run.method).needs and run.source is not None:
        # mixed: what is measured on them stops early and must have seen all source domains
        clean = make_stream(
            open_data(run.source, job.place.root), "mixed", batch_size=run.batch_size
        )
        source = (preprocessing.apply(batch.x, device) for batch in clean)
    head = run.model.get("head")
    return Adapter(net, method, source=source, head=head, guard=run.adapter.get("guard"))


# ---- one run ------------------------------------------------------------------------------------


def execute(
    job: Job,
    store: Store,
    *,
    device: str | None = None,
    workers: int = 0,
    checkpoint_seconds: float = 60.0,
    on_batch: OnBatch | None = None,
) -> Record:
    """Run it, from its checkpoint if there is one, and put the record into the store.

    A failure is a record too: with its traceback, and without stopping anybody else.
    """
    record = Record(asdict(job.run), job.run.key, "failed", dict(job.tags))
    extra: dict[str, Any] | None = None
    try:
        extra = _run(job, store, record, device, workers, checkpoint_seconds, on_batch)
    except (FrettaError, RuntimeError, ValueError, OSError, MemoryError) as error:
        record.error = "".join(traceback.format_exception(error))
    record.provenance = {**provenance(), **record.provenance}
    store.put(record, extra)
    store.drop_checkpoint(record.key)
    return record


def _run(
    job: Job,
    store: Store,
    record: Record,
    device_name: str | None,
    workers: int,
    checkpoint_seconds: float,
    on_batch: OnBatch | None,
) -> dict[str, Any]:
    begin, busy, memory = time.time(), time.process_time(), PeakMemory()
    device = torch.device(device_name or ("cuda" if torch.cuda.is_available() else "cpu"))
    stream = open_stream(job.run, job.place.root, workers)
    net, preprocessing = open_model(job.run, job.place.weights)
    net = net.to(device)
    adapter = open_adapter(job, net, preprocessing, device)
    progress = _Progress.resumed(store, job.run.key, adapter)
    reference = Adapter(net, Source(), head=job.run.model.get("head"), inplace=True)
    last = _last_batches(stream)
    saved = time.monotonic()
    for batch, x, outcome in evaluate(adapter, stream, preprocessing, device, progress.next):
        progress.outcomes.append(outcome)
        progress.next = batch.number + 1
        if batch.number in last:
            progress.nrs[last[batch.number]] = [_nrs(reference, x), _nrs(adapter, x)]
        if on_batch is not None:
            on_batch(progress.next, len(stream))
        if time.monotonic() - saved >= checkpoint_seconds and progress.next < len(stream):
            progress.save(store, job.run.key, adapter)
            saved = time.monotonic()
    names = stream.dataset.names
    record.rows = per_domain(progress.outcomes, names)
    for row in record.rows:
        row["nrs_before"], row["nrs_after"] = progress.nrs.get(row["domain"], [None, None])
        row["passes"] = find_method(job.run.method).passes
    record.overall = overall(progress.outcomes, record.rows)
    record.settings = {**adapter.hyperparameters, "predict": adapter.timing}
    record.provenance = {
        "peak_memory": memory.read(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "finished": int(time.time()),
        "wall_seconds": time.time() - begin,
        "adapting_seconds": sum(o.seconds for o in progress.outcomes),
        "loading_seconds": sum(o.loading for o in progress.outcomes),
        # of the threads given to torch; decoding in worker processes is not in it
        "cpu_utilisation": (time.process_time() - busy)
        / max(1e-9, (time.time() - begin) * torch.get_num_threads()),
        "resumed_at": progress.resumed_at,
    }
    record.status = "done"
    return details(progress.outcomes, names, stream.dataset.classes)


def _last_batches(stream: Stream) -> dict[int, str]:
    """The last batch of each domain that holds nothing else: where its NRS is measured."""
    last: dict[str, int] = {}
    for number in range(len(stream)):
        domains, _ = stream.schedule.batch(number)
        if (domains == domains[0]).all():
            last[stream.dataset.domains[int(domains[0])].name] = number
    return {number: name for name, number in last.items()}


def _nrs(adapter: Adapter, x: Tensor) -> float | None:
    """Normalized redundancy of the features of a batch; None where no head is found."""
    try:
        z, _ = adapter.features(x)
    except (HeadError, ModelError):
        return None
    return float(redundancy(z, normalized=True))


class _Progress:
    """Where a run in flight is: position, outcomes so far, and the adapter's state."""

    def __init__(self) -> None:
        self.next = 0
        self.resumed_at = 0
        self.outcomes: list[Outcome] = []
        self.nrs: dict[str, list[float | None]] = {}

    @classmethod
    def resumed(cls, store: Store, key: str, adapter: Adapter) -> _Progress:
        progress = cls()
        content = store.read_checkpoint(key)
        if content is None:
            return progress
        try:
            saved = torch.load(io.BytesIO(content), weights_only=True)
            adapter.load_state_dict(saved["adapter"])
            progress.outcomes = [_revived(o) for o in saved["outcomes"]]
            progress.nrs, progress.next = saved["nrs"], saved["next"]
        except (StateError, RuntimeError, KeyError, EOFError, ValueError, UnpicklingError):
            adapter.reset()  # a checkpoint that cannot be read costs its run, nothing else
            return cls()
        progress.resumed_at = progress.next
        return progress

    def save(self, store: Store, key: str, adapter: Adapter) -> None:
        content = io.BytesIO()
        outcomes = [
            {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in vars(o).items()}
            for o in self.outcomes
        ]
        state = {"adapter": adapter.state_dict(), "outcomes": outcomes}
        torch.save({**state, "nrs": self.nrs, "next": self.next}, content)
        store.write_checkpoint(key, content.getvalue())


def _revived(saved: dict[str, Any]) -> Outcome:
    values: dict[str, Any] = {
        k: v.numpy() if isinstance(v, Tensor) else v for k, v in saved.items()
    }
    return Outcome(**values)
