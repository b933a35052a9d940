"""All streams of one process: adapters that share the frozen weights of one model."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import __version__
from ..adapter import Adapter
from ..errors import (
    CheckpointError,
    FrettaError,
    InputError,
    StoreError,
    UnknownStreamError,
    warn,
)
from ..estimate import Estimator
from ..estimate.prior import class_shares
from ..estimate.shares import measure_source
from ..experiment.case import Case
from ..method import Need
from ..methods import build_method
from ..parts.compute import Compute
from .settings import LONGEST_ID, Settings, check_name, shard_of
from .sharing import digest_of, own_bytes, share_constants, storages, tensors_of
from .store import StreamStore
from .stream import Answer, Stream

__all__ = ["Answer", "StreamHost"]


class StreamHost:
    """The streams of one process, by name; a new name begins a stream.

    Streams are independent. At most `max_streams` are in memory: the least recently used
    goes to its checkpoint and comes back when it is needed. All methods may be called from any
    thread; batches run one at a time.

    case   the model, if it is loaded already; its layout in memory may change
    """

    def __init__(self, settings: Settings, shard: int = 0, *, case: Case | None = None) -> None:
        self.settings, self.shard = settings, shard
        case = case or settings.open_case()
        labels = case.labels
        self.classes, self._by_name = labels.names, labels.by_name()
        self.decoding = case.preprocessing.decoding(alpha=settings.alpha)
        self._prior = None
        if settings.prior is not None:
            self._prior = class_shares(settings.prior, self._by_name, len(self.classes))
        self._facts = None
        if self._prior is None:
            self._facts = measure_source(case, settings.batch_size)
        first = settings.adapter(case)
        self.case, self.source = case, case.net  # the one model
        if first.model.layout is not None:  # then every adapter can use its memory
            layout = getattr(torch, first.model.layout)
            self.source.to(memory_format=layout)  # type: ignore[call-overload]
        self._guard = first.guard
        self._fitted = first.state_dict() if first.ready else None  # on source images
        self._example = next(iter(case.source_images(2))) if first.ready else None
        self._pool: dict[str, Any] = {"facts": self._facts}  # shared beside the weights
        self._streams: dict[str, Stream] = {}
        self._clock = 0  # batches
        self._store = None
        if settings.store is not None:
            self._store = StreamStore(settings.store, self._identity())
            self._store.names()  # is it there?
        self._lock = threading.RLock()
        self._closed = False
        self.checkpoints = self.checkpoint_failures = 0

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must share with this service."""
        settings = self.settings
        return {
            "fretta": __version__,
            "model": self.case.spec,
            "weights": digest_of(self.source),
            "preprocessing": self.case.preprocessing.to_json(),
            "method": settings.method,
            "hyperparameters": dict(settings.hyperparameters),
            "guard": settings.guard,
        }

    # ---- one batch ---------------------------------------------------------------------------

    def check_image(self, image: NDArray[np.uint8]) -> None:
        """InputError unless it is a decoded image of the model's size."""
        size, shape = self.case.preprocessing.size, getattr(image, "shape", None)
        good = isinstance(image, np.ndarray) and image.dtype == np.uint8
        if not good or image.ndim != 3 or image.shape[2] != 3 or not image.size:
            kind = getattr(image, "dtype", type(image).__name__)
            raise InputError(f"an image is {kind} {shape}; uint8 (height, width, 3) is expected")
        if size is not None and image.shape[:2] != (size, size):
            raise InputError(
                f"an image has {image.shape[1]}×{image.shape[0]} pixels, the model takes"
                f" {size}×{size}"
            )

    def predict(
        self,
        name: str,
        images: Sequence[NDArray[np.uint8]] | Tensor,
        ids: Sequence[str] | None = None,
    ) -> list[Answer]:
        """One batch: predict it, and learn from it unless the stream is frozen.

        images   decoded, (height, width, 3) each, or prepared as the model takes them: (N, C, H, W)
        ids      of the images, for labels that come later; None: made up

        On an error nothing has changed.
        """
        check_name(name)
        x = images if isinstance(images, Tensor) else self._prepared(images)
        ids = _checked_ids(ids, len(x))
        with self._lock:
            stream, new = self._find(name), False
            if stream is None:
                self._make_room()
                stream, new = self._new(name), True
            answers = stream.step(x, ids, list(map(_digest, images)))
            if new:
                share_constants(stream.adapter, self._pool)
                self._streams[name] = stream
            self._clock += 1
            stream.used = self._clock
            if stream.unsaved >= self.settings.checkpoint_every:
                self._save(stream)
            return answers

    def recall(
        self, name: str, images: Sequence[NDArray[np.uint8]], ids: Sequence[str]
    ) -> dict[str, Answer]:
        """What was answered of late to these images and ids; the others are left out.

        A request that is sent again is not learned twice.
        """
        with self._lock:
            stream = self._find(check_name(name))
            return {} if stream is None else stream.recall(ids, list(map(_digest, images)))

    def _prepared(self, images: Sequence[NDArray[np.uint8]]) -> Tensor:
        for image in images:
            self.check_image(image)
        if len({image.shape for image in images}) != 1:
            raise InputError("the images of a batch must have one size; there is none, or several")
        pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
        return self.case.preprocessing.apply(pixels, self.case.device)

    # ---- streams in memory and in the store ---------------------------------------------------

    def _find(self, name: str) -> Stream | None:
        """The stream, from memory or from its checkpoint; None: there is none."""
        if self._closed:
            raise StoreError("the service is stopping and takes no more; ask the next one")
        if name in self._streams:
            return self._streams[name]
        saved = None if self._store is None else self._store.load(name)
        if saved is None:
            return None
        self._make_room()
        stream = self._new(name)
        try:
            stream.load(*saved)
        except FrettaError as error:
            raise CheckpointError(
                f"the checkpoint of stream {name!r} cannot be used: {error}; reset the stream to"
                " begin again"
            ) from error
        share_constants(stream.adapter, self._pool)
        self._streams[name] = stream
        return stream

    def _known(self, name: str) -> Stream:
        stream = self._find(check_name(name))
        if stream is None:
            raise UnknownStreamError(f"there is no stream {name!r}: no image was sent to it yet")
        return stream

    def _new(self, name: str) -> Stream:
        settings = self.settings
        method = build_method(settings.method, dict(settings.hyperparameters))
        example = [self._example] if Need.SOURCE in method.needs and self._fitted else None
        adapter = Adapter(
            self.source,
            method,
            source=example,
            head=self.case.head,
            guard=self._guard,
            compute=Compute(share=True),
        )
        if self._fitted is not None:  # what was measured on the source images, once for all
            adapter.load_state_dict(self._fitted)
        estimator = Estimator(prior=self._prior, source=self._facts)
        return Stream(name, adapter, estimator, settings, self.classes)

    def _make_room(self) -> None:
        """Move the least recently used streams to their checkpoints, until one more fits."""
        while len(self._streams) >= self.settings.max_streams:
            name, stream = min(self._streams.items(), key=lambda item: item[1].used)
            if self._store is None:
                raise StoreError(
                    f"{len(self._streams)} streams are in memory, as many as max_streams allows,"
                    " and there is no store to put one away; give store=, or more max_streams"
                )
            if stream.changed and not self._save(stream):
                raise StoreError(
                    f"no room for one more stream: {name!r} cannot be put away: {stream.problem}"
                )
            del self._streams[name]

    def _save(self, stream: Stream) -> bool:
        """Write a checkpoint, if there is a store; whether it is written. A failure is noted."""
        if self._store is None:
            return False
        try:
            self._store.save(stream.name, stream.values(), stream.state())
        except StoreError as error:
            self.checkpoint_failures += 1
            if not stream.problem:
                warn(f"stream {stream.name!r} is not saved: {error}")
            stream.failed(str(error))
            return False
        self.checkpoints += 1
        stream.stored()
        return True

    def checkpoint(self) -> int:
        """Save all streams that changed; how many were written."""
        with self._lock:
            return sum(self._save(stream) for stream in self._streams.values() if stream.changed)

    def close(self) -> None:
        """Save all streams, and take no more batches."""
        with self._lock:
            if not self._closed:
                self.checkpoint()
            self._closed = True

    # ---- what the operator does --------------------------------------------------------------

    def reset(self, name: str) -> dict[str, Any]:
        """Begin again, as a new stream. Also where the checkpoint cannot be used."""
        with self._lock:
            try:
                stream = self._known(name)
            except CheckpointError:
                if self._store is not None:
                    self._store.delete(name)
                return {"name": name, "shard": self.shard, "in_memory": False}
            stream.reset()
            self._save(stream)
            return self._row(stream)

    def freeze(self, name: str) -> dict[str, Any]:
        """Predict as adapted so far, and learn no more."""
        return self._set_frozen(name, True)

    def resume(self, name: str) -> dict[str, Any]:
        """Learn again."""
        return self._set_frozen(name, False)

    def _set_frozen(self, name: str, frozen: bool) -> dict[str, Any]:
        with self._lock:
            stream = self._known(name)
            if stream.frozen != frozen:
                stream.frozen = frozen
                stream.happened("freeze" if frozen else "resume")
                self._save(stream)
            return self._row(stream)

    def feedback(self, name: str, labels: Mapping[str, str | int]) -> dict[str, Any]:
        """Labels that came late, by id: a name of a class or its number."""
        classes = {key: self._class(key, label) for key, label in labels.items()}
        with self._lock:
            stream = self._known(name)
            found = stream.feedback(classes)
            if found["taken"]:
                self._save(stream)
            return found

    def _class(self, key: str, label: str | int) -> int:
        number = self._by_name.get(label.casefold()) if isinstance(label, str) else label
        if isinstance(number, bool) or not isinstance(number, int):
            number = -1
        if not 0 <= number < len(self.classes):
            raise InputError(
                f"the label {str(label)[:80]!r} of {str(key)[:80]!r} is no class of the model; give"
                f" a name, such as {self.classes[0]!r}, or a number from 0 to"
                f" {len(self.classes) - 1}"
            )
        return number

    # ---- facts -------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Of all streams of this shard, in memory or in the store."""
        stored = [] if self._store is None else self._store.names()
        here = (name for name in stored if shard_of(name, self.settings.shards) == self.shard)
        return sorted({*here, *list(self._streams)})

    def overview(self) -> list[dict[str, Any]]:
        """A row of facts for every stream. It does not wait for a batch that runs."""
        rows = {row["name"]: row for row in self._rows()}
        away = {"shard": self.shard, "in_memory": False}
        return [rows.get(name, {"name": name, **away}) for name in self.names()]

    def detail(self, name: str) -> dict[str, Any]:
        """All facts about a stream: health over time, events, the verdict."""
        with self._lock:
            stream = self._known(name)
            shared = storages(tensors_of([self.source, self._pool]))
            memory = own_bytes(stream, shared)
            return {**stream.detail(), "shard": self.shard, "memory_bytes": memory}

    def metrics(self) -> dict[str, Any]:
        """Numbers of the streams in memory. It does not wait for a batch that runs."""
        rows = self._rows()
        return {
            "shard": self.shard,
            "streams": rows,
            "in_memory": len(rows),
            "checkpoints": self.checkpoints,
            "checkpoint_failures": self.checkpoint_failures,
        }

    def _rows(self) -> list[dict[str, Any]]:
        return [self._row(stream) for stream in list(self._streams.values())]

    def _row(self, stream: Stream) -> dict[str, Any]:
        return {**stream.row, "shard": self.shard}


def _checked_ids(ids: Iterable[str] | None, count: int) -> list[str]:
    if ids is None:
        return [uuid.uuid4().hex for _ in range(count)]
    ids = list(ids)
    if len(ids) != count:
        raise InputError(f"{len(ids)} ids for {count} images; give one for each, or none")
    for key in ids:
        if not isinstance(key, str) or not 0 < len(key) <= LONGEST_ID:
            raise InputError(
                f"the id {str(key)[:80]!r} cannot be used; give 1 to {LONGEST_ID} characters"
            )
    return ids


def _digest(image: NDArray[np.uint8] | Tensor) -> str:
    array = image.cpu().numpy() if isinstance(image, Tensor) else image
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest()
