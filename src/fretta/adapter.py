"""The adapter: a private copy of the user's model, a method, and everything methods share."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from .checks import checked_batch, source_batches
from .errors import ConfigError, FrettaError, FrettaWarning, ModelError, NeedError, StateError
from .method import Method, Need, Timing
from .parts.classifier import Classifier
from .parts.features import captured, capturing
from .parts.norm import affine_names, norm_layers
from .parts.snapshot import capture, copy_tensors, put_back, revive

STATE_FORMAT = 1


class Adapter:
    """Predicts and adapts, batch by batch.

        adapter(x)            logits of the batch, and the model learns from it
        adapter.predict(x)    logits only; nothing changes
        adapter.reset()       back to the first day, bit for bit
        adapter.state_dict()  everything needed to go on later, bit for bit

    The number of classes and the head are learned from the first batch (or from `source`), so
    that any classifier works; until then `ready` is False.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        *,
        source: Iterable[Any] | None = None,
        head: str | None = None,
        steps: int = 1,
        episodic: bool = False,
        predict: Timing | None = None,
        inplace: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ModelError(f"model is a {type(model).__name__}; give a torch.nn.Module")
        if isinstance(model, torch.jit.ScriptModule):
            raise ModelError(
                "a scripted module cannot be adapted: give the module it was made from"
            )
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ConfigError(f"steps={steps!r} cannot work; take at least 1 step per batch")
        if predict not in (None, "before", "after"):
            raise ConfigError(f"predict={predict!r} is unknown; choose 'before' or 'after'")
        method.check()
        self.steps, self.episodic = steps, episodic
        self.timing: Timing = predict or method.timing
        self.method = method
        self.classes: int | None = None
        # torch.compile and DataParallel hide what hooks must see: adapt what they wrap
        net = getattr(model, "_orig_mod", model)
        net = net.module if isinstance(net, nn.DataParallel) else net
        _check_needs(net, method, source)
        with torch.inference_mode(False):
            self.model = Classifier(net if inplace else _private_copy(net), head)
            self.model.freeze()
            if source is not None and Need.SOURCE in method.needs:
                self._prepare_from_source(source)

    # ---- every batch -------------------------------------------------------------------------

    def __call__(self, x: Tensor) -> Tensor:
        """Predict this batch and learn from it; detached (N, C) logits."""
        # Works under the caller's no_grad and inference_mode: learning needs gradients regardless.
        with torch.inference_mode(False), torch.set_grad_enabled(self.method.gradient):
            x = checked_batch(x, self.model)
            self._prepare(x)
            if self.episodic:
                self.reset()
            for _ in range(self.steps):
                logits = self.method.step(self.model, x)
            if self.timing == "after":
                with torch.no_grad():
                    logits = self.method.forward(self.model, x)
        return logits.detach()

    def predict(self, x: Tensor) -> Tensor:
        """Predict with the model as adapted so far. No state changes."""
        with torch.inference_mode(False), torch.no_grad():
            x = checked_batch(x, self.model)
            self._prepare(x)
            return self.method.forward(self.model, x)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(embeddings that enter the head, logits) of the model as adapted so far."""
        with torch.inference_mode(False), torch.no_grad():
            x = checked_batch(x, self.model)
            classes = self._prepare(x)
            if self.model.head_name is None:
                self.model.locate_head(x[:2], classes)
            with capturing(self.model.head_module) as box:
                logits = self.method.forward(self.model, x)
        return captured(box, self.model.head_name), logits

    def reset(self) -> None:
        """Back to the first day: adapted tensors and all running state."""
        if self.ready:
            with torch.inference_mode(False):
                self.model.restore()
                self.method.start(self.model)

    # ---- once --------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the first batch has been seen."""
        return self.classes is not None

    def _prepare(self, x: Tensor) -> int:
        """On the first batch: count the classes, find the head, configure and start the method."""
        if self.classes is not None:
            return self.classes
        with torch.no_grad():
            logits = self.model(x)
            classes = logits.shape[1]
            if Need.HEAD in self.method.needs:
                self.model.locate_head(x[:2], classes)
        _caution_probabilities(logits)
        self._begin(classes)
        return classes

    def _begin(self, classes: int, source: Iterable[Tensor] | None = None) -> None:
        method = self.method.resolved(classes)
        method.configure(self.model)
        self.model.remember()
        with torch.enable_grad():
            if source is not None:
                method.fit(self.model, source)
        method.start(self.model)
        self.method, self.classes = method, classes

    def _prepare_from_source(self, source: Iterable[Any]) -> None:
        batches: Iterator[Tensor] = source_batches(source, self.model)
        first = next(batches, None)
        if first is None:
            raise NeedError(f"{self.method.key} needs source images, but source= is empty")
        with torch.no_grad():
            classes = self.model(first).shape[1]
        self._begin(classes, chain([first], batches))

    # ---- facts -------------------------------------------------------------------------------

    @property
    def adapted(self) -> list[str]:
        """Names of the parameters the method changes; empty before the first batch."""
        return list(self.model.adapted)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The method's settings as used: open ones are filled in after the first batch."""
        return self.method.hyperparameters()

    @property
    def pass_rate(self) -> float | None:
        """The share of the last batch that passed the method's filters; None without filters."""
        return self.method.pass_rate

    def __repr__(self) -> str:
        state = (
            f"{len(self.adapted)} adapted tensors" if self.ready else "waiting for its first batch"
        )
        return f"<fretta.Adapter {self.method.key!r} on {type(self.model.net).__name__}: {state}>"

    # ---- state -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Adapted tensors and all running state, as tensors and plain values.

        `torch.save` it and `torch.load(..., weights_only=True)` it. The frozen weights are not in
        it: load it into an adapter of the same model and method.
        """
        state: dict[str, Any] = {
            "format": STATE_FORMAT,
            "method": self.method.key,
            "hyperparameters": self.hyperparameters,
            "classes": self.classes,
            "head": self.model.head_name,
        }
        if self.ready:
            state["adapted"] = copy_tensors(self.model.adapted)
            state["buffers"] = self.model.moved_buffers()
            state["running"] = {k: capture(v) for k, v in _running_state(self.method).items()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken. On an error nothing has changed."""
        if state.get("format") != STATE_FORMAT or state.get("method") != self.method.key:
            raise StateError(
                f"this is not a state of {self.method.key!r} in format {STATE_FORMAT}: it says"
                f" method {state.get('method')!r}, format {state.get('format')!r}"
            )
        if state["classes"] is None:
            self.reset()
            return
        self._check_settings(state)
        before = self.state_dict() if self.ready else None
        method, head = self.method, self.model.head_name
        try:
            self._load(state)
        except (FrettaError, KeyError, RuntimeError, TypeError, ValueError) as error:
            if before is not None:
                self._load(before)
            else:
                self.method, self.classes, self.model.head_name = method, None, head
                self.model.freeze()
            if isinstance(error, StateError):
                raise
            raise StateError(f"the state does not fit this adapter: {error}") from error

    def _load(self, state: dict[str, Any]) -> None:
        with torch.inference_mode(False):
            if not self.ready:
                self.model.head_name = state["head"] or self.model.head_name
                self._begin(state["classes"])
            put_back(self.model.adapted, state["adapted"])
            self.model.load_buffers(state["buffers"])
            example = self.model.example()
            device = torch.device("cpu") if example is None else example.device
            for name, current in _running_state(self.method).items():
                setattr(self.method, name, revive(current, state["running"][name], device))

    def _check_settings(self, state: dict[str, Any]) -> None:
        ours = self.method.resolved(state["classes"], quiet=True).hyperparameters()
        theirs = state["hyperparameters"]
        different = {k: (theirs.get(k), v) for k, v in ours.items() if theirs.get(k) != v}
        if different:
            listed = ", ".join(f"{k}={a!r} (here {b!r})" for k, (a, b) in different.items())
            raise StateError(f"the state was taken with other hyper-parameters: {listed}")


