"""`execute` a run: a data set, a model and a method joined, with checkpoints."""

from __future__ import annotations

import io
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._util import check_interrupt
from ..adapter import Adapter
from ..data import Dataset, Preprocessing, Stream
from ..errors import ConfigError, FrettaError, HeadError, ModelError
from ..method import Method
from ..methods import Source, find_method
from ..parts.redundancy import redundancy
from .case import Case, open_case, open_data
from .evaluation import outcome_of
from .loop import stream_through
from .metrics import details, overall, per_domain
from .provenance import PeakMemory, provenance
from .records import Job, Outcome, Record, Run
from .store import Store

OnBatch = Callable[[int, int], None]  # (batches done, batches in total)
Redundancies = dict[str, list[float | None]]  # by domain: before and after adaptation
# errors that code does not mend: of files, of memory, of what was given
OUTSIDE = (OSError, MemoryError, torch.cuda.OutOfMemoryError, FrettaError)


def case_of(job: Job, device: str | None = None) -> Case:
    """What a job works on; a data set that was opened in this process is not opened again."""
    model, place = job.run.model, job.place
    return open_case(
        model["spec"],
        job.dataset or open_data(job.run.data, place.folder or place.root),
        weights=place.weights,
        num_classes=model.get("num_classes"),
        head=model.get("head"),
        preprocessing=Preprocessing.from_json(model["preprocessing"]),
        source=job.run.source,
        root=place.root,
        device=device,
        lazy=True,
    )


def adapter_of(run: Run, case: Case) -> Adapter:
    """The adapter of a run. A case may set the fields that every method has."""
    common = {k: v for k, v in run.adapter.items() if k in Method.field_names()}
    return case.adapter(
        run.method,
        guard=run.adapter.get("guard"),
        precision=run.adapter.get("precision"),
        batch_size=run.batch_size,
        **{**common, **run.hyperparameters},
    )


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

    A failure is a record too: with its traceback, and without stopping anybody else. Its checkpoint
    stays, but for an error of the code: a run must not go on from the state of code that is mended.
    """
    record = Record(asdict(job.run), job.run.key, "failed", dict(job.tags))
    extra: dict[str, Any] | None = None
    resumable = False
    try:
        extra = _run(job, store, record, device, workers, checkpoint_seconds, on_batch)
    except Exception as error:  # noqa: BLE001  # a method of the user's may raise anything
        check_interrupt()
        record.error = "".join(traceback.format_exception(error))
        resumable = isinstance(error, OUTSIDE)
    record.provenance = {**provenance(), **record.provenance}
    store.put(record, extra)
    if not resumable:
        store.drop_checkpoint(record.key)
    return record


def _run(
    job: Job,
    store: Store,
    record: Record,
    device: str | None,
    workers: int,
    checkpoint_seconds: float,
    on_batch: OnBatch | None,
) -> dict[str, Any]:
    begin, busy = time.time(), time.process_time()
    run, case = job.run, case_of(job, device)
    memory = PeakMemory(case.device)
    options = {"seed": run.seed, "batch_size": run.batch_size, "workers": workers}
    stream = case.stream(run.order, **options, **run.order_options)
    adapter = adapter_of(run, case)
    outcomes, nrs, earlier = _resumed(store, run.key, adapter)
    start = len(outcomes)
    reference = Adapter(case.net, Source(), head=case.head, inplace=True)
    last = _last_batches(stream)
    saved = time.monotonic()
    for item, steps in stream_through({run.method: adapter}, case.items(stream, start)):
        if not outcomes:
            _check_classes(steps[run.method].logits.shape[1], case.data)
        outcomes.append(outcome_of(item, steps[run.method]))
        if item.number in last:
            nrs[last[item.number]] = [_nrs(reference, item.x), _nrs(adapter, item.x)]
        if on_batch is not None:
            on_batch(len(outcomes), len(stream))
        if time.monotonic() - saved >= checkpoint_seconds and len(outcomes) < len(stream):
            _save(store, run.key, adapter, outcomes, nrs, earlier + time.time() - begin)
            saved = time.monotonic()
    names = stream.dataset.names
    record.rows = per_domain(outcomes, names)
    for row in record.rows:
        row["nrs_before"], row["nrs_after"] = nrs.get(row["domain"], [None, None])
        row["passes"] = find_method(run.method).passes
    record.overall = overall(outcomes, record.rows)
    record.settings = {**adapter.hyperparameters, "predict": adapter.timing}
    wall, threads = time.time() - begin, torch.get_num_threads()
    record.provenance = {
        "peak_memory": memory.read(),
        "device": str(case.device),
        **({"gpu": torch.cuda.get_device_name(case.device)} if case.device.type == "cuda" else {}),
        "threads": threads,
        "finished": int(time.time()),
        "wall_seconds": earlier + wall,
        "adapting_seconds": sum(o.seconds for o in outcomes),
        "loading_seconds": sum(o.loading for o in outcomes),
        # of the threads given to torch; decoding in worker processes is not in it
        "cpu_utilisation": (time.process_time() - busy) / max(1e-9, wall * threads),
        "resumed_at": start,
    }
    record.status = "done"
    return details(outcomes, names, stream.dataset.classes)


def _check_classes(found: int, data: Dataset) -> None:
    """What only the first batch tells of a model whose number of classes nobody stated."""
    if found != len(data.classes):
        raise ConfigError(
            f"the model returns {found} logits and {data.name} has {len(data.classes)} classes;"
            " labels would not mean what the logits mean"
        )


def _last_batches(stream: Stream) -> dict[int, str]:
    """The last batch of each domain that holds nothing else: where its NRS is measured."""
    last: dict[str, int] = {}
    for number in range(len(stream)):
        domains, _ = stream.schedule.batch(number)
        if (domains == domains[0]).all():
            last[stream.dataset.domains[int(domains[0])].name] = number
    return {number: name for name, number in last.items()}


def _nrs(adapter: Adapter, x: Tensor) -> float | None:
    """Normalized redundancy of the features of a batch; None where no head is found, or where they
    are not finite."""
    try:
        z, _ = adapter.features(x)
    except (HeadError, ModelError):
        return None
    value = float(redundancy(z, normalized=True))
    return value if math.isfinite(value) else None


# ---- checkpoints: the outcomes so far and the adapter's state -----------------------------------


def _save(
    store: Store,
    key: str,
    adapter: Adapter,
    outcomes: list[Outcome],
    nrs: Redundancies,
    seconds: float,
) -> None:
    content = io.BytesIO()
    plain = [
        {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in vars(o).items()}
        for o in outcomes
    ]
    saved = {"adapter": adapter.state_dict(), "outcomes": plain, "nrs": nrs, "seconds": seconds}
    torch.save(saved, content)
    store.write_checkpoint(key, content.getvalue())


def _resumed(store: Store, key: str, adapter: Adapter) -> tuple[list[Outcome], Redundancies, float]:
    """What was saved and how long it took, with the adapter in its state. A checkpoint that cannot
    be read costs only time."""
    content = store.read_checkpoint(key)
    if content is None:
        return [], {}, 0.0
    try:
        saved = torch.load(io.BytesIO(content), weights_only=True)
        columns: Any = [
            {k: v.numpy() if isinstance(v, Tensor) else v for k, v in o.items()}
            for o in saved["outcomes"]
        ]
        adapter.load_state_dict(saved["adapter"])
        return [Outcome(**values) for values in columns], saved["nrs"], saved["seconds"]
    except Exception:  # noqa: BLE001  # damage has many faces
        check_interrupt()
        adapter.reset()
        return [], {}, 0.0
