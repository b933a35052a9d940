"""The contract between a test-time adaptation algorithm and the adapter that runs it."""

from __future__ import annotations

import dataclasses
import enum
import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import numpy
import torch
from torch import Tensor
from torch.optim import Optimizer

from .errors import ConfigError, NeedError
from .parts.classifier import Classifier
from .parts.losses import masked_mean
from .parts.optim import OPTIMIZERS, OptimizerName, build_optimizer, descend, none_kept
from .parts.output import OUTPUTS, Output

Timing = Literal["before", "after"]

STATISTICS = ("source", "batch", "moving", "adaptive")  # or a share of the batch

AUTO: Any = None  # default of a field that `implied` fills once the model is known


class Need(enum.Enum):
    """What a method cannot work without. The adapter checks it and names the repair."""

    NORM = "normalization layers with scale and shift"
    BATCH_NORM = "batch-norm layers with running statistics"
    HEAD = "the features that enter a linear head"
    SOURCE = "source images (source=...)"


@dataclasses.dataclass
class Method:
    """One test-time adaptation algorithm.

    Subclasses are dataclasses. Their fields are hyper-parameters, named after the paper; a field
    that is None is filled from `implied` when the model is known. Whatever `fit` and `start`
    assign is running state: the adapter saves it, and rebuilds it at every reset.

        check       once           values that cannot work, before anything else happens
        implied     once           what the variant and the number of classes mean for open fields
        caution     once           warn of values that never or always filter, with so many classes
        configure   once           which layers, modes and gradients (on a private copy)
        fit         once           what to measure on source data, if `needs` declares it
        start       every reset    optimizer, bank, moving averages: all fresh
        step        every batch    predict, and learn from having predicted; returns logits

    No label, config object, logger, timer or data set name can reach a method: none is in the
    signature. Every method has the fields

    steps        updates per batch
    episodic     forget after every batch; "image": after every image, each on its own
    predict      logits of the forward "before" the update or of one "after" it; None is what
                 the paper does
    reset_every  begin again after so many batches; None: never
    output       what is done to the predictions of a batch: "prior" correction, "lame" (Laplacian
                 adjustment), "none"; None is what the paper does
    statistics   of batch norms: "source", "batch", "moving" or "adaptive" (parts/statistics.py), or
                 the share of the batch in a mix with the source's; None is what the paper does
    """

    key: ClassVar[str] = ""
    summary: ClassVar[str] = ""  # one line for `fretta list`
    passes: ClassVar[str] = "1F"  # forwards and backwards per batch
    needs: ClassVar[frozenset[Need]] = frozenset()
    timing: ClassVar[Timing] = "before"  # or "after" the update: whose logits the paper reports
    gradient: ClassVar[bool] = True  # False: step runs without autograd
    adapts: ClassVar[bool] = True  # False: predictions are those of the source model
    variants: ClassVar[tuple[str, ...]] = ()  # published forms, the default first
    loss: ClassVar[str] = ""  # the equation, for `fretta info`
    published: ClassVar[Mapping[str, str]] = {}  # hyper-parameter -> values of paper or code
    differs: ClassVar[Mapping[str, str]] = {}  # variant -> where it differs from the default one
    without_source: ClassVar[str] = ""  # what to use instead where there are no source images
    published_statistics: ClassVar[str] = "batch"  # what batch norms use unless told otherwise
    own_statistics: ClassVar[bool] = False  # of batch norms: `statistics` cannot choose others
    settles: ClassVar[bool] = False  # step calls model.settle by itself
    neutral: ClassVar[tuple[str, ...]] = ()  # options that change nothing unless they are given
    lasting: ClassVar[tuple[str, ...]] = ()  # running state that does not come from learning

    steps: int = 1
    episodic: bool | str = False
    predict: Timing | None = None
    reset_every: int | None = None
    output: Output | None = None
    statistics: str | float | None = None

    def implied(self, classes: int) -> Mapping[str, Any]:
        """Values for the fields left at None."""
        return {}

    def check(self) -> None:
        """Raise ConfigError on values that cannot work. Fields may still be None."""
        for field in dataclasses.fields(self):
            _check_type(self.key, field, getattr(self, field.name))
        self.require(self.steps >= 1, "steps", wanted="at least 1 step per batch")
        if self.predict not in (None, "before", "after"):
            raise ConfigError(f"predict={self.predict!r} is unknown; choose 'before' or 'after'")
        good = isinstance(self.episodic, bool) or self.episodic == "image"
        self.require(good, "episodic", wanted="True, False or 'image'")
        every = self.reset_every
        self.require(every is None or every >= 1, "reset_every", wanted="a number of batches")
        good = self.output is None or self.output in OUTPUTS
        self.require(good, "output", wanted=f"one of {', '.join(map(repr, OUTPUTS))}")
        self._check_statistics()
        variant = getattr(self, "variant", None)
        if self.variants and variant not in self.variants:
            raise ConfigError(
                f"{self.key}: variant {variant!r} is unknown; choose from"
                f" {', '.join(self.variants)}"
            )

    def _check_statistics(self) -> None:
        value: Any = self.statistics
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not (0 <= value <= 1 if number else value in (None, *STATISTICS)):
            raise ConfigError(
                f"{self.key}: statistics={value!r} is unknown; choose from {', '.join(STATISTICS)},"
                " or give the share of the batch, a number in [0, 1]"
            )
        good = value is None or not self.own_statistics
        self.require(good, "statistics", wanted="None: the method has statistics of its own")

    def require(self, good: bool, *names: str, wanted: str) -> None:
        """Raise ConfigError about these fields unless their values are good."""
        if not good:
            values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            raise ConfigError(f"{self.key}: {values} cannot work; give {wanted}")

    def caution(self, classes: int) -> None:
        """Warn of values that work, but not as one would expect, with this many classes."""

    def configure(self, model: Classifier) -> None:
        """Everything frozen, in eval mode. Thaw and switch what the method adapts."""
        model.freeze()

    def fit(self, model: Classifier, source: Iterable[Tensor]) -> None:
        """Measure on source images what `step` will need. Only called with Need.SOURCE."""

    def start(self, model: Classifier) -> None:
        """Build all running state, fresh."""

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        """Predict a batch and learn from it; return the logits of the forward before the update."""
        raise TypeError(f"{type(self).__name__} does not implement step(model, x)")

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        """Predict only. Nothing may change."""
        return model(x)

    def watch(self, model: Classifier, x: Tensor) -> Tensor:
        """Predict without learning; statistics that move do move."""
        if model.statistics is not None:
            model.settle(x)
        return self.forward(model, x)

    @property
    def batch_share(self) -> float | None:
        """Weight of the batch, beside the source, in the statistics of test BN.

        None where `forward` does more than one forward of the model.
        """
        return 1.0 if type(self).forward is Method.forward else None

    @property
    def source_share(self) -> float:
        """Weight of the source model in the predictions, in [0, 1]."""
        return 0.0

    def source_share_on(self, model: Classifier, images: Iterable[Tensor]) -> float:
        """The same for these images, in the present state."""
        return self.source_share

    # ---- fields as plain data -------------------------------------------------------------------

    @classmethod
    def field_names(cls) -> list[str]:
        """Its own, then those of every method."""
        names = [field.name for field in dataclasses.fields(cls)]
        shared = [field.name for field in dataclasses.fields(Method)]
        return [name for name in names if name not in shared] + shared

    @classmethod
    def defaults(cls, variant: str | None = None) -> list[dict[str, Any]]:
        """Its own default values, for few and for many classes. Results made under other defaults
        are other results."""
        given: dict[str, Any] = {} if variant is None else {"variant": variant}
        method = cls(**given)
        found = [method.resolved(n, quiet=True).hyperparameters() for n in (10, 1000)]
        shared = {*Method.field_names(), *cls.neutral}
        return [{k: v for k, v in values.items() if k not in shared} for values in found]

    def hyperparameters(self) -> dict[str, Any]:
        """The fields as JSON-ready values; `type(method)(**values)` builds the method again."""
        values = {name: getattr(self, name) for name in self.field_names()}
        return {k: _plain(v) for k, v in values.items()}

    def running_state(self) -> dict[str, Any]:
        """Whatever `fit`, `start` and `step` assigned: every attribute that is not a field."""
        fields = set(self.field_names())
        return {name: value for name, value in vars(self).items() if name not in fields}

    @property
    def pass_rate(self) -> float | None:
        """The share of the last batch that passed the method's filters; None without filters."""
        kept = getattr(self, "kept", None)
        return None if kept is None else float(kept.float().mean())

    def resolved(self, classes: int, quiet: bool = False) -> Method:
        """A fresh copy without running state, with every open field filled and checked."""
        implied = self.implied(classes)
        values = {name: getattr(self, name) for name in self.field_names()}
        values = {k: v.item() if isinstance(v, numpy.generic) else v for k, v in values.items()}
        filled: dict[str, Any] = {k: implied.get(k) if v is None else v for k, v in values.items()}
        copy = type(self)(**filled)
        copy.check()
        if not quiet:
            copy.caution(classes)
        return copy


