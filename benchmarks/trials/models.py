"""Models of every kind, threads, forks, interrupts, copies."""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
import random
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

import fretta
from fretta.errors import FrettaError, NeedError

from .tally import Tally, hold
from .tiny import CLASSES, NORMS, finite, images, network, new_adapter, same

KINDS_OF_MODEL = "a model of any kind is adapted (finite, repeatable, reset exactly) or refused"
UNTOUCHED = "the given model is as it was: weights, modes, gradients, hooks"
ONE_ADAPTER = "two threads on one adapter: batches take turns, as one after the other"
TWO_ADAPTERS = "two adapters in two threads give what they give one after the other"
FORK = "a forked child goes on as its parent would"
INTERRUPT = "KeyboardInterrupt anywhere in a step: the state before the batch, or the one after it"
COPIES = "deepcopy and pickle in the middle of a stream go on bit for bit"
PACKAGE = str(Path(fretta.__file__).parent)


class Answer(nn.Module):
    """The tiny network, with something done to its output."""

    def __init__(self, norm: str, output: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.net, self.output = network(norm), output

    def forward(self, x: Tensor) -> Any:
        return self.output(self.net(x))


def pair(y: Tensor) -> Any:
    return y, y.mean()


def mapping(y: Tensor) -> Any:
    return {"logits": y, "loss": y.mean()}


def _with_head(norm: str, change: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    net: Any = network(norm)
    if norm == "layer":
        net.head = change(net.head)
    else:
        net[-1] = change(net[-1])
    return net.eval()


def _tied(norm: str) -> nn.Module:
    net: Any = network(norm)
    if norm == "layer":
        net.norm2 = net.norm1
    else:
        net[3] = nn.Conv2d(8, 8, 3, 1, 1)
        net = nn.Sequential(*net[:5], *net[3:])
    return net.eval()


def _dropout(norm: str) -> nn.Module:
    return _with_head(norm, lambda head: nn.Sequential(nn.Dropout(0.5), head))


def _train_mode(norm: str) -> nn.Module:
    return _dropout(norm).train()


def _frozen(norm: str) -> nn.Module:
    return network(norm).requires_grad_(False)


def _hooked(norm: str) -> nn.Module:
    net = network(norm)
    for module in net.modules():
        module.register_forward_hook(lambda *_: None)
    return net


def _quantized(norm: str) -> nn.Module:
    net: nn.Module = torch.ao.quantization.quantize_dynamic(network(norm), {nn.Linear})
    return net


def _compiled(norm: str) -> nn.Module:
    net: Any = torch.compile(network(norm), backend="eager")
    return net


def _bad_weights(norm: str) -> nn.Module:
    net = network(norm)
    next(net.parameters()).data.fill_(torch.nan)
    return net


MODELS: dict[str, Callable[[str], nn.Module]] = {
    "dropout": _dropout,
    "train mode": _train_mode,
    "tied": _tied,
    "double": lambda norm: network(norm).double(),
    "half": lambda norm: network(norm).half(),
    "bfloat16": lambda norm: network(norm).bfloat16(),
    "frozen": _frozen,
    "hooked": _hooked,
    "weight norm": lambda n: _with_head(n, nn.utils.parametrizations.weight_norm),
    "old weight norm": lambda n: _with_head(n, nn.utils.weight_norm),
    "spectral norm": lambda n: _with_head(n, nn.utils.parametrizations.spectral_norm),
    "old spectral norm": lambda n: _with_head(n, nn.utils.spectral_norm),
    "tuple": lambda norm: Answer(norm, pair).eval(),
    "dict": lambda norm: Answer(norm, mapping).eval(),
    "DataParallel": lambda norm: nn.DataParallel(network(norm)),
    "compiled": _compiled,
    "quantized": _quantized,
    "scripted": lambda norm: torch.jit.script(network(norm)),
    "traced": lambda norm: torch.jit.trace(network(norm), images(2, 0)),
    "exported": lambda n: torch.export.export(network(n), (images(2, 0),)).module(),
    "fx": lambda norm: torch.fx.symbolic_trace(network(norm)),
    "NaN weights": _bad_weights,
    "on meta": lambda norm: network(norm).to("meta"),
    "lazy": lambda n: _with_head(n, lambda head: nn.LazyLinear(CLASSES)),
    "no parameters": lambda norm: nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten()),
    "no module": lambda norm: network(norm).forward,  # type: ignore[dict-item,return-value]
}


def seen(model: nn.Module) -> dict[str, Any]:
    """What a user can see of a model."""
    modules = dict(model.named_modules())
    return {
        "modes": {n: m.training for n, m in modules.items()},
        "grads": {n: (p.requires_grad, p.grad) for n, p in model.named_parameters()},
        "hooks": {
            n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in modules.items()
        },
        "state": {k: v.clone() for k, v in model.state_dict().items() if isinstance(v, Tensor)},
    }


def kinds_of_model(tally: Tally, methods: list[str]) -> None:
    for kind, make in MODELS.items():
        for method in methods:
            for norm in NORMS:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    _kind_of_model(tally, kind, make, method, norm)


def _kind_of_model(
    tally: Tally, kind: str, make: Callable[[str], nn.Module], method: str, norm: str
) -> None:
    case = f"{kind}/{method}/{norm}"
    try:
        model = make(norm)
    except (RuntimeError, ValueError, TypeError):
        return  # torch itself cannot make it
    plain = isinstance(model, nn.Module) and kind not in ("on meta", "lazy")
    before = seen(model) if plain else None
    dtype = {"double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16}
    stream = [images(6, i).to(dtype.get(kind, torch.float32)) for i in range(3)]
    with tally.trial(KINDS_OF_MODEL, case):
        try:
            adapter = new_adapter(method, model, **({} if kind != "bfloat16" else {"lr": 0.1}))
            logits = [adapter(x) for x in stream]
        except FrettaError:
            return
        except TypeError as error:
            hold("lr" not in str(error), str(error))
            raise
        hold(all(map(finite, logits)), "not finite")
        state = adapter.state_dict()
        adapter.reset()
        again = [adapter(x) for x in stream]
        hold(same(again, logits), "not repeated after a reset")
        hold(same(adapter.state_dict(), state), "another state after a reset and the same stream")
    if before is not None:
        with tally.trial(UNTOUCHED, case):
            hold(same(seen(model), before), "the model has changed")


# ---- threads and processes -----------------------------------------------------------------------


def _run(adapter: fretta.Adapter, stream: list[Tensor], out: list[Any]) -> None:
    for x in stream:
        out.append(adapter(x))


def _in_threads(work: list[tuple[fretta.Adapter, list[Tensor], list[Any]]]) -> None:
    threads = [threading.Thread(target=_run, args=arguments) for arguments in work]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)


def threads(tally: Tally, methods: list[str], rounds: int) -> None:
    for method in methods:
        for norm in ("batch", "layer"):
            for number in range(rounds):
                case = f"{method}/{norm}/{number}"
                try:
                    a, b, c = (new_adapter(method, norm) for _ in range(3))
                except NeedError:
                    continue
                x = images(6, number)
                with tally.trial(ONE_ADAPTER, case):
                    first: list[Any] = []
                    second: list[Any] = []
                    _in_threads([(a, [x] * 4, first), (a, [x] * 4, second)])
                    alone: list[Any] = []
                    _run(b, [x] * 8, alone)
                    hold(len(first) == len(second) == 4, "a thread ended early")
                    wanted = [out.numpy().tobytes() for out in alone]
                    got = [out.numpy().tobytes() for out in first + second]
                    hold(sorted(got) == sorted(wanted), "other predictions")
                    hold(same(a.state_dict(), b.state_dict()), "another state")
                with tally.trial(TWO_ADAPTERS, case):
                    streams = [[images(6, 10 * i + j) for j in range(4)] for i in range(2)]
                    results: list[list[Any]] = [[], [], [], []]
                    d = new_adapter(method, norm)
                    c.reset(), d.reset()
                    _in_threads([(c, streams[0], results[0]), (d, streams[1], results[1])])
                    for adapter, stream, out in zip((c, d), streams, results[2:], strict=True):
                        adapter.reset()
                        _run(adapter, stream, out)
                    hold(same(results[:2], results[2:]), "other predictions")


def _child(pipe: Any, adapter: fretta.Adapter, x: Tensor) -> None:
    pipe.send((adapter(x).tolist(), pickle.dumps(adapter.state_dict())))


def forks(tally: Tally, methods: list[str]) -> None:
    context = multiprocessing.get_context("fork")
    for method in methods:
        with tally.trial(FORK, method):
            adapter = new_adapter(method)
            adapter(images(6, 0))
            ours, theirs = context.Pipe(duplex=False)
            child = context.Process(target=_child, args=(theirs, adapter, images(6, 1)))
            child.start()
            theirs.close()
            hold(ours.poll(60), "no answer in a minute")
            logits, state = ours.recv()
            child.join()
            hold(adapter(images(6, 1)).tolist() == logits, "another prediction")
            hold(same(adapter.state_dict(), pickle.loads(state)), "another state")


# ---- interrupts ----------------------------------------------------------------------------------


class _At:
    """Raises KeyboardInterrupt when the n-th function of the package or of an optimizer begins."""

    def __init__(self, number: int | None) -> None:
        self.number, self.count = number, 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if name == "<genexpr>":  # Python drops what is raised while a generator is closed
            return
        if event == "call" and (file.startswith(PACKAGE) or "/torch/optim/" in file):
            self.count += 1
            if self.count == self.number:
                raise KeyboardInterrupt

    def run(self, work: Callable[[], Any]) -> None:
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)


