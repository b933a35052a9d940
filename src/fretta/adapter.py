"""The adapter: a private copy of the user's model, a method, and everything methods share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from .errors import ConfigError, FrettaError, HeadError, ModelError, NeedError, StateError
from .export import plain_copy
from .guard import Guard, Health, Mode, Supervisor, flat, html_table, measure
from .method import Method, Need, Timing
from .methods import build_method
from .parts.classifier import Classifier, private_copy
from .parts.compute import Compute, check_precision, choose_layout, compile_blocks
from .parts.features import Capture, captured, capturing
from .parts.output import USES_FEATURES, finish
from .prepare import (
    SmallBatchCheck,
    caution_probabilities,
    check_needs,
    check_overflow,
    checked_batch,
    predicts,
    source_batches,
    unwrapped,
)
from .state import copy_value, digest, restore_snapshot, take_snapshot

STATE_FORMAT = 2


class Adapter(nn.Module):
    """A classifier that adapts while it predicts. `fretta.adapt` is another name for this class.

        adapter = fretta.adapt(model, "g-fret", lr=1e-3)

    model       a classifier; a copy of it learns, unless `inplace`
    method      a name from `list_methods()`, `module:Class`, or a `Method` instance
    source      unlabeled source images for methods that need them (eata): any iterable of image
                batches or of (images, labels), whose labels are ignored
    head        name of the module that maps features to logits; None: found on the first batch
    guard       what to do when adaptation does harm: "warn", "skip" the update, "rollback" to the
                last good state, "reset", or a `Guard` with thresholds; None: nothing
    inplace     adapt the given model itself
    compute     a `Compute`: memory layout, precision, compilation, how many layers learn
    **          hyper-parameters of the method, by name; one that is given wins over what a
                `variant` implies. Every method has `steps` (updates per batch), `episodic`
                (forget after every batch), `predict` ("before" or "after" the update),
                `reset_every` (batches), `statistics` (of batch norms, e.g. "adaptive") and
                `output` ("prior" or "lame" behind the method)

        adapter(x)            logits of the batch, and the model learns from it
        adapter.predict(x)    logits only; no state changes
        adapter.reset()       back to the initial state, bit for bit
        adapter.to(device)    moves the model and everything learned
        adapter.state_dict()  everything needed to go on later, bit for bit
        adapter.health        how the last batch went, without labels
        adapter.export()      the adapted model as a plain PyTorch module

    The number of classes and the head are found on the first batch (or in `source`); until then
    `ready` is False. `train()` and `eval()` do not switch adaptation: evaluation scripts call
    `eval()` by habit. A batch that fails or is interrupted changes nothing; threads take turns.
    """

    def __init__(
        self,
        model: nn.Module,
        method: str | Method = "auto",
        *,
        source: Iterable[Any] | None = None,
        head: str | None = None,
        guard: Guard | str | None = None,
        inplace: bool = False,
        compute: Compute | None = None,
        **hyperparameters: Any,
    ) -> None:
        """See the class for the arguments."""
        super().__init__()
        self.method = build_method(method, hyperparameters)
        self.method.check()
        self.classes: int | None = None
        self.guard = Guard.of(guard)
        self.compute = compute or Compute()
        self.head_input: Tensor | None = None  # what entered the head in the last forward
        self._batches = 0
        self._weights: str | None = None  # digest of the parameters that were given
        self._check_size = SmallBatchCheck()
        self._turn = threading.RLock()  # of the thread whose batch it is
        self._callbacks: list[Callable[[Health], Any]] = []
        self._supervisor: Supervisor | None = None
        self._health: Health | None = None
        self._last: tuple[Tensor, Tensor] | None = None  # logits and two images of the last batch
        net = unwrapped(model)
        check_needs(net, self.method, source)
        with torch.inference_mode(False):
            self.model = self._classifier(net, head, inplace)
            self.net = self.model.net  # registered: parameters(), to(), ... see it
            self.model.freeze()
            if source is not None and Need.SOURCE in self.method.needs:
                self._prepare_from_source(source)

    def _classifier(self, net: nn.Module, head: str | None, inplace: bool) -> Classifier:
        compute = self.compute
        # A model adapted in place stays as it is. Methods that move every weight by the sign of
        # its gradient (TSD with Adam) turn rounding into more than rounding.
        free = not inplace and not (self.method.gradient and Need.NORM not in self.method.needs)
        layout = choose_layout(net, compute.layout, free)
        net = net if inplace else private_copy(net, compute.share)
        if layout is not None:
            net.to(memory_format=getattr(torch, layout))  # type: ignore[call-overload]
        model = Classifier(net, head, layout, compute.precision, compute.last_norms, compute.share)
        check_precision(compute.precision, model.device)
        return model

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    # ---- every batch -------------------------------------------------------------------------

    def forward(self, x: Tensor) -> Tensor:
        """Predict this batch and learn from it; detached (N, C) logits."""
        # Works under the caller's no_grad and inference_mode: learning needs gradients regardless.
        with (
            torch.inference_mode(False),
            torch.set_grad_enabled(self.method.gradient),
            self._whole(x) as (x, before),
        ):
            self._begin_with(x)
            every = 1 if self.method.episodic is True else self.method.reset_every
            if every is not None and self._batches % every == 0:
                self.start_over()
                before = None
            if self._supervisor is None and (self.guard is not None or self._callbacks):
                self._look_for_head(x)
                self._supervise()
            health, last = None, None
            if self._supervisor is None:
                logits = self.learn(x).detach()
                last = (logits, spread(x).clone())
            else:
                logits, health = self._supervisor.run(x, before)
            self._check_finite(logits, x)
            self._health, self._last = health, last
            self._batches += 1
        for callback in self._callbacks:
            if self._health is not None:
                callback(self._health)
        return logits.detach()

    def learn(self, x: Tensor) -> Tensor:
        """The step itself, without checks and supervision."""
        if self.method.episodic == "image":
            return self._kept(*joined([self._episode(image) for image in x.split(1)]))
        return self._kept(*self._learned(x))

    def _learned(self, x: Tensor) -> tuple[Tensor, Capture]:
        if self.model.statistics is not None and not self.method.settles:
            with torch.no_grad():
                self.model.settle(x)
        for _ in range(self.method.steps):
            with self._capturing(len(x)) as box, torch.inference_mode(not self.method.gradient):
                logits = self.method.step(self.model, x)
        if self.timing == "after":
            with self._capturing(len(x)) as box, torch.no_grad():
                logits = self.method.forward(self.model, x)
        # an ordinary tensor again
        return (logits.detach() if self.method.gradient else logits.clone()), box

    def _episode(self, image: Tensor) -> tuple[Tensor, Capture]:
        """One image on its own, from the initial state; only random numbers go on."""
        running = self.method.running_state()
        self.start_over()
        for name, value in running.items():
            if isinstance(value, torch.Generator):
                setattr(self.method, name, value)
        return self._learned(image)

    def current(self, x: Tensor) -> Tensor:
        """Logits of the model as it is, without checks."""
        with self._capturing(len(x)) as box, torch.no_grad():
            return self._kept(self.method.forward(self.model, x), box)

    def watch(self, x: Tensor) -> Tensor:
        """As `current`, but statistics that move do move."""
        with self._capturing(len(x)) as box, torch.no_grad():
            return self._kept(self.method.watch(self.model, x), box)

    def predict(self, x: Tensor) -> Tensor:
        """Predict with the model as adapted so far. No state changes."""
        with torch.inference_mode(False), torch.no_grad(), self._whole(x, learns=False) as (x, _):
            self._begin_with(x)
            return self._check_finite(self._forward(x), x)

    def source_logits(self, x: Tensor) -> Tensor:
        """Logits of the model as it was given, batch-norm statistics and all. No state changes."""
        with torch.inference_mode(False), self._whole(x, learns=False) as (x, _):
            self._prepare(x)
            return self._check_finite(self.source_forward(x), x)

    @torch.no_grad()
    def source_forward(self, x: Tensor) -> Tensor:
        """`source_logits` without checks."""
        with self.model.as_source():
            return self.model(x)

    @torch.no_grad()
    def unlearned_forward(self, x: Tensor) -> Tensor:
        """Logits of the method without what it learned: its statistics, the first parameters."""
        with self.model.with_initial_parameters():
            return self._adapted(x)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(embeddings that enter the head, logits) of the model as adapted so far."""
        with torch.inference_mode(False), torch.no_grad(), self._whole(x, learns=False) as (x, _):
            classes = self._prepare(x)
            if self.model.head_name is None:
                self.model.locate_head(x[:2], classes)
            with capturing(self.model.head_module) as box:
                logits = self._forward(x)
            features = captured(box, self.model.head_name)
            return features, self._check_finite(logits, x)

    def reset(self) -> None:
        """Back to the initial state: adapted tensors and all running state, the guard's too."""
        with self._turn:
            self._health, self._last, self._batches = None, None, 0
            if self.ready:
                self.start_over()
            if self._supervisor is not None:
                self._supervisor.reset()

    def start_over(self) -> None:
        """Model and method in their initial state; what the guard knows stays."""
        with torch.inference_mode(False):
            self.model.restore()
            self._start(self.method)

    def unlearn(self) -> None:
        """As `start_over`, but what does not come from learning stays: statistics that move."""
        method = self.method
        lasting = {name: value for name, value in vars(method).items() if name in method.lasting}
        with torch.inference_mode(False):
            self.model.restore(statistics=False)
            self._start(method)
        vars(method).update(lasting)

    @contextmanager
    def _whole(
        self, x: Tensor, learns: bool = True
    ) -> Iterator[tuple[Tensor, dict[str, Any] | None]]:
        """The checked batch and the state before it; one that fails or is interrupted leaves no
        trace. One batch at a time: other threads wait."""
        x = checked_batch(x, self.model)
        with self._turn:
            model, guard = self.model, self._supervisor
            first = (self.method, model.head_name, model.place)
            before = None
            if self.ready and learns:
                before = take_snapshot(model, self.method, copy_value)
            watched = guard.state_dict(keep=list) if guard and learns else None
            was_ready, counted = self.ready, self._batches
            try:
                yield x, before
            except BaseException:
                if before is not None:
                    restore_snapshot(model, self.method, before)
                if guard is None:
                    self._supervisor = None
                elif watched is not None:
                    guard.load_state_dict(watched)
                if not was_ready:
                    self._unprepare(*first)
                _, model.head_name, model.place = first
                self._batches = counted
                raise

    def _begin_with(self, x: Tensor) -> None:
        self._prepare(x)
        self._check_size(x, self.method, self.model)

    def _unprepare(self, method: Method, head: str | None, place: Any) -> None:
        """As before the first batch."""
        self.method, self.classes = method, None
        self.model.forget(head, place)

    def _check_finite(self, logits: Tensor, x: Tensor) -> Tensor:
        """NaN is returned only where weights diverged: the source model does predict the batch."""
        if not bool(predicts(logits).all()):
            check_overflow(self.source_forward(x), x)
        return logits

    def _forward(self, x: Tensor) -> Tensor:
        return self.source_forward(x) if self.safe else self._adapted(x)

    def _adapted(self, x: Tensor) -> Tensor:
        with self._capturing(len(x)) as box:
            logits = self.method.forward(self.model, x)
        return self._finish(logits, box)

    def _kept(self, logits: Tensor, box: Capture) -> Tensor:
        """Keep the features of what is returned for whoever looks at them."""
        self.head_input = None if box.features is None else box.features.detach()
        return self._finish(logits, box)

    def _finish(self, logits: Tensor, box: Capture) -> Tensor:
        """The output stage, behind any method."""
        output = self.method.output
        z = captured(box, self.model.head_name) if output in USES_FEATURES else None
        return finish(output, logits, None if z is None else z.detach())

    @property
    def _needs_head(self) -> bool:
        return Need.HEAD in self.method.needs or self.method.output in USES_FEATURES

    def _capturing(self, rows: int) -> AbstractContextManager[Capture]:
        """Keep what enters the head in the forward whose logits are returned, the first one (or the
        first ones, where a method takes a batch of so many rows in pieces)."""
        wanted = self._supervisor is not None or self._needs_head
        if not wanted or self.model.head_name is None:
            return nullcontext(Capture())
        return capturing(self.model.head_module, rows, skip=lambda: self.model.aside)

    # ---- health ------------------------------------------------------------------------------

    @property
    def health(self) -> Health | None:
        """How the last batch went, without labels; None before the first.

        With a guard or callbacks it is measured at every batch. Otherwise it is measured when it
        is read, from what the last step left behind; then there is no running reference and no
        norm of the update.
        """
        if self._health is None and self._last is not None:
            logits, images = self._last
            health, _ = measure(
                logits,
                self.method,
                self._batches - 1,
                features=self.head_input,
                now=flat(self.model.parameters()),
                origin=flat(self.model.origin.values()),
            )
            with torch.inference_mode(False):
                source = self.source_forward(images).argmax(1)
            differ = (source != spread(logits).argmax(1)).float()
            self._health = replace(health, changed=float(differ.mean()))
        return self._health

    def on_health(self, callback: Callable[[Health], Any]) -> None:
        """Call this with the `Health` of every batch to come: a writer, or any function."""
        self._callbacks.append(callback)

    @property
    def safe(self) -> bool:
        """Whether the guard lets the source model predict, because adaptation does harm."""
        return self._supervisor is not None and self._supervisor.mode is Mode.SOURCE

    @property
    def by_source(self) -> bool:
        """Whether the last batch got the source model's predictions, or mostly."""
        guarded = self._supervisor is not None and self._supervisor.by_source
        return guarded or not self.method.adapts or (self.ready and self.method.believes_source)

    def _look_for_head(self, x: Tensor) -> None:
        """Features are worth a look where there is a head; not every model has one."""
        if self.model.head_name is None:
            with suppress(HeadError, ModelError), self.model.as_source():
                self.model.locate_head(x[:2], self.model(x[:2]).shape[1])

    def _supervise(self) -> Supervisor:
        if self.classes is None:
            raise StateError("the adapter has not seen a batch yet")
        self._supervisor = Supervisor(self, self.guard, self.classes)
        return self._supervisor

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
        A method that mixes two models (stein, auto) exports the one with the greater weight.
        """
        if not self.ready:
            raise StateError("there is nothing to export yet: the adapter has not seen a batch")
        images = None if statistics == "batch" else statistics
        if isinstance(images, str):
            raise ConfigError(
                f"export: statistics={images!r} is unknown; give 'batch', an iterable of image"
                " batches, or None"
            )
        from_source = self.safe or self.method.believes_source
        share = 1.0 if from_source else self.method.batch_share
        if not from_source and self.method.output not in (None, "none"):
            raise ConfigError(
                f"output={self.method.output!r} looks at all predictions of a batch, which a plain"
                " module cannot do; adapt with output='none' to export"
            )
        if share is None:
            raise ConfigError(
                f"{self.method.key} predicts by more than a forward of the model, which a plain"
                " module cannot do"
            )
        if share < 1 and images is None and self.model.batch_norms:
            raise ConfigError(
                f"{self.method.key} mixes the statistics of every batch with the source's, which a"
                " plain module cannot do; give statistics=, an iterable of image batches"
            )
        with torch.inference_mode(False), torch.no_grad():
            return plain_copy(
                self.model,
                source=from_source,
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
            if self._needs_head:
                self.model.locate_head(x[:2], classes)
            elif self.compute.compile is not None:  # to leave it uncompiled
                self._look_for_head(x)
        caution_probabilities(logits)
        self._begin(classes)
        return classes

    def _prepare_from_source(self, source: Iterable[Any]) -> None:
        batches = source_batches(source, self.model)
        first = next(batches, None)
        if first is None:
            raise NeedError(f"{self.method.key} needs source images, but source= is empty")
        with torch.no_grad():
            classes = self.model(first).shape[1]
            if self._needs_head:
                self.model.locate_head(first[:2], classes)
        self._begin(classes, chain([first], batches))

    def _begin(self, classes: int, source: Iterable[Tensor] | None = None) -> None:
        method = self.method.resolved(classes)
        method.configure(self.model)
        if method.statistics is not None or method.published_statistics != "batch":
            kind = (
                method.statistics if method.statistics is not None else method.published_statistics
            )
            self.model.set_statistics(kind, classes)
        if self.compute.compile is not None:
            compile_blocks(self.model.net, self.model.head_name, self.compute.compile)
        self.model.remember()
        if source is not None:
            with torch.enable_grad():
                method.fit(self.model, source)
        self._start(method)
        self.method, self.classes = method, classes

    def _start(self, method: Method) -> None:
        method.start(self.model)
        if self.model.statistics is not None:
            vars(method)["batch_norm"] = self.model.statistics  # running state like any other

    # ---- facts -------------------------------------------------------------------------------

    @property
    def timing(self) -> Timing:
        """Whose logits are returned: of the forward before the update, or of one after it."""
        return self.method.predict or self.method.timing

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
        return f"<{self._title()}: {self._progress()}>"

    def _repr_html_(self) -> str:
        facts = {"state": self._progress(), "batches": self._batches}
        facts |= {} if self.guard is None else {"guard": self.guard}
        facts |= {k: v for k, v in self.hyperparameters.items() if v is not None}
        return html_table(self._title(), facts)

    def _title(self) -> str:
        return f"fretta.Adapter {self.method.key!r} on {type(self.model.net).__name__}"

    def _progress(self) -> str:
        waiting = "waiting for its first batch"
        return f"{len(self.adapted)} adapted tensors" if self.ready else waiting

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
            self._weights = None
            if state is not None:
                self._supervisor = None
                self._start(self.method)
                self._load(state)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_turn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._turn = threading.RLock()

    # ---- state -------------------------------------------------------------------------------

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Adapted tensors and all running state, as tensors and plain values.

        `torch.save` it and `torch.load(..., weights_only=True)` it. The frozen weights are not in
        it: load it into an adapter of the same model and method. `model` is a digest of the
        weights it belongs to, `digest` one of the state itself; without them nothing is compared.
        With arguments, as a module that contains the adapter gives them, it is the state_dict of
        the network.
        """
        if args or kwargs:
            return super().state_dict(*args, **kwargs)
        with self._turn:
            return self._state()

    def _state(self) -> dict[str, Any]:
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
            state |= {"model": self._model_digest(), **take_snapshot(self.model, self.method)}
        if self._supervisor is not None:
            state["guard"] = self._supervisor.state_dict()
        return {**state, "digest": digest(state)}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> None:
        """Continue where the state was taken. On an error nothing has changed."""
        with self._turn:
            self._load_checked(state_dict)

    def _load_checked(self, state: Mapping[str, Any]) -> None:
        if state.get("format") != STATE_FORMAT or state.get("method") != self.method.key:
            raise StateError(
                f"this is not a state of {self.method.key!r} in format {STATE_FORMAT}: it says"
                f" method {state.get('method')!r}, format {state.get('format')!r}"
            )
        content = {name: value for name, value in state.items() if name != "digest"}
        if state.get("digest") not in (None, digest(content)):
            raise StateError("the state is damaged: it is not what was saved")
        if state["classes"] is None:
            self.reset()
            return
        if state.get("model") not in (None, self._model_digest()):
            raise StateError("the state belongs to a model with other weights")
        self._check_settings(state)
        before = self.state_dict() if self.ready else None
        method, head, place = self.method, self.model.head_name, self.model.place
        try:
            self._load(state)
        except (
            FrettaError,
            ArithmeticError,
            AttributeError,
            LookupError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            if before is not None:
                self._load(before)
            else:
                self._unprepare(method, head, place)
            if isinstance(error, StateError):
                raise
            raise StateError(f"the state does not fit this adapter: {error}") from error

    def _model_digest(self) -> str:
        if self._weights is None:
            self._weights = digest(self.model.first_parameters())
        return self._weights

    def _load(self, state: Mapping[str, Any]) -> None:
        with torch.inference_mode(False):
            if not self.ready:
                self.model.head_name = state["head"] or self.model.head_name
                self._begin(state["classes"])
            self.model.head_name = self.model.head_name or state["head"]
            self.model.place = state["place"]
            missing = self.method.running_state().keys() - state["running"].keys()
            if missing:
                raise StateError(f"the state lacks {', '.join(sorted(missing))} of the method")
            restore_snapshot(self.model, self.method, state)
            self._health = self._last = None
            self._batches = state["batches"]
            self._check_size.previous_small = False
            if "guard" in state and (self.guard is not None or self._callbacks):
                (self._supervisor or self._supervise()).load_state_dict(state["guard"])
            elif self._supervisor is not None:
                self._supervisor.reset()

    def _check_settings(self, state: Mapping[str, Any]) -> None:
        ours = self.method.resolved(state["classes"], quiet=True).hyperparameters()
        theirs = state["hyperparameters"]
        different = {k: (theirs.get(k), v) for k, v in ours.items() if theirs.get(k) != v}
        if different:
            listed = ", ".join(f"{k}={a!r} (here {b!r})" for k, (a, b) in different.items())
            raise StateError(f"the state was taken with other hyper-parameters: {listed}")


def joined(parts: list[tuple[Tensor, Capture]]) -> tuple[Tensor, Capture]:
    """Logits and features of the parts of a batch."""
    features = [box.features for _, box in parts if box.features is not None]
    box = Capture(torch.cat(features) if len(features) == len(parts) else None)
    return torch.cat([logits for logits, _ in parts]), box


def spread(rows: Tensor) -> Tensor:
    """The first row and one from the middle."""
    return rows[:: -(-len(rows) // 2)]
