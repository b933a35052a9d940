"""A model and a method: what a batch does, once it is checked, and how both begin and reset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from .errors import HeadError, ModelError, NeedError
from .method import Method, Need, Timing
from .parts.classifier import Classifier
from .parts.compute import Compute, check_precision, choose_layout, compile_blocks
from .parts.features import Capture, captured, capturing
from .parts.output import USES_FEATURES, finish
from .parts.tensors import private_copy
from .prepare import caution_probabilities, source_batches
from .state import copy_value, restore_snapshot, take_snapshot


class Learner:
    """A classifier and the method that adapts it. The adapter checks batches, guards and saves it.

    learn(x)               predict, and learn from it
    watch(x)               predict; statistics that move do move
    current(x)             predict; nothing changes
    unlearned_forward(x)   predict with the first parameters, under the statistics of now
    source_forward(x)      predict with the model as it was given

    `head_input` is what entered the head in the last of the first three, where somebody needs it:
    the method, its output stage, or a supervisor (`observed`).
    """

    def __init__(
        self, net: nn.Module, method: Method, compute: Compute, head: str | None, inplace: bool
    ) -> None:
        self.method, self.compute = method, compute
        self.classes: int | None = None  # known from the first batch on
        self.head_input: Tensor | None = None
        self.observed = False
        # A model adapted in place stays as it is. Methods that move every weight by the sign of
        # its gradient (TSD with Adam) turn rounding into more than rounding.
        free = not inplace and not (method.gradient and Need.NORM not in method.needs)
        layout = choose_layout(net, compute.layout, free)
        net = net if inplace else private_copy(net, compute.share)
        if layout is not None:
            net.to(memory_format=getattr(torch, layout))  # type: ignore[call-overload]
        self.model = Classifier(
            net, head, layout, compute.precision, compute.last_norms, compute.share
        )
        check_precision(compute.precision, self.model.device)
        self.model.freeze()

    # ---- the first batch ---------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return self.classes is not None

    def prepare(self, x: Tensor) -> int:
        """On the first batch: count the classes, find the head, configure and start the method."""
        if self.classes is not None:
            return self.classes
        with torch.no_grad():
            logits = self.model(x)
            classes = logits.shape[1]
            if self._needs_head:
                self.model.locate_head(x[:2], classes)
            elif self.compute.compile is not None:  # to leave it uncompiled
                self.look_for_head(x)
        caution_probabilities(logits)
        self.begin(classes)
        return classes

    def prepare_from_source(self, source: Iterable[Any]) -> None:
        """The same with source images, on which the method measures what it needs."""
        batches = source_batches(source, self.model)
        first = next(batches, None)
        if first is None:
            raise NeedError(f"{self.method.key} needs source images, but source= is empty")
        with torch.no_grad():
            classes = self.model(first).shape[1]
            if self._needs_head:
                self.model.locate_head(first[:2], classes)
        self.begin(classes, chain([first], batches))

    def begin(self, classes: int, source: Iterable[Tensor] | None = None) -> None:
        method = self.method.resolved(classes)
        method.configure(self.model)
        kind = method.published_statistics if method.statistics is None else method.statistics
        if method.statistics is not None or kind != "batch":  # `configure` chose "batch" itself
            self.model.set_statistics(kind, classes)
        if self.compute.compile is not None:
            compile_blocks(self.model.net, self.model.head_name, self.compute.compile)
        self.model.remember()
        if source is not None:
            with torch.enable_grad():
                method.fit(self.model, source)
        self.start(method)
        self.method, self.classes = method, classes

    def start(self, method: Method) -> None:
        method.start(self.model)
        if self.model.statistics is not None:
            vars(method)["batch_norm"] = self.model.statistics  # running state like any other

    def forget(self, method: Method, head: str | None, place: Any) -> None:
        """As before the first batch."""
        self.method, self.classes = method, None
        self.model.forget(head, place)

    def look_for_head(self, x: Tensor) -> None:
        """Features are worth a look where there is a head; not every model has one."""
        if self.model.head_name is None:
            with suppress(HeadError, ModelError), self.model.as_source():
                self.model.locate_head(x[:2], self.model(x[:2]).shape[1])

    # ---- every batch -------------------------------------------------------------------------

    def learn(self, x: Tensor) -> Tensor:
        if self.method.episodic == "image":
            return self._kept(*joined([self._episode(image) for image in x.split(1)]))
        return self._kept(*self._learned(x))

    def _learned(self, x: Tensor) -> tuple[Tensor, Capture]:
        if self.model.statistics is not None and not self.method.settles:
            with torch.no_grad():
                self.model.settle(x)
        for _ in range(self.method.steps):
            with self._capturing(len(x)) as box, torch.inference_mode(not self.method.gradient):
                logits = self._checked(self.method.step(self.model, x), "step", len(x))
        if self.timing == "after":
            with self._capturing(len(x)) as box, torch.no_grad():
                logits = self._checked(self.method.forward(self.model, x), "forward", len(x))
        # an ordinary tensor again
        return (logits.detach() if self.method.gradient else logits.clone()), box

    def _checked(self, logits: Any, verb: str, batch: int) -> Tensor:
        """What a method returned, which may be somebody's own."""
        if not isinstance(logits, Tensor) or logits.shape != (batch, self.classes):
            shown = type(logits).__name__
            if isinstance(logits, Tensor):
                shown = f"a tensor of shape {tuple(logits.shape)}"
            raise ModelError(
                f"{type(self.method).__name__}.{verb} returned {shown}; logits of shape"
                f" ({batch}, {self.classes}) are expected: one row for every image"
            )
        return logits

    def _episode(self, image: Tensor) -> tuple[Tensor, Capture]:
        """One image on its own, from the initial state; only random numbers go on."""
        running = self.method.running_state()
        self.start_over()
        for name, value in running.items():
            if isinstance(value, torch.Generator):
                setattr(self.method, name, value)
        return self._learned(image)

    @torch.no_grad()
    def current(self, x: Tensor) -> Tensor:
        with self._capturing(len(x)) as box:
            return self._kept(self.method.forward(self.model, x), box)

    @torch.no_grad()
    def watch(self, x: Tensor) -> Tensor:
        with self._capturing(len(x)) as box:
            return self._kept(self.method.watch(self.model, x), box)

    @torch.no_grad()
    def source_forward(self, x: Tensor) -> Tensor:
        with self.model.as_source():
            return self.model(x)

    @torch.no_grad()
    def unlearned_forward(self, x: Tensor) -> Tensor:
        with self.model.with_initial_parameters():
            return self.forward(x)

    def forward(self, x: Tensor) -> Tensor:
        """As `current`, but the features are not kept."""
        with self._capturing(len(x)) as box:
            logits = self.method.forward(self.model, x)
        return self._finish(logits, box)

    @property
    def timing(self) -> Timing:
        """Whose logits are returned: of the forward before the update, or of one after it."""
        return self.method.predict or self.method.timing

    def _kept(self, logits: Tensor, box: Capture) -> Tensor:
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
        if not (self.observed or self._needs_head) or self.model.head_name is None:
            return nullcontext(Capture())
        return capturing(self.model.head_module, rows, skip=lambda: self.model.aside)

    # ---- back --------------------------------------------------------------------------------

    def start_over(self) -> None:
        """Model and method in their initial state."""
        with torch.inference_mode(False):
            self.model.restore()
            self.start(self.method)

    def unlearn(self) -> None:
        """As `start_over`, but what does not come from learning stays: statistics that move."""
        method = self.method
        lasting = {name: value for name, value in vars(method).items() if name in method.lasting}
        with torch.inference_mode(False):
            self.model.restore(statistics=False)
            self.start(method)
        vars(method).update(lasting)

    @contextmanager
    def all_or_nothing(self, learns: bool) -> Iterator[dict[str, Any] | None]:
        """The state before a batch, if it is ready to learn from it; an error brings it back."""
        model, ready = self.model, self.ready
        first = (self.method, model.head_name, model.place)
        before = take_snapshot(model, self.method, copy_value) if ready and learns else None
        try:
            yield before
        except BaseException:
            if before is not None:
                restore_snapshot(model, self.method, before)
            if not ready:
                self.forget(*first)
            _, model.head_name, model.place = first
            raise


def joined(parts: list[tuple[Tensor, Capture]]) -> tuple[Tensor, Capture]:
    """Logits and features of the parts of a batch."""
    features = [box.features for _, box in parts if box.features is not None]
    box = Capture(torch.cat(features) if len(features) == len(parts) else None)
    return torch.cat([logits for logits, _ in parts]), box