def _running_state(method: Method) -> dict[str, Any]:
    """Whatever `fit` and `start` assigned: every attribute that is not a field."""
    fields = set(method.field_names())
    return {name: value for name, value in vars(method).items() if name not in fields}


def _caution_probabilities(logits: Tensor) -> None:
    """Entropy of a softmax of a softmax is flat: adapting such a model does next to nothing."""
    sums = logits.sum(1)
    if bool((logits >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
        warnings.warn(
            "the model's outputs are probabilities, not logits; remove its final softmax, or losses"
            " will take a softmax of it again",
            FrettaWarning,
            stacklevel=4,
        )


def _private_copy(net: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(net)
    except (RuntimeError, TypeError) as error:
        raise ModelError(
            f"the model cannot be copied ({type(error).__name__}: {error}); give inplace=True to"
            " adapt it itself"
        ) from error


def _check_needs(net: nn.Module, method: Method, source: Iterable[Any] | None) -> None:
    if Need.NORM in method.needs and not affine_names(norm_layers(net)):
        raise NeedError(
            f"{method.key} adapts scale and shift of normalisation layers, but {type(net).__name__}"
            " has none; use 'source', or 'tsd', which adapts all parameters"
        )
    if Need.SOURCE in method.needs and source is None:
        hint = (
            "; without any, 'eta' is the same method without its anchor"
            if method.key == "eata"
            else ""
        )
        raise NeedError(
            f"{method.key} needs unlabelled source images: give source=, an iterable of image"
            f" batches{hint}"
        )
