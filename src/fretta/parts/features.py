"""The classification head of any model, and the embedding that enters it: found by looking."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import HeadError, ModelError

# What models call embeddings: a lone (N, d) tensor of such a name is no prediction.
_NOT_LOGITS = re.compile(r"feature|embed|hidden|pool", re.IGNORECASE)


def logits_of(output: Any, batch: int, place: Any = None) -> Tensor:
    """The (N, C) logits in what a model returned; `place` is what `find_logits` found."""
    logits = take_logits(output, place)
    if not isinstance(logits, Tensor) or not _like_logits(logits, batch):
        raise ModelError(
            f"the model returned {_described(logits)} for a batch of {batch}; fretta adapts"
            " classifiers that return (N, C) logits with C >= 2"
        )
    return logits


def take_logits(output: Any, place: Any) -> Any:
    return output if isinstance(output, Tensor) else _parts(output).get(place)


def find_logits(output: Any, batch: int, classes: int | None = None) -> Any:
    """Where the logits are in what a model returned: a key, an index or a field. None: they are
    what it returned.

    It is the part named `logits`, or the only (N, C) tensor there is. `classes`, the outputs
    of a head that was named, decides between several.
    """
    if isinstance(output, Tensor):
        return None
    parts = _parts(output)
    if isinstance(parts.get("logits"), Tensor):
        return "logits"
    tensors = {k: v for k, v in parts.items() if isinstance(v, Tensor) and _like_logits(v, batch)}
    found = [name for name in tensors if not _NOT_LOGITS.search(str(name))]
    if len(found) > 1 and classes is not None:
        found = [name for name in found if tensors[name].shape[1] == classes]
    if len(found) == 1:
        return found[0]
    widths_differ = len({tensors[name].shape[1] for name in found}) > 1
    listed = ", ".join(f"{name!r}: {_described(part)}" for name, part in parts.items())
    raise ModelError(
        f"the model returned a {type(output).__name__}{f' with {listed}' if parts else ''}:"
        f" {'several tensors' if found else 'no tensor'} could be the (N, C) logits of {batch}"
        " images; wrap it in a module whose forward returns them, e.g. `return"
        f" self.net(x)[{found[0] if found else 'logits'!r}]`"
        + (", or name the head, which has as many outputs: head='...'" if widths_differ else "")
    )


def _parts(output: Any) -> dict[Any, Any]:
    """What an output is made of, by key, index or field."""
    if isinstance(output, Mapping):
        return dict(output)
    if isinstance(output, tuple | list):
        return output._asdict() if hasattr(output, "_asdict") else dict(enumerate(output))
    named = {"logits": output.logits} if hasattr(output, "logits") else {}  # a property, maybe
    return {**getattr(output, "__dict__", {}), **named}


def _like_logits(tensor: Tensor, batch: int) -> bool:
    return tensor.dim() == 2 and tensor.shape[0] == batch and tensor.shape[1] >= 2


def _described(part: Any) -> str:
    return f"shape {tuple(part.shape)}" if isinstance(part, Tensor) else f"a {type(part).__name__}"


@dataclass
class Capture:
    """What entered a module in the last forward."""

    features: Tensor | None = None


@contextmanager
def capturing(
    head: nn.Module,
    rows: int | None = None,
    skip: Callable[[], bool] = lambda: False,
    last: bool = False,
) -> Iterator[Capture]:
    """While active, keep what enters the head in the last forward; or, with `rows`, in the first
    one, or in the first ones (or `last` ones) that have so many rows together, and without their
    graph."""
    box = Capture()

    def keep(_: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values = [*inputs, *kwargs.values()]
        new = values[0] if values and isinstance(values[0], Tensor) else None
        if skip():
            return
        if rows is None:
            box.features = new
        elif new is not None:
            old = box.features
            if old is None or (last and len(old) >= rows):
                box.features = new.detach()
            elif len(old) < rows:
                box.features = torch.cat([old, new.detach()])

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
    return flat_features(box.features)


def flat_features(features: Tensor) -> Tensor:
    """(N, d): a pooled (N, d, 1, 1) map, as it enters a 1×1 convolution, without its last axes."""
    return features.flatten(1) if features.dim() == 4 and features.shape[2:] == (1, 1) else features


def _has_parameters(module: nn.Module) -> bool:
    """Of its own, or hidden in the parametrization of its own (weight norm)."""
    own = any(True for _ in module.parameters(recurse=False))
    return own or "parametrizations" in module._modules


def find_head(net: nn.Module, x: Tensor, place: Any = None) -> str:
    """The name of the module whose output is the logits, and whose input therefore the features.

    Runs one forward and looks: a module qualifies if it has parameters of its own and its output
    lives in the same memory as the logits (an Identity, Flatten or container after it passes the
    tensor through and has none). `place` says where the logits are in what the model returns.
    """
    outputs: dict[str, Tensor] = {}
    with ExitStack() as stack:
        for name, module in net.named_modules():
            if name and _has_parameters(module):

                def record(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
                    if isinstance(output, Tensor):
                        outputs[name] = output

                stack.callback(module.register_forward_hook(record).remove)
        output = net(x)
    place = find_logits(output, len(x)) if place is None else place
    logits = logits_of(output, len(x), place)

    producers, lookalikes = [], []
    for name, output in outputs.items():
        if output.data_ptr() == logits.data_ptr() and output.numel() == logits.numel():
            producers.append(name)
        elif output.shape == logits.shape and isinstance(net.get_submodule(name), nn.Linear):
            lookalikes.append(name)
    if len(producers) == 1:
        return producers[0]
    candidates = producers or lookalikes
    if len(candidates) > 1:
        raise HeadError(
            f"the model has {len(candidates)} candidate heads, {', '.join(map(repr, candidates))};"
            f" name the one whose input is the embedding: head={candidates[0]!r}"
        )
    hint = (
        f"if {lookalikes[0]!r} is the head and its output is only rescaled, say"
        f" head={lookalikes[0]!r}"
        if lookalikes
        else "name the last linear layer: head='...' , or use a method that needs no features, e.g."
        " 'tent'"
    )
    raise HeadError(
        f"no module's output is the model's logits (they are computed in forward itself); {hint}"
    )


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