@dataclasses.dataclass
class GradientMethod(Method):
    """A method that learns by an optimizer: scale and shift of the norm layers, under test BN.

    A subclass writes `step`, which ends in `self.update(loss)`. One that adapts something else
    overrides `configure`; one that keeps more running state extends `start`.

    lr          learning rate
    optimizer   "adam" or "sgd"
    momentum    of SGD; β1 of Adam
    """

    passes: ClassVar[str] = "1F+1B"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.NORM})

    lr: float = 1e-3
    optimizer: OptimizerName = "adam"
    momentum: float = 0.9

    def check(self) -> None:
        super().check()
        good = self.optimizer is None or self.optimizer in OPTIMIZERS
        self.require(good, "optimizer", wanted=" or ".join(map(repr, OPTIMIZERS)))
        self.require(self.lr is None or self.lr >= 0, "lr", wanted="a number >= 0")
        good = self.momentum is None or 0 <= self.momentum < 1
        self.require(good, "momentum", wanted="a number in [0, 1)")

    def configure(self, model: Classifier) -> None:
        super().configure(model)
        model.thaw_norm()

    def start(self, model: Classifier) -> None:
        self.opt = self._new_optimizer(model)
        self.kept: Tensor | None = None  # (N,) which samples of the last batch passed the filters

    def update(
        self, loss: Tensor, kept: Tensor | None = None, penalty: Tensor | float = 0.0
    ) -> None:
        """One step down the mean of `loss` over the kept samples, plus `penalty`.

        Without a kept sample nothing moves, not even momentum.
        """
        if kept is None:
            descend(self.opt, loss.mean() + penalty)
            return
        self.kept = kept
        if not none_kept(kept):
            descend(self.opt, masked_mean(loss, kept) + penalty, wanted=kept.any())

    def _new_optimizer(self, model: Classifier) -> Optimizer:
        if any(p.dtype is torch.float16 for p in model.parameters()):
            # Adam's ε of 1e-8 is 0 in half precision, and the first step divides by it
            raise NeedError(
                f"{self.key} cannot adapt float16 parameters; give the model in float32, and for"
                " speed compute=fretta.Compute(precision='bfloat16') or torch.autocast"
            )
        return build_optimizer(self.optimizer, model.parameters(), self.lr, self.momentum)


_KINDS: dict[str, tuple[type, ...]] = {
    "float": (numbers.Real,),
    "float | None": (numbers.Real,),
    "int": (numbers.Integral,),
    "int | None": (numbers.Integral,),
    "bool": (bool,),
    "str": (str,),
    "OptimizerName": (str,),
}


def _check_type(key: str, field: dataclasses.Field[Any], value: Any) -> None:
    """Plain fields hold plain, finite values; None only where it is the default or in the type."""
    kind = str(field.type)
    kinds = _KINDS.get(kind)
    if kinds is None or (value is None and (field.default is None or kind.endswith("| None"))):
        return
    wrong = not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
    if wrong or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(
            f"{key}: {field.name}={value!r} cannot work; a finite {field.type} is expected"
        )


def _plain(value: Any) -> Any:
    """JSON-ready: arrays and tuples become lists, numpy numbers become numbers, functions names."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if callable(value):
        return f"{value.__module__}:{getattr(value, '__qualname__', type(value).__qualname__)}"
    return list(value) if isinstance(value, tuple) else value