def interrupts(tally: Tally, methods: list[str], rounds: int, seed: int) -> None:
    for method in methods:
        chance = random.Random(f"{seed}/{method}")
        for number in range(rounds):
            settings: dict[str, Any] = {"guard": "rollback"} if number % 3 == 2 else {}
            norm = ("batch", "layer")[number % 2]
            try:
                adapter, twin = (new_adapter(method, norm, **settings) for _ in range(2))
            except NeedError:
                adapter, twin = (new_adapter(method, "batch", **settings) for _ in range(2))
            for i in range(number % 3):
                adapter(images(6, i)), twin(images(6, i))
            x, y = images(6, 8), images(6, 9)
            before = twin.state_dict()
            total = _At(None)
            total.run(lambda twin=twin, x=x: twin(x))
            after = twin.state_dict()
            place = chance.randint(1, total.count)
            strike, struck = _At(place), False
            try:
                strike.run(lambda adapter=adapter, x=x: adapter(x))
            except KeyboardInterrupt:
                struck = True
            if strike.count < place:
                continue  # the twin came first, and imported something on the way
            with tally.trial(INTERRUPT, f"{method}/{number}: call {place} of {total.count}"):
                hold(struck, "the interrupt was swallowed")
                torch.set_grad_enabled(True)
                now = adapter.state_dict()
                hold(same(now, before) or same(now, after), "half a step")
                if same(now, before):
                    adapter(x)
                hold(torch.equal(adapter(y), twin(y)), "another prediction afterwards")


