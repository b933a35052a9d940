"""The front door: `adapt`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from .adapter import Adapter
from .errors import ConfigError
from .guard import Guard
from .method import Method
from .methods import find_method, list_methods
from .parts.compute import Compute


def adapt(
    model: nn.Module,
    method: str | Method = "g-fret",
    *,
    source: Iterable[Any] | None = None,
    head: str | None = None,
    guard: Guard | str | None = None,
    inplace: bool = False,
    compute: Compute | None = None,
    **hyperparameters: Any,
) -> Adapter:
    """Wrap a classifier so that it adapts while it predicts.

    method      a name from `list_methods()`, `module:Class`, or a `Method` instance
    source      unlabeled source images for methods that need them (eata): any iterable of image
                batches or of (images, labels), whose labels are ignored
    head        name of the module that maps features to logits; found on the first batch if None
    guard       what to do when adaptation does harm: "warn", "skip" the update, "rollback" to the
                last good state, "reset", or a `Guard` with thresholds; None does not look
    inplace     adapt the given model itself instead of a private copy
    compute     a `Compute`: memory layout, precision, compilation, how many layers learn
    **          hyper-parameters of the method, by name; an explicit one wins over what a
                `variant` implies. Every method has `steps` (updates per batch), `episodic`
                (forget after every batch), `predict` ("before" or "after" the update) and
                `reset_every` (batches)
    """
    method = build_method(method, hyperparameters)
    return Adapter(
        model, method, source=source, head=head, guard=guard, inplace=inplace, compute=compute
    )


def build_method(method: str | Method, hyperparameters: dict[str, Any]) -> Method:
    """A method from its name and hyper-parameters; an instance takes the latter as changes."""
    if isinstance(method, Method):
        cls, values = type(method), {n: getattr(method, n) for n in method.field_names()}
    elif isinstance(method, str):
        cls, values = find_method(method), {}
    else:
        raise ConfigError(
            f"method is a {type(method).__name__}; give a name ({', '.join(list_methods())}) or a"
            " Method instance"
        )
    unknown = sorted(set(hyperparameters) - set(cls.field_names()))
    if unknown:
        computing = [name for name in unknown if name in Compute.__dataclass_fields__]
        hint = f"; give compute=fretta.Compute({computing[0]}=...)" if computing else ""
        raise ConfigError(
            f"{cls.key} has no hyper-parameter {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(cls.field_names())}{hint}"
        )
    return cls(**{**values, **hyperparameters})
