"""The adapter: checks, guards, saves and exports a model that learns while it predicts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from .errors import ConfigError, FrettaError, ModelError, StateError, warn
from .export import export_plain
from .guard import Guard, Health, Mode, Supervisor, flat, html_table, measure
from .learner import Learner
from .method import Method, Need, Timing
from .methods import build_method
from .parts.classifier import Classifier
from .parts.compute import Compute
from .parts.features import captured, capturing
from .prepare import (
    SmallBatchCheck,
    check_needs,
    check_overflow,
    checked_batch,
    predicts,
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
    `eval()` by habit. A batch that fails or is interrupted changes nothing. Threads take turns, but
    for `parameters()` and `buffers()`, which may show the middle of another thread's batch.
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
        if isinstance(model, Adapter):
            raise ModelError("model is an adapter already; give the model that it adapts")
        built = build_method(method, hyperparameters)
        built.check()
        self.guard = Guard.of(guard)
        self._batches = 0
        self._weights: str | None = None  # digest of the parameters that were given
        self._check_size = SmallBatchCheck()
        self._turn = threading.RLock()  # of the thread whose batch it is
        self._callbacks: list[Callable[[Health], Any]] = []
        self._supervisor: Supervisor | None = None
        self._health: Health | None = None
        self._last: tuple[Tensor, Tensor] | None = None  # logits and two images of the last batch
        net = unwrapped(model)
        check_needs(net, built, source)
        with torch.inference_mode(False):
            self.learner = Learner(net, built, compute or Compute(), head, inplace)
            self.net = self.model.net  # registered: parameters(), to(), ... see it
            if source is not None and Need.SOURCE in built.needs:
                self.learner.prepare_from_source(source)

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
            learner = self.learner
            learner.prepare(x)
            self._check_size(x, self.method, self.model)
            every = 1 if self.method.episodic is True else self.method.reset_every
            if every is not None and self._batches % every == 0:
                learner.start_over()
                before = None
                if self._supervisor is not None:
                    self._supervisor.ring.clear()  # no way back to what is forgotten
            if self._supervisor is None and (self.guard is not None or self._callbacks):
                learner.look_for_head(x)
                self._supervise()
            learner.observed = self._supervisor is not None
            health, last = None, None
            if self._supervisor is None:
                logits = learner.learn(x).detach()
                last = (logits, spread(x).clone())
            else:
                logits, health = self._supervisor.run(x, before)
            self._check_finite(logits, x)
            self._health, self._last = health, last
            self._batches += 1
            if health is not None:
                for callback in self._callbacks:
                    callback(health)
        return logits.detach()

    def predict(self, x: Tensor) -> Tensor:
        """Predict with the model as adapted so far; an episodic one has forgotten the last batch.
        No state changes."""
        with torch.inference_mode(False), torch.no_grad(), self._whole(x, learns=False) as (x, _):
            self.learner.prepare(x)
            self._check_size(x, self.method, self.model)
            with self._forgotten():
                logits = self._forward(x)
            return self._check_finite(logits, x)

    def source_logits(self, x: Tensor) -> Tensor:
        """Logits of the model as it was given, batch-norm statistics and all. No state changes."""
        with torch.inference_mode(False), self._whole(x, learns=False) as (x, _):
            self.learner.prepare(x)
            return self._check_finite(self.learner.source_forward(x), x)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(embeddings that enter the head, logits) of the model as adapted so far."""
        with torch.inference_mode(False), torch.no_grad(), self._whole(x, learns=False) as (x, _):
            classes = self.learner.prepare(x)
            if self.model.head_name is None:
                self.model.locate_head(x[:2], classes)
            # memo predicts image by image; stein lets the adapted model speak last
            head = self.model.head_module
            with self._forgotten(), capturing(head, len(x), last=True) as box:
                logits = self._forward(x)
            features = captured(box, self.model.head_name)
            return features, self._check_finite(logits, x)

    def reset(self) -> None:
        """Back to the initial state: adapted tensors and all running state, the guard's too."""
        with self._turn:
            self._health, self._last, self._batches = None, None, 0
            if self.ready:
                self.learner.start_over()
            if self._supervisor is not None:
                self._supervisor.reset()

    @contextmanager
    def _whole(
        self, x: Tensor, learns: bool = True
    ) -> Iterator[tuple[Tensor, dict[str, Any] | None]]:
        """The checked batch and the state before it; one that fails or is interrupted leaves no
        trace. One batch at a time: other threads wait."""
        x = checked_batch(x, self.model)
        with self._turn:
            guard, counted = self._supervisor, self._batches
            shown = self._health, self._last
            watched = guard.state_dict(keep=list) if guard and learns else None
            try:
                with self.learner.all_or_nothing(learns) as before:
                    yield x, before
            except BaseException:
                if guard is None:
                    self._supervisor = None
                elif watched is not None:
                    guard.load_state_dict(watched)
                self._batches = counted
                self._health, self._last = shown
                raise

    def _check_finite(self, logits: Tensor, x: Tensor) -> Tensor:
        """NaN is returned only where weights diverged: the source model does predict the batch."""
        if not bool(predicts(logits).all()):
            check_overflow(self.learner.source_forward(x), x)
        return logits

    def _forward(self, x: Tensor) -> Tensor:
        return self.learner.source_forward(x) if self.safe else self.learner.forward(x)

    @contextmanager
    def _forgotten(self) -> Iterator[None]:
        """While active, an episodic method is in its initial state, in which its next episode will
        begin. Until then the last one stays, for `health`."""
        if not self.method.episodic or self.safe:
            yield
            return
        last = take_snapshot(self.model, self.method, copy_value)
        try:
            self.learner.start_over()
            yield
        finally:
            restore_snapshot(self.model, self.method, last)

    # ---- health ------------------------------------------------------------------------------

    @property
    def health(self) -> Health | None:
        """How the last batch went, without labels; None before the first.

        With a guard or callbacks it is measured at every batch. Otherwise it is measured when it
        is read, from what the last step left behind; then there is no running reference and no
        norm of the update.
        """
        with self._turn:
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
                    source = self.learner.source_forward(images).argmax(1)
                differ = (source != spread(logits).argmax(1)).float()
                self._health = replace(health, changed=float(differ.mean()))
            return self._health

    def on_health(self, callback: Callable[[Health], Any]) -> None:
        """Call this with the `Health` of every batch to come: a writer, or any function. If it
        raises, the batch did not happen, as with any other error."""
        if not callable(callback):
            raise ConfigError(f"on_health({callback!r}): a function of a Health is expected")
        self._callbacks.append(callback)

    @property
    def safe(self) -> bool:
        """Whether the guard lets the source model predict, because adaptation does harm."""
        return self._supervisor is not None and self._supervisor.mode is Mode.SOURCE

    @property
    def by_source(self) -> bool:
        """Whether the last batch got the source model's predictions, or mostly."""
        guarded = self._supervisor is not None and self._supervisor.by_source
        return guarded or not self.method.adapts or (self.ready and self.method.source_share > 0.5)

    def _supervise(self) -> Supervisor:
        if self.classes is None:
            raise StateError("the adapter has not seen a batch yet")
        self._supervisor = Supervisor(self.learner, self.guard, self.classes)
        self._supervisor.batch = self._batches
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
        A method that mixes two models (stein, auto) exports the one with the greater weight (on
        these images, where some are given), and warns where the other counts a quarter or more.
        """
        if not self.ready:
            raise StateError("there is nothing to export yet: the adapter has not seen a batch")
        with self._turn, torch.inference_mode(False), torch.no_grad(), self._forgotten():
            return export_plain(self.learner, self.safe, statistics)

    # ---- facts -------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the first batch has been seen."""
        return self.learner.ready

    @property
    def model(self) -> Classifier:
        """The network as methods see it."""
        return self.learner.model

    @property
    def method(self) -> Method:
        return self.learner.method

    @property
    def classes(self) -> int | None:
        """How many; None before the first batch."""
        return self.learner.classes

    @property
    def head_input(self) -> Tensor | None:
        """The features of the last batch, where the method or the guard needs them."""
        return self.learner.head_input

    @property
    def timing(self) -> Timing:
        """Whose logits are returned: of the forward before the update, or of one after it."""
        return self.learner.timing

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
        with self._turn, torch.inference_mode(False):
            state = self.state_dict() if self.ready else None
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            self.model.apply_to_initial(fn)
            self._weights = None
            if state is not None:
                self._supervisor = None
                self.learner.start(self.method)
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
            if self.ready and self.method.adapts:
                warn(
                    "the state_dict of a module that holds an adapter has the adapted network and"
                    " nothing to go on from: save adapter.state_dict() by itself"
                )
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
        if "format" not in state:
            raise StateError(
                "this is no state of an adapter, which adapter.state_dict() gives; weights of a"
                " model go into the model, before fretta.adapt"
            )
        if state["format"] != STATE_FORMAT or state.get("method") != self.method.key:
            raise StateError(
                f"this is not a state of {self.method.key!r} in format {STATE_FORMAT}: it says"
                f" method {state.get('method')!r}, format {state['format']!r}"
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
                self.learner.forget(method, head, place)
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
                self.learner.begin(state["classes"])
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
                self._supervisor.batch = self._batches

    def _check_settings(self, state: Mapping[str, Any]) -> None:
        ours = self.method.resolved(state["classes"], quiet=True).hyperparameters()
        theirs = state["hyperparameters"]
        different = {k: (theirs.get(k), v) for k, v in ours.items() if theirs.get(k) != v}
        if different:
            listed = ", ".join(f"{k}={a!r} (here {b!r})" for k, (a, b) in different.items())
            raise StateError(f"the state was taken with other hyper-parameters: {listed}")


def spread(rows: Tensor) -> Tensor:
    """The first row and one from the middle."""
    return rows[:: -(-len(rows) // 2)]
