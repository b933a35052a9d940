"""The front door: `adapt` and `list_methods`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from torch import nn

from .adapter import Adapter
from .errors import ConfigError
from .method import Method, Timing
from .methods import REGISTRY


def list_methods() -> list[str]:
    """The names `adapt` knows."""
    return sorted(REGISTRY)


def adapt(
    model: nn.Module,
    method: str | Method = "g-fret",
    *,
    source: Iterable[Any] | None = None,
    head: str | None = None,
    steps: int = 1,
    episodic: bool = False,
    predict: Timing | None = None,
    inplace: bool = False,
    **hyperparameters: Any,
) -> Adapter:
    """Wrap a classifier so that it adapts while it predicts.

    method      a name from `list_methods()`, or a `Method` instance
    source      unlabelled source images for methods that need them (eata): any iterable of image
                batches or of (images, labels), whose labels are ignored
    head        name of the module that maps features to logits; found on the first batch if None
    steps       updates per batch
    episodic    forget after every batch
    predict     whose logits to return: of the forward "before" the update or of one "after" it;
                None is what the method's paper does
    inplace     adapt the given model itself instead of a private copy
    **          hyper-parameters of the method, by name; an explicit one wins over what a
                `variant` implies
    """
    return Adapter(
        model,
        build_method(method, hyperparameters),
        source=source,
        head=head,
        steps=steps,
        episodic=episodic,
        predict=predict,
        inplace=inplace,
    )


def build_method(method: str | Method, hyperparameters: dict[str, Any]) -> Method:
    """A method from its name and hyper-parameters; an instance takes the latter as changes."""
    if isinstance(method, Method):
        cls, values = type(method), {n: getattr(method, n) for n in method.field_names()}
    elif isinstance(method, str):
        if method not in REGISTRY:
            close = difflib.get_close_matches(method.lower(), REGISTRY, 1, 0.5)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ConfigError(
                f"unknown method {method!r}; {hint}choose from {', '.join(list_methods())}"
            )
        cls, values = REGISTRY[method], {}
    else:
        raise ConfigError(
            f"method is a {type(method).__name__}; give a name ({', '.join(list_methods())}) or a"
            " Method instance"
        )
    unknown = sorted(set(hyperparameters) - set(cls.field_names()))
    if unknown:
        raise ConfigError(
            f"{cls.key} has no hyper-parameter {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(cls.field_names()) or 'none'}"
        )
    return cls(**{**values, **hyperparameters})
