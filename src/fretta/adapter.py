"""The adapter: a private copy of the user's model, a method, and everything methods share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from .errors import ConfigError, FrettaError, HeadError, ModelError, NeedError, StateError
from .guard import FeatureTap, Guard, Health, Keeper, measure
from .method import Method, Need, Timing
from .parts.classifier import Classifier
from .parts.compute import Compute, check_precision, choose_layout, compile_blocks, lay_out
from .parts.features import captured, capturing
from .parts.plain import as_source, plain_copy
from .parts.snapshot import capture, copy_tensors, put_back, revive
from .parts.undo import flat
from .prepare import (
    NOISY_SHARE,
    SMALL_BATCH,
    caution_probabilities,
    caution_small_batch,
    check_needs,
    checked_batch,
    private_copy,
    source_batches,
)

STATE_FORMAT = 1


class Adapter(nn.Module):
    """Predicts and adapts, batch by batch.

        adapter(x)            logits of the batch, and the model learns from it
        adapter.predict(x)    logits only; nothing changes
        adapter.reset()       back to the initial state, bit for bit
        adapter.to(device)    moves the model and everything learned
        adapter.state_dict()  everything needed to go on later, bit for bit
        adapter.health        how the last batch went, without labels
        adapter.export()      the adapted model as a plain PyTorch module

    The number of classes and the head are learned from the first batch (or from `source`), so
    that any classifier works; until then `ready` is False. `train()` and `eval()` do not switch
    adaptation: evaluation scripts call `eval()` by habit.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        *,
        source: Iterable[Any] | None = None,
        head: str | None = None,
        guard: Guard | str | None = None,
        inplace: bool = False,
        compute: Compute | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise ModelError(f"model is a {type(model).__name__}; give a torch.nn.Module")
        if isinstance(model, torch.jit.ScriptModule):
            raise ModelError(
                "a scripted module cannot be adapted: give the module it was made from"
            )
        method.check()
        self.method = method
        self.classes: int | None = None
        self.guard = Guard.of(guard)
        self.compute = compute or Compute()
        self.tap: FeatureTap | None = None
        self._callbacks: list[Callable[[Health], Any]] = []
        self._keeper: Keeper | None = None
        self._health: Health | None = None
        self._left: tuple[Tensor, Tensor] | None = None  # logits and a few images of the last batch
        self._was_small: bool | None = None  # the batch before; None: there was none
        self._warned_of_size = False
        self._batches, self._inplace = 0, inplace
        # torch.compile and DataParallel hide what hooks must see: adapt what they wrap
        net = getattr(model, "_orig_mod", model)
        net = net.module if isinstance(net, nn.DataParallel) else net
        check_needs(net, method, source)
        with torch.inference_mode(False):
            self.model = self._classifier(net, head)
            self.net = self.model.net  # registered: parameters(), to(), ... see it
            self.model.freeze()
            if source is not None and Need.SOURCE in method.needs:
                self._prepare_from_source(source)

    def _classifier(self, net: nn.Module, head: str | None) -> Classifier:
        """The model as methods see it, computed as asked for."""
        how, inplace = self.compute, self._inplace
        # A model adapted in place stays as it is. Methods that move every weight by the sign of
        # its gradient (TSD with Adam) turn rounding into more than rounding.
        free = not inplace and not (self.method.gradient and Need.NORM not in self.method.needs)
        layout = choose_layout(net, how.layout, free)
        model = Classifier(
            net if inplace else private_copy(net), head, layout, how.precision, how.last_norms
        )
        lay_out(model.net, layout)
        check_precision(how.precision, model.device)
        return model

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    # ---- every batch -------------------------------------------------------------------------

    def forward(self, x: Tensor) -> Tensor:
        """Predict this batch and learn from it; detached (N, C) logits."""
        # Works under the caller's no_grad and inference_mode: learning needs gradients regardless.
        with torch.inference_mode(False), torch.set_grad_enabled(self.method.gradient):
            x = checked_batch(x, self.model)
            self._prepare(x)
            self._look_at_size(x)
            every = 1 if self.method.episodic else self.method.reset_every
            if every is not None and self._batches % every == 0:
                self.restart()
            keeper = self._watching(x)
            if keeper is None:
                logits = self.learn(x).detach()
                self._health, self._left = None, (logits, x.detach()[:: -(-len(x) // 2)].clone())
            else:
                logits, self._health = keeper.batch(x)
            self._batches += 1
        for callback in self._callbacks:
            if self._health is not None:
                callback(self._health)
        return logits.detach()

    def learn(self, x: Tensor) -> Tensor:
        """The step itself, without checks and watching."""
        for _ in range(self.method.steps):
            if self.tap is not None:
                self.tap.arm()
            if self.method.gradient:
                logits = self.method.step(self.model, x)
            else:
                with torch.inference_mode():
                    logits = self.method.step(self.model, x)
                logits = logits.clone()  # an ordinary tensor again
        return self.current(x) if self.timing == "after" else logits

    def current(self, x: Tensor) -> Tensor:
        """Logits of the model as it is, without checks."""
        if self.tap is not None:
            self.tap.arm()
        with torch.no_grad():
            return self.method.forward(self.model, x)

    def predict(self, x: Tensor) -> Tensor:
        """Predict with the model as adapted so far. No state changes."""
        with torch.inference_mode(False), torch.no_grad():
            x = checked_batch(x, self.model)
            self._prepare(x)
            self._look_at_size(x)
            if self.safe:
                return self.source_forward(x)
            return self.method.forward(self.model, x)

    def source_logits(self, x: Tensor) -> Tensor:
        """Logits of the model as it was given, batch-norm statistics and all.

        No state changes.
        """
        with torch.inference_mode(False):
            x = checked_batch(x, self.model)
            self._prepare(x)
            return self.source_forward(x)

    @torch.no_grad()
    def source_forward(self, x: Tensor) -> Tensor:
        """`source_logits` without checks."""
        with as_source(self.model):
            return self.model(x)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(embeddings that enter the head, logits) of the model as adapted so far."""
        with torch.inference_mode(False), torch.no_grad():
            x = checked_batch(x, self.model)
            classes = self._prepare(x)
            if self.model.head_name is None:
                self.model.locate_head(x[:2], classes)
            with capturing(self.model.head_module) as box:
                logits = self.source_forward(x) if self.safe else self.method.forward(self.model, x)
        return captured(box, self.model.head_name), logits

    def reset(self) -> None:
        """Back to the initial state: adapted tensors and all running state, the guard's too."""
        self._health, self._left, self._batches = None, None, 0
        if self.ready:
            self.restart()
        if self._keeper is not None:
            self._keeper.begin()

    def restart(self) -> None:
        """Model and method in their initial state; what the guard knows stays."""
        with torch.inference_mode(False):
            self.model.restore()
            self.method.start(self.model)

    def _look_at_size(self, x: Tensor) -> None:
        """Warn once of batches too small for batch statistics; not of a last one, which is alone
        in being small."""
        if self._warned_of_size:
            return
        share = self.method.batch_share
        noisy = share is None or share > NOISY_SHARE
        small = len(x) < SMALL_BATCH and noisy and self.model.uses_batch_statistics()
        if small and self._was_small is not False:
            self._warned_of_size = True
            caution_small_batch(x, self.method)
        self._was_small = small

    # ---- health ------------------------------------------------------------------------------

    @property
    def health(self) -> Health | None:
        """How the last batch went, without labels; None before the first.

        With a guard or callbacks it is measured at every batch. Otherwise it is measured when
        asked for, from what the last step left behind; then there is no running reference and no
        norm of the update.
        """
        if self._health is None and self._left is not None:
            self._health = self._measured_late(*self._left)
        return self._health

    def on_health(self, callback: Callable[[Health], Any]) -> None:
        """Call this with the `Health` of every batch to come: a writer, or any function."""
        self._callbacks.append(callback)

    @property
    def timing(self) -> Timing:
        """Whose logits are returned: of the forward before the update, or of one after it."""
        return self.method.predict or self.method.timing

    @property
    def safe(self) -> bool:
        """Whether the guard lets the source model predict, because adaptation does harm."""
        return self._keeper is not None and self._keeper.safe

    def running(self) -> dict[str, Any]:
        """The method's running state, as it is."""
        return running_state(self.method)

    def _watching(self, x: Tensor) -> Keeper | None:
        """The keeper, if anybody watches; made at the first batch somebody does."""
        if self._keeper is None and (self.guard is not None or self._callbacks):
            self._look_for_head(x)
            self._hire()
        return self._keeper

    def _look_for_head(self, x: Tensor) -> None:
        """Features are worth a look where there is a head; not every model has one."""
        if self.model.head_name is None:
            with suppress(HeadError, ModelError), as_source(self.model):
                self.model.locate_head(x[:2], self.model(x[:2]).shape[1])

    def _hire(self) -> None:
        if self.model.head_name is not None and self.tap is None:
            self.tap = FeatureTap(self.model.head_module)
        self._keeper = Keeper(self.guard, self, self._classes())

    def _classes(self) -> int:
        if self.classes is None:
            raise StateError("the adapter has not seen a batch yet")
        return self.classes

    @torch.no_grad()
    def _measured_late(self, logits: Tensor, images: Tensor) -> Health:
        numbers = measure(
            logits,
            self.method,
            features=None if self.tap is None else self.tap.features,
            now=flat(self.model.parameters()),
            origin=flat(self.model.origin.values()),
        )
        with torch.inference_mode(False):
            source = self.source_forward(images).argmax(1)
        adapted = logits[:: -(-len(logits) // 2)].argmax(1)
        return Health(
            batch=self._batches - 1,
            samples=numbers.samples,
            nrs=numbers.nrs,
            entropy=numbers.entropy,
            marginal_entropy=numbers.marginal_entropy,
            reference_marginal=None,
            changed=float((source != adapted).float().mean()),
            pass_rate=numbers.pass_rate,
            drift=numbers.drift,
            update_norm=None,
        )

    # ---- export ---------------------------------------------------------------------------------

    def export(self, statistics: str | Iterable[Any] | None = None) -> nn.Module:
        """The adapted model as a plain PyTorch module: a deep copy in eval mode, no gradients.

        statistics   None or "batch": predictions are bit-identical to `predict`. Batch norms that
                     adaptation switched to batch statistics go on using them, so the module has
                     no running ones and needs batches like those it adapted on.
                     An iterable of image batches: these batch norms get running statistics of
                     these images. The module then works on single images, and its state_dict has
                     exactly the keys of the model that was given, ready for safetensors.

        The module returns the (N, C) logits, as `predict` does, also where the model that was
        given returns them in a dict, a tuple or an object (a forward hook takes them out).

        With precision= the module computes in the model's own; call it under torch.autocast to
        get the same numbers. While the guard lets the source model predict, that is exported.
        """
        if not self.ready:
            raise StateError(
                "there is nothing to export yet: the adapter has not seen a batch. The model that"
                " was given is what it would be"
            )
        if isinstance(statistics, str) and statistics != "batch":
            raise ConfigError(
                f"export: statistics={statistics!r} is unknown; give 'batch', an iterable of image"
                " batches, or None"
            )
        images = None if statistics is None or isinstance(statistics, str) else statistics
        share = 1.0 if self.safe else self.method.batch_share
        if share is None:
            raise ConfigError(
                f"{self.method.key} predicts by more than a forward of the model, which a plain"
                " module cannot do"
            )
        if share < 1 and images is None and self.model.has_batch_norm():
            raise ConfigError(
                f"{self.method.key} mixes the statistics of every batch with the source's, which a"
                " plain module cannot do; give statistics=, an iterable of image batches"
            )
        with torch.inference_mode(False), torch.no_grad():
            return plain_copy(
                self.model,
                source=self.safe,
                alpha=share,
                images=None if images is None else source_batches(images, self.model),
                forward=lambda x: self.method.forward(self.model, x),
            )

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
            elif self.compute.compile is not None:  # to leave it uncompiled
                self._look_for_head(x)
        caution_probabilities(logits)
        self._begin(classes)
        return classes

    def _begin(self, classes: int, source: Iterable[Tensor] | None = None) -> None:
        method = self.method.resolved(classes)
        method.configure(self.model)
        if self.compute.compile is not None:
            compile_blocks(self.model.net, self.model.head_name, self.compute.compile)
        self.model.remember()
        with torch.enable_grad():
            if source is not None:
                method.fit(self.model, source)
        method.start(self.model)
        self.method, self.classes = method, classes
        if Need.HEAD in method.needs and not self._inplace:
            self.tap = FeatureTap(self.model.head_module)

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

    # ---- a module among modules --------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Sets the flag alone: the method decides in which mode each layer runs."""
        self.training = mode
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `to`, `cuda`, `double`, ... call: running state moves along with the model."""
        with torch.inference_mode(False):
            state = self.state_dict() if self.ready else None
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            self.model.apply_to_initial(fn)
            self._left = None
            if state is not None:
                self._keeper = None
                self.method.start(self.model)
                self._load(state)
        return self

    # ---- state -------------------------------------------------------------------------------

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Adapted tensors and all running state, as tensors and plain values.

        `torch.save` it and `torch.load(..., weights_only=True)` it. The frozen weights are not in
        it: load it into an adapter of the same model and method. With arguments, as a module that
        contains the adapter gives them, it is the state_dict of the network.
        """
        if args or kwargs:
            return super().state_dict(*args, **kwargs)
        state: dict[str, Any] = {
            "format": STATE_FORMAT,
            "method": self.method.key,
            "hyperparameters": self.hyperparameters,
            "classes": self.classes,
            "head": self.model.head_name,
            "batches": self._batches,
            "place": self.model.place,
        }
        if self.ready:
            state["adapted"] = copy_tensors(self.model.adapted)
            state["buffers"] = self.model.moved_buffers()
            state["running"] = {k: capture(v) for k, v in self.running().items()}
        if self._keeper is not None:
            state["watch"] = self._keeper.state_dict()
        return state

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> None:
        """Continue where the state was taken. On an error nothing has changed."""
        state = state_dict
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

    def _load(self, state: Mapping[str, Any]) -> None:
        with torch.inference_mode(False):
            if not self.ready:
                self.model.head_name = state["head"] or self.model.head_name
                self._begin(state["classes"])
            self.model.head_name = self.model.head_name or state["head"]
            self.model.place = state.get("place")
            put_back(self.model.adapted, state["adapted"])
            self.model.load_buffers(state["buffers"])
            for name, current in self.running().items():
                saved = state["running"][name]
                setattr(self.method, name, revive(current, saved, self.model.device))
            self._health = self._left = None
            self._batches = state.get("batches", 0)
            self._was_small = False
            if "watch" in state and (self.guard is not None or self._callbacks):
                if self._keeper is None:
                    self._hire()
                if self._keeper is not None:
                    self._keeper.load_state_dict(state["watch"])
            elif self._keeper is not None:
                self._keeper.begin()

    def _check_settings(self, state: Mapping[str, Any]) -> None:
        ours = self.method.resolved(state["classes"], quiet=True).hyperparameters()
        theirs = state["hyperparameters"]
        different = {k: (theirs.get(k), v) for k, v in ours.items() if theirs.get(k) != v}
        if different:
            listed = ", ".join(f"{k}={a!r} (here {b!r})" for k, (a, b) in different.items())
            raise StateError(f"the state was taken with other hyper-parameters: {listed}")


def running_state(method: Method) -> dict[str, Any]:
    """Whatever `fit` and `start` assigned: every attribute that is not a field."""
    fields = set(method.field_names())
    return {name: value for name, value in vars(method).items() if name not in fields}
