"""The values that flow, in the order they flow: Run, Outcome, Record. Plain data, no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StoreError

FORMAT = 1
_SEAL = b',"digest":"%s"}'
_SEAL_LENGTH = len(_SEAL % (b"0" * 64))


def canonical(value: Any) -> str:
    """JSON with one spelling for equal values: what hashes are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


@dataclass(frozen=True)
class Run:
    """Everything that decides a number, and nothing else. Its hash names the record."""

    data: dict[str, Any]  # name and options of open_dataset, without the root
    data_hash: str  # fingerprint of the data set as found
    model: dict[str, Any]  # spec, num_classes, head, preprocessing; code of a user's function
    weights_hash: str  # sha256 of the weights file; "" for random weights
    method: str
    hyperparameters: dict[str, Any]  # what differs from the method's defaults
    order: str
    order_options: dict[str, Any]  # limit, domains, concentration, imbalance
    batch_size: int
    seed: int
    adapter: dict[str, Any] = field(default_factory=dict)  # steps, episodic, predict
    source: dict[str, Any] | None = None  # data set of source images, for methods that need some
    source_hash: str = ""  # its fingerprint
    defaults: str = ""  # hash of the method's defaults, and of the file of one outside the package

    @property
    def key(self) -> str:
        return digest(asdict(self))[:20]


@dataclass(frozen=True)
class Place:
    """Where the parts of a run are on this machine. Does not decide the number."""

    root: str | None = None  # of data sets by name
    weights: str | None = None
    folder: str | None = None  # of class folders, if that is the data set


@dataclass(frozen=True)
class Job:
    """A run, where its parts are, and what it is called in the suite it comes from."""

    run: Run
    place: Place = Place()
    tags: dict[str, Any] = field(default_factory=dict)  # as of a Record
    dataset: Any = field(default=None, compare=False, repr=False)  # as opened; does not travel

    def to_json(self) -> dict[str, Any]:
        return {"run": asdict(self.run), "place": asdict(self.place), "tags": self.tags}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        return cls(Run(**data["run"]), Place(**data["place"]), dict(data["tags"]))


def _sets(tags: Mapping[str, Any]) -> list[dict[str, Any]]:
    own = {k: v for k, v in tags.items() if k != "also"}
    return [own, *tags.get("also", [])]


def joined_tags(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The tags of a run that several suites share; the second replace those of the same place."""
    sets = {
        (tags.get("suite"), tags.get("case"), tags.get("label")): tags
        for tags in (*_sets(first), *_sets(second))
    }
    own, *also = sets.values()
    return {**own, "also": also} if also else own


@dataclass
class Outcome:
    """What happened to one batch: per-sample arrays, and facts about the step."""

    number: int  # of the batch in the stream
    domain: NDArray[np.int64]  # (n,) number of each sample's domain
    label: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float32]  # of the predicted class
    nll: NDArray[np.float32]  # -log probability of the label
    entropy: NDArray[np.float32]
    seconds: float  # inside the adapter
    pass_rate: float | None = None
    loading: float = 0.0  # seconds spent waiting for the images: decoding, corrupting, copying

    @property
    def right(self) -> NDArray[np.bool_]:
        right: NDArray[np.bool_] = self.predicted == self.label
        return right


@dataclass
class Record:
    """The result of a run, as it is stored."""

    run: dict[str, Any]
    key: str
    status: str  # "done" or "failed"
    tags: dict[str, Any]  # suite, title, case, label, tuning; "also": those of other suites
    rows: list[dict[str, Any]] = field(default_factory=list)  # one per domain
    overall: dict[str, Any] = field(
        default_factory=dict
    )  # over all samples, and the mean over rows
    settings: dict[str, Any] = field(default_factory=dict)  # hyper-parameters as used
    provenance: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    def __repr__(self) -> str:
        score = f", accuracy {self.overall['accuracy']:.1%}" if "accuracy" in self.overall else ""
        return (
            f"<Record {self.key}: {self.run['method']} on {self.run['data'].get('name')},"
            f" seed {self.run['seed']}, {self.status}{score}>"
        )

    def in_suites(self) -> list[Record]:
        """This record once for each suite, case and label that the run belongs to."""
        return [replace(self, tags=tags) for tags in _sets(self.tags)]

    def to_bytes(self) -> bytes:
        """The file: canonical JSON whose last entry is the digest of all before it."""
        body = canonical({"format": FORMAT, **asdict(self)}).encode()
        return body[:-1] + _SEAL % hashlib.sha256(body).hexdigest().encode()

    @classmethod
    def from_bytes(cls, content: bytes, where: str = "the record") -> Record:
        """Refuses what is not exactly what was written: half a file, an edited number."""
        body = content[:-_SEAL_LENGTH] + b"}"
        if content != body[:-1] + _SEAL % hashlib.sha256(body).hexdigest().encode():
            raise StoreError(f"{where} is damaged: its content does not match its digest")
        data = json.loads(body)
        if b"\\ud" in body:  # half a surrogate pair, which JSON can hold, is no text
            data = json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
        names = {f.name for f in fields(cls)}
        if data.get("format") != FORMAT or data.keys() - {"format"} != names:
            raise StoreError(f"{where} is not a record in format {FORMAT}")
        return cls(**{name: data[name] for name in names})