def copies(tally: Tally, methods: list[str]) -> None:
    ways: dict[str, Callable[[fretta.Adapter], fretta.Adapter]] = {
        "deepcopy": copy.deepcopy,
        "pickle": lambda adapter: pickle.loads(pickle.dumps(adapter)),
        "torch.save": _through_a_file,
    }
    for method in methods:
        for way, make in ways.items():
            for settings in ({}, {"guard": "rollback"}):
                with tally.trial(COPIES, f"{method}/{way}/{settings}"):
                    adapter = new_adapter(method, **settings)
                    adapter(images(6, 0))
                    twin = make(adapter)
                    for i in range(1, 3):
                        hold(torch.equal(adapter(images(6, i)), twin(images(6, i))), "differs")
                    hold(same(adapter.state_dict(), twin.state_dict()), "another state")


def _through_a_file(adapter: fretta.Adapter) -> fretta.Adapter:
    file = io.BytesIO()
    torch.save(adapter, file)
    file.seek(0)
    loaded: fretta.Adapter = torch.load(file, weights_only=False)  # our own, just written
    return loaded


def trials(methods: list[str], seed: int, short: bool) -> Tally:
    tally = Tally("models")
    kinds_of_model(tally, methods[:1] if short else methods)
    threads(tally, methods[:2] if short else methods, 1 if short else 4)
    forks(tally, methods[:2] if short else methods)
    interrupts(tally, methods, 1 if short else 20, seed)
    copies(tally, methods[:2] if short else methods)
    return tally
