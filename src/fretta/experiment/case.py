"""A model on a data set, opened once and in one way: what every command works on.

case = open_case("timm:resnet50", "pacs", weights="w.safetensors", num_classes=7, size=224)
adapter = case.adapter("g-fret", lr=1e-3)
for item, steps in stream_through({"g-fret": adapter}, case.items(case.stream("mixed"))):
    ...
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._util import code_of, import_object
from ..adapter import Adapter
from ..api import build_method
from ..data import Dataset, Preprocessing, Stream, dataset_options, make_stream
from ..data.datasets import open_dataset, reading_options
from ..data.domain import ImageFiles
from ..data.folders import class_folders
from ..data.listing import list_folder
from ..data.read_ahead import read_readable
from ..errors import ConfigError, DataError, NeedError
from ..guard import Guard
from ..method import Method, Need
from ..methods import Source, find_method
from ..models.cards import card_of, hash_state, sha256
from ..models.imagenet import PACKAGED
from ..models.labels import Labels, find_labels, named_by_folders, truth_of
from ..models.load import TRUSTED, check_shards, find_model, load
from ..models.preprocessing import attach_preprocessing, find_preprocessing
from ..parts.compute import Compute, find_device
from .loop import Item
from .records import Place, Run, digest

SOURCE_IMAGES = 2000  # of a folder; as many as EATA's paper takes for its anchor
LABELED_SOURCE = 500  # that tell what the source model confuses


@dataclass
class Case:
    """A model, how images become its input, and perhaps a data set."""

    spec: str
    preprocessing: Preprocessing
    weights: str | None = None  # a file, the name of packaged weights, or None: the library's own
    num_classes: int | None = None  # as given, or as the card says
    pretrained: bool = False
    head: str | None = None
    dataset: Dataset | None = None
    source: Mapping[str, Any] | str | None = None  # of open_dataset, or a folder of images
    allow_outside: bool = False  # the folder of source images may hold links that lead elsewhere
    root: str | None = None  # where data sets and weights are
    folder: str | None = None  # of class folders, which is the data set; else it is below root
    label_file: Path | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    loaded: nn.Module | None = None

    # ---- model -------------------------------------------------------------------------------

    @property
    def net(self) -> nn.Module:
        if self.loaded is None:
            self.loaded = load(self.spec, self.weights, self.num_classes, self.pretrained)
            attach_preprocessing(self.loaded, self.preprocessing)
        self.loaded = self.loaded.to(self.device)
        return self.loaded

    @cached_property
    def labels(self) -> Labels:
        """Names of the classes: from a file, the card, the model's configuration, or numbers."""
        return find_labels(self.net, self.outputs, self.label_file)

    @property
    def outputs(self) -> int:
        """How many classes the model has, seen on two gray images."""
        size = self.preprocessing.size or 224
        gray = torch.full((2, 3, size, size), 127, dtype=torch.uint8)
        x = self.preprocessing.apply(gray, self.device)
        return Adapter(self.net, Source(), head=self.head, inplace=True)(x).shape[1]

    @cached_property
    def weights_hash(self) -> str:
        """What identifies the weights: of files, or of what a function of the user's made; empty
        for a library's own."""
        if self.weights in PACKAGED:
            return str(self.weights)
        if self.weights is not None:
            return sha256(self.weights)
        library = self.spec.partition(":")[0]
        if library in TRUSTED:
            return ""
        if library != "hf":
            return hash_state(self.net.state_dict())
        folder = Path(self.spec.removeprefix("hf:"))
        files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
        return hashlib.sha256("".join(map(sha256, files)).encode()).hexdigest()

    @property
    def model(self) -> dict[str, Any]:
        """What a Run says of the model."""
        library = self.spec.partition(":")[0]
        code = ""
        if library not in (*TRUSTED, "hf"):  # a function of the user's, whose file may change
            import_object(self.spec, "model")
            code = code_of(library)
        return {
            "spec": self.spec,
            **({"code": code} if code else {}),
            "num_classes": self.num_classes,
            "head": self.head,
            "preprocessing": self.preprocessing.to_json(),
        }

    def adapter(
        self,
        method: str | Method,
        *,
        guard: Guard | str | None = None,
        precision: str | None = None,
        batch_size: int = 64,
        **hyperparameters: Any,
    ) -> Adapter:
        """The model with a method; source images are read in batches of `batch_size`."""
        built = build_method(method, hyperparameters)
        source = None
        if Need.SOURCE in built.needs and self.source is not None:
            source = self.source_images(batch_size)
        compute = Compute(precision=precision)
        return Adapter(self.net, built, source=source, head=self.head, guard=guard, compute=compute)

    # ---- data --------------------------------------------------------------------------------

    @property
    def data(self) -> Dataset:
        if self.dataset is None:
            raise ConfigError("this case has no data set; give open_case one")
        return self.dataset

    @cached_property
    def data_hash(self) -> str:
        return self.data.fingerprint()

    def stream(self, order: str | Sequence[str] = "continual", **options: Any) -> Stream:
        """The data set in an order; options of make_stream: seed, batch_size, limit, ..."""
        return make_stream(self.data, order, **options)

    def items(self, stream: Stream, start: int = 0) -> Iterator[Item]:
        """The batches of a stream from number `start` on, as the model takes them."""
        begin = time.perf_counter()
        for batch in stream.batches(start):
            x = self.preprocessing.apply(batch.x, self.device)
            loading = time.perf_counter() - begin
            yield Item(x, batch.y, batch.reset, batch.domain, batch.domains, batch.number, loading)
            begin = time.perf_counter()

    def images_text(self) -> str:
        """What happens to an image, in a line. What a data set says about reading files counts."""
        found = self.preprocessing
        files = None if self.dataset is None else self.dataset.domains[0].source
        if not isinstance(files, ImageFiles):
            return found.text()
        d = files.decoding
        read = replace(
            found, size=d.size, fit=d.fit, interpolation=d.interpolation, crop_ratio=d.crop_ratio
        )
        if read != found and found.size is not None:
            read = replace(read, origin="size, fit, interpolation: the data")
        return read.text()

    @cached_property
    def source_data(self) -> Dataset:
        """Source images, which methods such as EATA need."""
        if self.source is None:
            raise NeedError("there are no source images; give source=")
        if isinstance(self.source, str):
            raise ConfigError(f"source={self.source!r} is a folder; a data set is expected")
        return open_data(self.source, self.root)

    def source_images(self, batch_size: int = 64) -> Iterator[Tensor]:
        if isinstance(self.source, str):
            found = list_folder(Path(self.source), self.allow_outside)
            if not found.names:
                raise DataError(f"no images in source={self.source!r}")
            rows = np.random.RandomState(0).permutation(len(found.names))[:SOURCE_IMAGES]
            names, decoding = [found.names[i] for i in rows], self.preprocessing.decoding()
            for _, pixels in read_readable(names, found.path, decoding, batch_size):
                yield self.preprocessing.apply(pixels, self.device)
            return
        # mixed: what is measured on them stops early and must have seen all source domains
        for batch in make_stream(self.source_data, "mixed", batch_size=batch_size):
            yield self.preprocessing.apply(batch.x, self.device)

    def labeled_source(self, batch_size: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
        """(input, labels) of some source images; nothing where their labels are not known."""
        if isinstance(self.source, str):
            found = list_folder(Path(self.source), self.allow_outside)
            truth, _ = truth_of(found.folders, self.labels)
            rows = np.random.RandomState(0).permutation(len(found.names) if truth else 0)
            names = [found.names[i] for i in rows[:LABELED_SOURCE]]
            decoding = self.preprocessing.decoding()
            for positions, pixels in read_readable(names, found.path, decoding, batch_size):
                y = [truth[os.path.dirname(names[i])] for i in positions]
                yield self.preprocessing.apply(pixels, self.device), torch.tensor(y)
        elif self.source is not None and len(self.source_data.classes) == len(self.labels.names):
            limit = -(-LABELED_SOURCE // len(self.source_data.domains))
            for batch in make_stream(self.source_data, batch_size=batch_size, limit=limit):
                yield self.preprocessing.apply(batch.x, self.device), batch.y

    def check(self) -> None:
        """The classes and pixels of the data are those the model takes."""
        data, size = self.data, self.preprocessing.size
        if self.num_classes not in (None, len(data.classes)):
            raise ConfigError(
                f"the model has {self.num_classes} classes and {data.name} {len(data.classes)};"
                " labels would not mean what the logits mean"
            )
        try:
            height, width = data.domains[0].read([0]).shape[1:3]
        except DataError:  # the stream names the file, or skips it
            return
        if size is not None and (height, width) != (size, size):
            raise ConfigError(
                f"the model takes {size}×{size} pixels and {data.name} gives {width}×{height};"
                f" write data = {{ ..., size = {size} }}"
            )

    # ---- runs --------------------------------------------------------------------------------

    def run(
        self,
        method: str,
        hyperparameters: Mapping[str, Any],
        order: str,
        batch_size: int,
        seed: int,
        order_options: Mapping[str, Any] | None = None,
        adapter: Mapping[str, Any] | None = None,
    ) -> Run:
        """What decides the numbers of one method along one stream."""
        needed = Need.SOURCE in find_method(method).needs
        if needed and not isinstance(self.source, Mapping):
            if self.source is not None:
                raise NeedError(
                    f"{method}: source={self.source!r} is a folder of images; a run needs a data"
                    " set by name there, such as pacs"
                )
            raise NeedError(f"{method} needs source images; give source=, a data set")
        found = find_method(method)
        defaults: Any = found.defaults(hyperparameters.get("variant"))
        if not found.__module__.startswith("fretta."):  # another method once its file changes
            defaults = [defaults, code_of(found.__module__)]
        return Run(
            data={"name": self.data.name, **self.data.options},
            data_hash=self.data_hash,
            model=self.model,
            weights_hash=self.weights_hash,
            method=method,
            hyperparameters=dict(hyperparameters),
            order=order,
            order_options=dict(order_options or {}),
            batch_size=batch_size,
            seed=seed,
            adapter=dict(adapter or {}),
            source=dict(self.source) if needed and isinstance(self.source, Mapping) else None,
            source_hash=self.source_data.fingerprint() if needed else "",
            defaults=digest(defaults)[:12],
        )

    @property
    def place(self) -> Place:
        return Place(self.root, self.weights, self.folder)


def open_data(spec: Mapping[str, Any], root: str | os.PathLike[str] | None) -> Dataset:
    """A data set as suites and records write it: name and options of open_dataset."""
    if "name" not in spec:
        raise ConfigError(f"{dict(spec)} does not say which data set; give it a name")
    if "root" in spec:
        raise ConfigError(
            f"{dict(spec)}: where the data lies is no part of it; say it by --data, root= or the"
            " environment variable FRETTA_DATA"
        )
    return open_dataset(spec["name"], root, **{k: v for k, v in spec.items() if k != "name"})


def open_case(
    model: str,
    data: str | Mapping[str, Any] | Dataset | None = None,
    *,
    weights: str | None = None,
    num_classes: int | None = None,
    pretrained: bool = False,
    untrained: bool = False,
    head: str | None = None,
    preprocessing: Preprocessing | None = None,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    fit: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    root: str | os.PathLike[str] | None = None,
    device: str | None = None,
    lazy: bool = False,
    **options: Any,
) -> Case:
    """Find the model and the data and check that they fit; a FrettaError says what is missing.

    model          timm:NAME and its siblings, a source model of the package, or a weights file with
                   a card
    data           a data set by name or a folder of class folders, read as the model takes its
                   images; name and options as a suite writes them, taken as they are; an open data
                   set; or None
    weights        a weights file, here or below the root, or the name of packaged weights
    untrained      a network without weights will do
    preprocessing  how images become input; else found from size, mean, std and fit, the card and
                   the library, in this order
    labels         file with the names of the classes
    source         source images: a data set as above, or a folder of images
    root           where data sets and weights are; None: FRETTA_DATA
    device         None: cuda if there is one
    lazy           do not load the network before it is used; the library is not asked about it
    options        of open_dataset, such as corruption and severity
    """
    found = find_model(model, weights, num_classes, root, trust=lazy)
    if not (lazy or untrained or pretrained or found.weights):
        _check_trained(found.spec)
    case = Case(
        found.spec,
        preprocessing or Preprocessing(),
        found.weights,
        found.num_classes,
        pretrained,
        head,
        root=None if root is None else os.fspath(root),
        label_file=None if labels is None else Path(labels),
        device=find_device(device),
    )
    if not lazy:
        case.loaded = load(found.spec, found.weights, num_classes, pretrained)
        card = card_of(case.loaded)
        if num_classes is None and card is not None:
            case.num_classes = card.num_classes
    if preprocessing is None:
        case.preprocessing = find_preprocessing(
            case.loaded, found.spec, found.card, size=size, mean=mean, std=std, fit=fit
        )
    if case.loaded is not None:
        attach_preprocessing(case.loaded, case.preprocessing)
    case.source = _source(source, case)
    if data is not None:
        case.dataset = data if isinstance(data, Dataset) else _dataset(data, case, options)
        case.check()
    return case


def _check_trained(spec: str) -> None:
    library, _, name = spec.partition(":")
    if library == "hf":
        check_shards(Path(name))
        trained = any(Path(name).glob("*.safetensors")) or any(Path(name).glob("*.bin"))
    else:
        trained = library not in TRUSTED  # a factory of the user's may load its own
    if not trained:
        raise ConfigError(
            f"model={spec} without weights= is a network that was never trained; give a weights"
            " file, or pretrained=True for the library's own"
        )


def _dataset(data: str | Mapping[str, Any], case: Case, options: Mapping[str, Any]) -> Dataset:
    if isinstance(data, Mapping):
        return open_data({**data, **options}, case.root)
    if not Path(data).is_dir():
        return open_dataset(data, case.root, **reading_options(data, case.preprocessing), **options)
    case.folder = data
    reading = {**reading_options("folder", case.preprocessing), **_classes(Path(data), case)}
    return open_dataset("folder", data, **reading, **options)


def _classes(folder: Path, case: Case) -> dict[str, list[str]]:
    """Class names of the model, in their order, as the folders are called by them."""
    folders, labels = class_folders(folder), case.labels
    found = {name.casefold() for name in folders}
    for names in (labels.names, labels.aliases) if labels.known else ():
        known = {name.casefold() for name in names}
        if found <= known and len(known) == len(names):
            return {"classes": list(names)}
    if not folders:
        return {}  # the data set says what is missing
    named = named_by_folders(labels, folders)
    if named is not labels:
        return {"classes": named.names}
    _, why_not = truth_of(folders, labels)
    raise ConfigError(why_not or f"several classes share a name ({labels.origin}); rename them")


def _source(
    source: str | os.PathLike[str] | Mapping[str, Any] | None, case: Case
) -> Mapping[str, Any] | str | None:
    if source is None or isinstance(source, Mapping):
        return source
    name = os.fspath(source)
    if Path(name).is_dir():
        return name
    training = {"split": "train"} if "split" in dataset_options(name) else {}
    return {"name": name, **training, **reading_options(name, case.preprocessing)}
