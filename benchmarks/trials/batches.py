"""Fuzz of batches: every method on every kind of network, with batches of every bad kind.

A case is an adapter with none to two good batches behind it, one odd batch, and a good one after
it. Beside it runs a twin that never sees the odd batch. Each case is a function of the seed, the
method, the network and its number.
"""

from __future__ import annotations

import importlib
import multiprocessing
import random
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor, nn

import fretta
from fretta.errors import ConfigError, FrettaError, NeedError

from .tally import BrokenError, Tally, hold
from .tiny import CLASSES, NORMS, finite, images, new_adapter, same

NO_CRASH = "a batch of any kind: no crash of the process, no error but a FrettaError"
FINITE = "a batch that is taken gives finite (N, classes) logits, as does the next good one"
UNCHANGED = "after an error the adapter equals, bit for bit, one that never saw the batch"
INPUT = "the caller's batch is as it was: values, gradient, version"
NEEDS = "a network without what the method needs is refused at adapt, by name"


def _pixel(value: float) -> Callable[[Tensor], Tensor]:
    def change(x: Tensor) -> Tensor:
        x[len(x) // 2, 1, 3, 3] = value
        return x

    return change


def _image(value: float) -> Callable[[Tensor], Tensor]:
    def change(x: Tensor) -> Tensor:
        x[0] *= value
        return x

    return change


def _needs_grad(x: Tensor) -> Tensor:
    return x.requires_grad_()


def _inference(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.clone()


KINDS: dict[str, Callable[[Tensor], Any]] = {
    # shapes
    "one image": lambda x: x[:1],
    "two images": lambda x: x[:2],
    "many images": lambda x: x.repeat(8, 1, 1, 1),
    "no image": lambda x: x[:0],
    "one channel": lambda x: x[:, :1],
    "four channels": lambda x: torch.cat([x, x[:, :1]], 1),
    "channels at the end": lambda x: x.movedim(1, 3),
    "an image without a batch": lambda x: x[0],
    "a row of numbers": lambda x: x[0, 0, 0],
    "a number": lambda x: x[0, 0, 0, 0],
    "a table": lambda x: x[:, :, 0, 0],
    "five dimensions": lambda x: x[:, :, None],
    "no pixels": lambda x: x[..., :0],
    "one pixel": lambda x: x[..., :1, :1],
    "two by two pixels": lambda x: x[..., :2, :2],
    "larger": lambda x: x.repeat(1, 1, 2, 2),
    "odd sizes": lambda x: x.repeat(1, 1, 2, 2)[..., :9, :13],
    "wide": lambda x: x.repeat(1, 1, 1, 3),
    # kinds of numbers
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "double": lambda x: x.double(),
    "bytes": lambda x: x.byte(),
    "int64": lambda x: x.long(),
    "bool": lambda x: x > 0,
    "complex": lambda x: x.to(torch.complex64),
    # values
    "NaN": _pixel(torch.nan),
    "infinity": _pixel(torch.inf),
    "minus infinity": _pixel(-torch.inf),
    "all NaN": lambda x: x * torch.nan,
    "a pixel of 1e30": _pixel(1e30),
    "a pixel of 3e38": _pixel(3e38),
    "an image times 1e30": _image(1e30),
    "an image times 1e15": _image(1e15),
    "an image times 1e5": _image(1e5),
    "all times 1e5": lambda x: x * 1e5,
    "a pixel of 1e6": _pixel(1e6),
    "all times 1e30": lambda x: x * 1e30,
    "all 3e38": lambda x: torch.full_like(x, 3e38),
    "alternating 3e38": lambda x: x.sign() * 3e38,
    "denormal": lambda x: x * 1e-42,
    "zeros": torch.zeros_like,
    "constant": torch.ones_like,
    "identical images": lambda x: x[:1].repeat(len(x), 1, 1, 1),
    # layouts
    "not contiguous": lambda x: x.transpose(2, 3),
    "every other image": lambda x: x.repeat_interleave(2, 0)[::2],
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "expanded": lambda x: x[:1].expand(len(x), -1, -1, -1),
    "flipped": lambda x: x.flip(3).transpose(2, 3).flip(2),
    "sparse": lambda x: x.to_sparse(),
    "on meta": lambda x: x.to("meta"),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    # autograd
    "needs grad": _needs_grad,
    "in a graph": lambda x: _needs_grad(x) * 2,
    "a parameter": nn.Parameter,
    "made in inference mode": _inference,
    # no tensors
    "None": lambda x: None,
    "a list": lambda x: x.tolist(),
    "an array": lambda x: x.numpy(),
    "a word": lambda x: "batch",
    "a list of tensors": list,
    "images and labels": lambda x: (x, torch.zeros(len(x))),
}
CONTEXTS: dict[str, Callable[[], Any]] = {
    "plain": nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {"steps": 2},
    {"predict": "after"},
    {"predict": "before"},
    {"episodic": True},
    {"reset_every": 2},
    {"output": "prior"},
    {"output": "lame"},
    {"statistics": "adaptive"},
    {"statistics": "moving"},
    {"statistics": 0.3},
)
GUARDS = ("warn", "skip", "rollback", "reset")
CALLS = ("__call__", "__call__", "__call__", "predict", "source_logits", "features")


def trials(methods: list[str], seed: int, short: bool) -> Tally:
    return fuzz(methods, 1 if short else 60, seed)


def fuzz(methods: list[str], cases: int, seed: int) -> Tally:
    """So many cases of every method on every network. A crash costs its case, and is counted."""
    tally = Tally("batches")
    importlib.import_module("torch._dynamo")  # once, not in every child
    for method in methods:
        todo = [(norm, number) for norm in NORMS for number in range(cases)]
        while todo:
            todo = todo[_in_child(tally, method, todo, seed) :]
        print(f"batches: {method} is through", flush=True)
    return tally


def _in_child(tally: Tally, method: str, todo: list[tuple[str, int]], seed: int) -> int:
    """In a process of its own; how many cases it got through."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_cases, args=(theirs, method, todo, seed))
    child.start()
    theirs.close()
    done = 0
    try:
        while True:
            problems = ours.recv()
            norm, number = todo[done]
            for promise, problem in problems.items():
                tally.count(promise, problem, f"{method}/{norm}/{number}")
            done += 1
    except EOFError:
        child.join()
    if child.exitcode != 0:
        norm, number = todo[done]
        what = f"the process ended with {child.exitcode}"
        tally.count(NO_CRASH, what, f"{method}/{norm}/{number}")
        done += 1
    return done


def _cases(pipe: Connection, method: str, todo: list[tuple[str, int]], seed: int) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for norm, number in todo:
        pipe.send(one_case(method, norm, number, seed))
    pipe.close()


def _pair(method: str, norm: str, settings: dict[str, Any]) -> list[fretta.Adapter]:
    """With these settings, or without where the method has no use for them."""
    try:
        return [new_adapter(method, norm, **settings) for _ in range(2)]
    except ConfigError:
        return [new_adapter(method, norm) for _ in range(2)]


def one_case(method: str, norm: str, number: int, seed: int) -> dict[str, str | None]:
    """The promises that this case tried, and how it broke them."""
    chance = random.Random(f"{seed}/{method}/{norm}/{number}")
    names = sorted(KINDS)
    kind = names[(number + chance.randrange(2) * 7) % len(names)]
    context = chance.choice(("plain", "plain", *CONTEXTS))
    call = chance.choice(CALLS)
    settings: dict[str, Any] = dict(chance.choice(OPTIONS)) if chance.random() < 0.3 else {}
    if chance.random() < 0.3:
        settings["guard"] = chance.choice(GUARDS)
    behind = [images(chance.choice((2, 4, 6)), chance.randrange(1000)) for _ in range(number % 3)]
    after = images(chance.choice((2, 4, 6)), chance.randrange(1000))
    story = f"{kind}, {context}, {call}, {settings}, {len(behind)} before"
    try:
        adapter, twin = _pair(method, norm, settings)
    except NeedError:
        return {NEEDS: None}  # the method needs what this network has not, and says so
    except Exception as error:  # noqa: BLE001
        return {NO_CRASH: f"{story}: at adapt: {type(error).__name__}: {error}"}
    problems: dict[str, str | None] = {NO_CRASH: None, INPUT: None}
    try:
        for x in behind:
            adapter(x), twin(x)
    except Exception as error:  # noqa: BLE001
        return {NO_CRASH: f"{story}: a good batch: {type(error).__name__}: {error}"}
    odd = KINDS[kind](images(6, chance.randrange(1000)))
    before = odd.detach().clone() if isinstance(odd, Tensor) else None
    version = odd._version if isinstance(odd, Tensor) and not odd.is_inference() else None
    try:
        with CONTEXTS[context]():
            logits = getattr(adapter, call)(odd)
        refused = False
    except FrettaError:
        refused = True
    except Exception as error:  # noqa: BLE001
        refused = True
        problems[NO_CRASH] = f"{story}: {type(error).__name__}: {error}"
    try:
        if isinstance(odd, Tensor) and before is not None:
            hold(odd.is_meta or odd.is_quantized or same(_dense(odd), _dense(before)), "changed")
            hold(version is None or odd._version == version, "written to")
            hold(odd.is_inference() or not odd.is_leaf or odd.grad is None, "has a gradient")
    except BrokenError as error:
        problems[INPUT] = f"{story}: {error}"
    promise = UNCHANGED if refused else FINITE
    problems[promise] = None
    try:
        _check_after(adapter, twin, after, None if refused else logits, refused, call)
    except BrokenError as error:
        problems[promise] = f"{story}: {error}"
    except Exception as error:  # noqa: BLE001
        problems[promise] = f"{story}: the good batch after it: {type(error).__name__}: {error}"
    return problems


def _dense(x: Tensor) -> Tensor:
    return x.detach().to_dense() if x.is_sparse else x.detach()


def _check_after(
    adapter: fretta.Adapter, twin: fretta.Adapter, after: Tensor, out: Any, refused: bool, call: str
) -> None:
    if refused:
        hold(adapter.ready == twin.ready, "ready, after an error on the first batch")
        hold(same(adapter.state_dict(), twin.state_dict()), "another state than the twin's")
        hold(torch.equal(adapter(after), twin(after)), "the next prediction is another one")
        hold(same(adapter.state_dict(), twin.state_dict()), "another state after the next batch")
        return
    logits = out[1] if call == "features" else out
    hold(logits.dim() == 2 and logits.shape[1] == CLASSES, f"logits of shape {logits.shape}")
    hold(finite(logits), "logits that are not finite")
    hold(not logits.requires_grad, "logits in a graph")
    hold(finite(adapter(after)), "the next logits are not finite")
    hold(finite(adapter.state_dict()), "NaN or infinity in the state")
