"""The front door: `adapt`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from .adapter import Adapter
from .errors import ConfigError
from .guard import Guard
from .health import Health
from .method import Method, Timing
from .methods import find_method, list_methods


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
    layout: str = "auto",
    precision: str | None = None,
    last_norms: int | None = None,
    compile: str | None = None,
    guard: Guard | str | None = None,
    callbacks: Iterable[Callable[[Health], Any]] = (),
    **hyperparameters: Any,
) -> Adapter:
    """Wrap a classifier so that it adapts while it predicts.

    method      a name from `list_methods()`, `module:Class`, or a `Method` instance
    source      unlabelled source images for methods that need them (eata): any iterable of image
                batches or of (images, labels), whose labels are ignored
    head        name of the module that maps features to logits; found on the first batch if None
    steps       updates per batch
    episodic    forget after every batch
    predict     whose logits to return: of the forward "before" the update or of one "after" it;
                None is what the method's paper does
    inplace     adapt the given model itself instead of a private copy
    layout      memory layout of convolutions: "auto" (channels-last where it is faster),
                "contiguous" or "channels_last"; changes results by rounding only
    precision   "bfloat16" runs the network under autocast; None is the model's own precision
    last_norms  adapt only so many norm layers, from the end: less memory, a shorter backward
    compile     a backend of torch.compile ("inductor") for the blocks of the network; None: none
    guard       what to do when adaptation does harm: "warn", "skip" the update, "rollback" to the
                last good state, "reset", or a `Guard` with thresholds; None does not look
    callbacks   called with the `Health` of every batch: writers, or any function
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
        layout=layout,
        precision=precision,
        last_norms=last_norms,
        compile=compile,
        guard=guard,
        callbacks=callbacks,
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
        raise ConfigError(
            f"{cls.key} has no hyper-parameter {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(cls.field_names()) or 'none'}"
        )
    return cls(**{**values, **hyperparameters})
