"""The classification head of any model, and the embedding that enters it: found by looking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..errors import HeadError, ModelError


def logits_of(output: Any, batch: int) -> Tensor:
    """The (N, C) logits in whatever a model returned, or an error that says what to do."""
    if not isinstance(output, Tensor) and isinstance(getattr(output, "logits", None), Tensor):
        output = output.logits  # Hugging Face
    if isinstance(output, dict):
        raise ModelError(
            f"the model returned a dict with the keys {sorted(map(str, output))}, not logits; wrap"
            " it in a module whose forward returns the (N, C) logits, e.g. `return"
            " self.net(x)['logits']`"
        )
    if isinstance(output, tuple | list):
        shapes = [tuple(o.shape) if isinstance(o, Tensor) else type(o).__name__ for o in output]
        raise ModelError(
            f"the model returned a {type(output).__name__} of {len(output)} items {shapes}, not"
            " logits; wrap it in a module whose forward returns the (N, C) logits, e.g. `return"
            " self.net(x)[0]`"
        )
    if not isinstance(output, Tensor):
        raise ModelError(
            f"the model returned a {type(output).__name__}; fretta adapts classifiers whose output"
            " is a tensor of (N, C) logits or an object with `.logits`"
        )
    if output.dim() != 2 or output.shape[0] != batch or output.shape[1] < 2:
        raise ModelError(
            f"the model returned shape {tuple(output.shape)} for a batch of {batch}; fretta adapts "
            "classifiers that return (N, C) logits with C >= 2"
        )
    return output


@dataclass
class Capture:
    """What entered a module in the last forward."""

    features: Tensor | None = None


@contextmanager
def capturing(head: nn.Module) -> Iterator[Capture]:
    """While active, keep what enters the head."""
    box = Capture()

    def keep(_: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values = [*inputs, *kwargs.values()]
        box.features = values[0] if values and isinstance(values[0], Tensor) else None

    hook = head.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield box
    finally:
        hook.remove()


def captured(box: Capture, head: str | None) -> Tensor:
    """What was captured, or an error if the head was not called."""
    if box.features is None:
        raise HeadError(
            f"the head {head!r} was not called with a tensor in this forward; the model takes"
            " another path for this input. Name the module that is always used: head='...'"
        )
    return flat(box.features)


def flat(features: Tensor) -> Tensor:
    """(N, d): a pooled (N, d, 1, 1) map, as it enters a 1×1 convolution, without its last axes."""
    return features.flatten(1) if features.dim() == 4 and features.shape[2:] == (1, 1) else features


def _has_parameters(module: nn.Module) -> bool:
    """Of its own, or hidden in the parametrisation of its own (weight norm)."""
    own = any(True for _ in module.parameters(recurse=False))
    return own or "parametrizations" in module._modules


@dataclass
class _Trace:
    """Which modules produced the logits themselves, and which produced something of their shape."""

    producers: list[str] = field(default_factory=list)
    lookalikes: list[str] = field(default_factory=list)


def find_head(net: nn.Module, x: Tensor) -> str:
    """The name of the module whose output is the logits, and whose input therefore the features.

    Runs one forward and looks: a module qualifies if it has parameters of its own and its output
    lives in the same memory as the logits (an Identity, Flatten or container after it passes the
    tensor through and has none).
    """
    outputs: dict[str, Tensor] = {}
    with ExitStack() as stack:
        for name, module in net.named_modules():
            if name and _has_parameters(module):

                def record(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
                    if isinstance(output, Tensor):
                        outputs[name] = output

                stack.callback(module.register_forward_hook(record).remove)
        logits = logits_of(net(x), len(x))

    trace = _Trace()
    for name, output in outputs.items():
        if output.data_ptr() == logits.data_ptr() and output.numel() == logits.numel():
            trace.producers.append(name)
        elif output.shape == logits.shape and isinstance(net.get_submodule(name), nn.Linear):
            trace.lookalikes.append(name)
    if len(trace.producers) == 1:
        return trace.producers[0]
    raise HeadError(_no_single_head(trace))


def _no_single_head(trace: _Trace) -> str:
    if trace.producers:
        names = ", ".join(map(repr, trace.producers))
        return (
            f"several modules produce the logits: {names}; name the right one:"
            f" head={trace.producers[0]!r}"
        )
    if len(trace.lookalikes) > 1:
        names = ", ".join(map(repr, trace.lookalikes))
        return (
            f"the model has {len(trace.lookalikes)} candidate heads, {names}, and none of them"
            " alone produces the logits; name the one whose input is the embedding:"
            f" head={trace.lookalikes[0]!r}"
        )
    hint = (
        f"if {trace.lookalikes[0]!r} is the head and its output is only rescaled, say"
        f" head={trace.lookalikes[0]!r}"
        if trace.lookalikes
        else (
            "name the last linear layer: head='...' , or use a method that needs no features, e.g."
            " 'tent'"
        )
    )
    return f"no module's output is the model's logits (they are computed in forward itself); {hint}"


def check_linear(name: str, head: nn.Module, features: Tensor | None, classes: int) -> None:
    """FRET and TSD work on (N, d) embeddings and a head with one weight row per class."""
    weight = getattr(head, "weight", None)
    if features is None or features.dim() != 2:
        seen = "no tensor" if features is None else f"a tensor of shape {tuple(features.shape)}"
        raise HeadError(
            f"{seen} enters the head {name!r} ({type(head).__name__}); (N, d) embeddings are"
            " needed. Name another module with head='...', or use a method that needs no features,"
            " e.g. 'tent'"
        )
    pointwise = isinstance(head, nn.Conv2d) and head.kernel_size == (1, 1)
    if pointwise and isinstance(weight, Tensor):
        weight = weight.flatten(1)
    if not isinstance(weight, Tensor) or weight.shape != (classes, features.shape[1]):
        shape = tuple(weight.shape) if isinstance(weight, Tensor) else "none"
        raise HeadError(
            f"the head {name!r} ({type(head).__name__}) has weight {shape}, but {classes} classes ×"
            f" {features.shape[1]} features are needed. Name the linear layer with head='...', or"
            " use 'tent'"
        )
