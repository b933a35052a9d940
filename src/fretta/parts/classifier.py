"""A classifier as methods see it: images in, logits out, and what lies between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import HeadError, InputError, NeedError, warn
from .adaptive import AdaptiveStatistics
from .compute import autocasting
from .features import (
    captured,
    capturing,
    check_linear,
    find_head,
    find_logits,
    flat_features,
    logits_of,
)
from .norm import (
    affine_names,
    batch_norms,
    contiguous_when_frozen,
    norm_layers,
    source_statistics_for_single_values,
    use_batch_statistics,
)
from .random import drawing_from, undisturbed
from .replaced import mixed_statistics
from .statistics import MovingStatistics, Statistics
from .tensors import copy_tensors, put_back


class Classifier:
    """The private copy of a user's model, with the few handles that methods need.

    `model(x)` gives logits, `model.features(x)` the embeddings too, `model.head(z)` classifies
    embeddings. `adapted` are the tensors a method may change, `origin` their initial values.
    """

    def __init__(
        self,
        net: nn.Module,
        head: str | None = None,
        layout: str | None = None,
        precision: str | None = None,
        last_norms: int | None = None,
        shared: bool = False,
    ) -> None:
        self.net = net
        self.head_name = head
        self.layout = layout  # of images and convolutions; None leaves them as they come
        self.precision = precision  # "bfloat16": of the network's forward, under autocast
        self.last_norms = last_norms  # only so many norm layers, from the end, learn; None: all
        self.shared = shared  # frozen tensors are another model's memory
        self.adapted: dict[str, nn.Parameter] = {}
        self.origin: dict[str, Tensor] = {}
        self.origin_buffers: dict[str, Tensor] = {}
        self.batch_norms = list(batch_norms(net).values())
        self.place: Any = None  # of the logits in what the model returns; None: they are that
        self.aside = False  # whether this forward is not the one whose logits are returned
        self._instead: Mapping[str, Tensor] = {}  # tensors in the place of parameters
        self.statistics: Statistics | None = None  # of batch norms, where they move
        self.share: float | None = None  # of the batch, where statistics are a fixed mix
        self._writes_input: bool | None = None  # whether forward changes its input in place
        self._warned = False
        if head is not None:
            self._submodule(head)

    # ---- forward -----------------------------------------------------------------------------

    def __call__(self, x: Tensor) -> Tensor:
        if self.share is not None:
            with mixed_statistics(self.net, self.share):
                return self._forward(x)
        if len(x) == 1 and self.uses_batch_statistics():
            with source_statistics_for_single_values(self.net) as fallback:
                logits = self._forward(x)
            if fallback and not self._warned:
                self._warned = True
                warn(
                    f"a batch of one gives {len(fallback)} batch-norm layer(s), e.g."
                    f" {fallback[0]!r}, a single value per channel, which has no variance: they"
                    " use their source statistics for such batches"
                )
            return logits
        return self._forward(x)

    def settle(self, x: Tensor) -> Tensor:
        """Logits of a batch, with batch-norm statistics that have moved along, where they do."""
        return self(x) if self.statistics is None else self.statistics.settle(self, x)

    @property
    def changed(self) -> float:
        """How far the domain changed with the last batch, in [0, 1], as its statistics tell."""
        return getattr(self.statistics, "jump", 0.0)

    def set_statistics(self, kind: str | float, classes: int) -> None:
        """What batch norms use: one of STATISTICS of method.py, or a share of the batch."""
        self.statistics, self.share = None, None
        if kind == "batch":
            use_batch_statistics(self.net)
            return
        layers = batch_norms(self.net, running=True)
        for layer in layers.values():
            layer.training = False
        if kind == "moving" and layers:
            self.statistics = MovingStatistics(layers)
        elif kind == "adaptive" and layers:
            self.statistics = AdaptiveStatistics(layers, classes)
        elif not isinstance(kind, str):
            self.share = float(kind)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(embeddings that enter the head, logits)."""
        with capturing(self.head_module) as box:
            logits = self(x)
        z = captured(box, self.head_name)
        return (z if self.precision is None else z.float()), logits

    def _forward(self, x: Tensor) -> Tensor:
        if self._writes_input is None:  # look once, on a copy, how the model treats its input
            with torch.inference_mode(False):  # inside it tensors have no version
                twin = x.clone()
            version = twin._version
            logits = self._run(twin)
            self._writes_input = twin._version != version
            return logits
        return self._run(x.clone() if self._writes_input else x)

    def _run(self, x: Tensor) -> Tensor:
        with self._explaining(x), autocasting(self.precision, x.device):
            instead = dict(self._instead)
            output = functional_call(self.net, instead, x) if instead else self.net(x)
        if self.place is None:
            self.place = find_logits(output, len(x), self._outputs_of_head())
        logits = logits_of(output, len(x), self.place)
        return logits if self.precision is None else logits.float()  # losses are in float32

    @contextmanager
    def _explaining(self, x: Tensor) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, AssertionError) as error:
            raise InputError(self._explain(x, error)) from error

    def _explain(self, x: Tensor, error: Exception) -> str:
        message = f"the model cannot process a batch of shape {tuple(x.shape)}"
        convolutions = (m for m in self.net.modules() if isinstance(m, nn.Conv2d))
        first = next(convolutions, None)
        if first is not None and x.dim() == 3:
            return f"{message}: it wants (N, C, H, W); for one image give x[None]"
        if first is not None and x.dim() == 4 and x.shape[1] != first.in_channels:
            return (
                f"{message}: it has {x.shape[1]} channels (dimension 1), the first convolution"
                f" expects {first.in_channels}; give (N, {first.in_channels}, H, W) images"
            )
        return f"{message}; it says: {type(error).__name__}: {error}"

    # ---- the head ----------------------------------------------------------------------------

    def head(self, z: Tensor) -> Tensor:
        """Logits of (N, d) embeddings."""
        module = self.head_module
        logits: Tensor = (
            module(z[:, :, None, None]).flatten(1) if isinstance(module, nn.Conv2d) else module(z)
        )
        return logits

    @property
    def head_module(self) -> nn.Module:
        if self.head_name is None:
            raise HeadError("the head is not known yet: it is found on the first batch")
        return self._submodule(self.head_name)

    def head_weight(self) -> Tensor:
        """(C, d): one row per class."""
        weight = self.head_module.weight
        if not isinstance(weight, Tensor):
            raise HeadError(
                f"the head {self.head_name!r} has no weight; name a linear layer with head="
            )
        return weight.detach().flatten(1)

    def _outputs_of_head(self) -> int | None:
        """The number of classes, if a head was named."""
        weight = None if self.head_name is None else getattr(self.head_module, "weight", None)
        return len(weight) if isinstance(weight, Tensor) else None

    def _submodule(self, name: str) -> nn.Module:
        modules = dict(self.net.named_modules())
        if name not in modules or not name:
            linear = [n for n, m in modules.items() if isinstance(m, nn.Linear)]
            raise HeadError(
                f"head={name!r} is not a module of this model; its linear layers are {linear[-5:]}"
            )
        return self.net.get_submodule(name)

    def locate_head(self, x: Tensor, classes: int) -> None:
        """Find the head unless it was named, and check that features enter it."""
        with torch.no_grad():
            with self._explaining(x):
                name = self.head_name or find_head(self.net, x.clone(), self.place)
            with capturing(self._submodule(name)) as box:
                self(x)
        features = None if box.features is None else flat_features(box.features)
        check_linear(name, self._submodule(name), features, classes)
        self.head_name = name

    # ---- what adapts -------------------------------------------------------------------------

    def freeze(self) -> None:
        """Eval mode, no gradients: where every method begins."""
        self.net.eval()
        self.net.requires_grad_(False)
        self.adapted = {}

    def forget(self, head: str | None, place: Any) -> None:
        """As before the first batch, but for the name of the head and the place of the logits."""
        if self.origin.keys() == self.adapted.keys():  # else nothing has been remembered yet
            self.restore()
        self.freeze()
        self.head_name, self.place = head, place
        self.origin, self.origin_buffers, self.statistics, self.share = {}, {}, None, None

    def thaw(self, names: Iterable[str]) -> None:
        """Let these parameters, by qualified name, learn."""
        parameters = dict(self.net.named_parameters(remove_duplicate=False))
        self.adapted = {}
        for name in names:  # layers may share a parameter: it learns once
            if not any(parameters[name] is other for other in self.adapted.values()):
                self.adapted[name] = parameters[name]
        if not self.adapted:
            raise NeedError(
                "nothing to adapt: the model has no normalization layer with scale and shift; "
                "use 'source' or 'bn', or 'tsd', which adapts all parameters"
            )
        for parameter in self.adapted.values():
            parameter.requires_grad_(True)
        if any(p.dtype is torch.bfloat16 for p in self.adapted.values()):
            warn(
                "the parameters that learn are bfloat16, which keeps 8 bits: most updates are too"
                " small for them and are lost. Give the model in float32, and for speed"
                " compute=fretta.Compute(precision='bfloat16')"
            )
        for layer in self.net.modules():
            thawed = any(p.requires_grad for p in layer.parameters(recurse=False))
            guarded = contiguous_when_frozen in layer._forward_pre_hooks.values()
            if isinstance(layer, nn.GroupNorm) and thawed and not guarded:
                layer.register_forward_pre_hook(contiguous_when_frozen)

    def thaw_norm(self, layers: dict[str, nn.Module] | None = None) -> None:
        """Test BN everywhere; scale and shift of the given (default: all) norm layers learn.

        With `last_norms` only the last of them: no activation before the first is kept for the
        backward, and the backward ends there.
        """
        use_batch_statistics(self.net)
        layers = norm_layers(self.net) if layers is None else layers
        with_affine = {n: m for n, m in layers.items() if affine_names({n: m})}
        names = list(with_affine)[-self.last_norms :] if self.last_norms else list(with_affine)
        self.thaw(affine_names({name: layers[name] for name in names}))

    @contextmanager
    def training(self, generator: torch.Generator) -> Iterator[None]:
        """While active, everything but the norm layers is in train mode: dropout is on, with random
        numbers of the generator."""
        norms = set(norm_layers(self.net).values())
        others = [m for m in self.net.modules() if m not in norms and not m.training]
        with drawing_from(generator):
            for module in others:
                module.training = True
            try:
                yield
            finally:
                for module in others:
                    module.training = False

    def parameters(self) -> list[Tensor]:
        return list(self.adapted.values())

    def remember(self) -> None:
        """Take the values of the adapted tensors, and of other buffers, as the initial state.

        A forward may move buffers that no method knows of: spectral norm in train mode, counters.
        Statistics of norm layers never move here.
        """
        if self.shared:  # what learns becomes a copy, and the shared memory is the initial state
            self.origin = {name: parameter.data for name, parameter in self.adapted.items()}
            for parameter in self.adapted.values():
                parameter.data = parameter.data.clone()
        else:
            self.origin = copy_tensors(self.adapted)
        norms = [f"{name}." for name in norm_layers(self.net)]
        buffers = self.net.named_buffers()
        self.origin_buffers = copy_tensors(
            {name: b for name, b in buffers if not name.startswith(tuple(norms))}
        )

    def restore(self, statistics: bool = True) -> None:
        """Back to the initial state, bit for bit; or all but the statistics that move."""
        if self.statistics is not None and statistics:
            self.statistics.reset()
        put_back(self.adapted, self.origin)
        self.load_buffers({})

    def apply_to_initial(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Do to the initial values what was done to the module (a move to another device)."""
        self.origin = {name: fn(tensor) for name, tensor in self.origin.items()}
        self.origin_buffers = {name: fn(tensor) for name, tensor in self.origin_buffers.items()}
        if self.statistics is not None:
            self.statistics.apply_to_source(fn)

    def moved_buffers(self) -> dict[str, Tensor]:
        """Copies of the buffers that are not as in the initial state."""
        buffers, first = dict(self.net.named_buffers()), self.origin_buffers
        return copy_tensors({n: buffers[n] for n in first if not torch.equal(buffers[n], first[n])})

    def load_buffers(self, moved: dict[str, Tensor]) -> None:
        """These as given, the others as in the initial state."""
        buffers = dict(self.net.named_buffers())
        put_back({n: buffers[n] for n in self.origin_buffers}, {**self.origin_buffers, **moved})

    def first_parameters(self) -> dict[str, Tensor]:
        """All parameters of the model as it was given, by name."""
        return {name: self.origin.get(name, p) for name, p in self.net.named_parameters()}

    @contextmanager
    def as_source(self) -> Iterator[None]:
        """While active, the model is in its initial state: parameters, statistics, other buffers.

        Parameters change places with their first values by reference, so nothing is copied and
        they come back bit for bit; buffers and random numbers that a forward moves are put back.
        """
        switched = [layer for layer in self.batch_norms if layer.training]
        share, self.share = self.share, None
        moving = nullcontext() if self.statistics is None else self.statistics.as_source()
        with self.with_initial_parameters(), moving:
            try:
                for layer in switched:
                    layer.training = False  # the source's running statistics
                yield
            finally:
                self.share = share
                for layer in switched:
                    layer.training = True

    @contextmanager
    def with_initial_parameters(self) -> Iterator[None]:
        """As `as_source`, but batch norms use the statistics that the method chose."""
        now = {name: parameter.data for name, parameter in self.adapted.items()}
        moved = self.moved_buffers()
        with undisturbed(self.device):
            try:
                for name, parameter in self.adapted.items():
                    parameter.data = self.origin[name]
                self.load_buffers({})
                yield
            finally:
                for name, parameter in self.adapted.items():
                    parameter.data = now[name]
                self.load_buffers(moved)

    @contextmanager
    def using(self, tensors: Mapping[str, Tensor], aside: bool = False) -> Iterator[None]:
        """While active, forwards use these tensors in the place of the parameters of their names.

        A teacher is a set of tensors, not a second module; `origin` gives the source's weights in
        the modes of now. `aside`: a forward on the way, whose features nobody asks for.
        """
        before = (self._instead, self.aside)
        self._instead, self.aside = tensors, aside
        try:
            yield
        finally:
            self._instead, self.aside = before

    # ---- small facts -------------------------------------------------------------------------

    def example(self) -> Tensor | None:
        """Any floating-point parameter or buffer, for its device and dtype."""
        tensors = chain(self.net.parameters(), self.net.buffers())
        return next((t for t in tensors if t.is_floating_point()), None)

    @property
    def device(self) -> torch.device:
        example = self.example()
        return torch.device("cpu") if example is None else example.device

    def uses_batch_statistics(self) -> bool:
        return any(layer.training for layer in self.batch_norms)
