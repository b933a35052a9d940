"""Whose mean and variance batch norms use: moving statistics that begin at the source's.

`settle(x)` predicts a batch and moves the statistics along; between batches they stay where they
are, in the running buffers of the layers. Two kinds:

    moving     an average over the last images, on a clock of images
    adaptive   follow the stream as far as it can be told from noise (see AdaptiveStatistics)

The statistics of the source, of the batch, and a fixed mix of both need no memory: see norm.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import StateError

SMALL = 16  # images; a batch of so few is predicted with the statistics of those before it
UNKNOWN = 1e30  # noise of statistics that have seen nothing
TINY = 1e-12


def image_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """(N, c) mean and mean square of every image and channel, of what enters a batch norm."""
    x = x.detach()
    x = x if x.dtype == torch.float64 else x.float()
    axes = list(range(2, x.dim()))
    return (x.mean(axes), x.square().mean(axes)) if axes else (x, x.square())


class Layer:
    """A batch norm, the source's statistics, and those in use."""

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name, self.module = name, module
        self.follow()

    def follow(self) -> None:
        """Take what the layer holds now as the source's."""
        module: Any = self.module
        self.source: tuple[Tensor, Tensor] = (module.running_mean, module.running_var)
        self.used = self.source
        dtype = torch.float64 if module.running_mean.dtype == torch.float64 else torch.float32
        self.mean0, self.var0 = (value.to(dtype) for value in self.source)
        self.unit = self.var0 + module.eps  # distances are measured in it

    def put(self, statistics: tuple[Tensor, Tensor]) -> None:
        module: Any = self.module
        like = self.source[0]
        module.running_mean, module.running_var = (value.to(like) for value in statistics)

    def distance(self, a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
        mean, var = a[0] - b[0], a[1] - b[1]
        return (mean.square() / self.unit).mean() + (var.square() / self.unit.square()).mean()


class Statistics:
    """The statistics of all batch norms of a network, as state: reset, save, restore."""

    def __init__(self, net: nn.Module, layers: Mapping[str, nn.Module]) -> None:
        self.net = net
        self.layers = [Layer(name, module) for name, module in layers.items()]
        self.reset()

    def reset(self) -> None:
        """Back to the source's."""
        self.memory: list[dict[str, Tensor]] = [self.begin(layer) for layer in self.layers]
        self.commit([layer.source for layer in self.layers])

    def begin(self, layer: Layer) -> dict[str, Tensor]:
        """What is remembered of a layer before the first batch."""
        raise NotImplementedError

    def move(
        self, layer: Layer, memory: dict[str, Tensor], moments: tuple[Tensor, Tensor]
    ) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
        """New memory and statistics of a layer, from the moments of the images of a batch."""
        raise NotImplementedError

    def settle(self, model: Any, x: Tensor) -> Tensor:
        """Logits of a batch, with statistics that have moved along."""
        with self.guarded():
            logits, memory, used = self.sequential(model, x)
            self.memory = memory
            self.commit(used)
        return logits

    # ---- passes ------------------------------------------------------------------------------

    def sequential(
        self, model: Any, x: Tensor
    ) -> tuple[Tensor, list[dict[str, Tensor]], list[tuple[Tensor, Tensor]]]:
        """A forward in which every layer moves, then normalizes: logits, memory, statistics."""
        found: dict[int, tuple[dict[str, Tensor], tuple[Tensor, Tensor]]] = {}

        def watch(index: int, entering: Tensor) -> None:
            layer = self.layers[index]
            found[index] = self.move(layer, self.memory[index], image_moments(entering))
            layer.put(found[index][1])

        with self._watching(watch):
            logits = model(x)
        return logits, *self._collect(found)

    def recorded(self, model: Any, x: Tensor) -> tuple[Tensor, dict[int, tuple[Tensor, Tensor]]]:
        """A forward with the statistics as they are: logits, and the moments of every layer."""
        moments: dict[int, tuple[Tensor, Tensor]] = {}

        def watch(index: int, entering: Tensor) -> None:
            moments[index] = image_moments(entering)

        with self._watching(watch):
            logits = model(x)
        return logits, moments

    def moved(
        self, moments: dict[int, tuple[Tensor, Tensor]]
    ) -> tuple[list[dict[str, Tensor]], list[tuple[Tensor, Tensor]]]:
        """Memory and statistics after a recorded forward."""
        found = {i: self.move(self.layers[i], self.memory[i], m) for i, m in moments.items()}
        return self._collect(found)

    def _collect(
        self, found: dict[int, tuple[dict[str, Tensor], tuple[Tensor, Tensor]]]
    ) -> tuple[list[dict[str, Tensor]], list[tuple[Tensor, Tensor]]]:
        """A layer that the forward did not use stays as it is."""
        pairs = [
            found.get(i, (self.memory[i], layer.used)) for i, layer in enumerate(self.layers)
        ]
        return [memory for memory, _ in pairs], [used for _, used in pairs]

    @contextmanager
    def _watching(self, watch: Any) -> Iterator[None]:
        with ExitStack() as stack:
            for index, layer in enumerate(self.layers):
                hook = layer.module.register_forward_pre_hook(
                    lambda _, inputs, index=index: watch(index, inputs[0])
                )
                stack.callback(hook.remove)
            yield

    # ---- what the layers hold ----------------------------------------------------------------

    def commit(self, used: list[tuple[Tensor, Tensor]]) -> None:
        for layer, statistics in zip(self.layers, used, strict=True):
            layer.used = statistics
            layer.put(statistics)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """A forward that fails leaves the statistics as they were."""
        try:
            yield
        except BaseException:
            self.commit([layer.used for layer in self.layers])
            raise

    @contextmanager
    def as_source(self) -> Iterator[None]:
        """While active, the layers hold the source's statistics."""
        for layer in self.layers:
            layer.put(layer.source)
        try:
            yield
        finally:
            for layer in self.layers:
                layer.put(layer.used)

    def apply_to_source(self, fn: Any) -> None:
        """After a move to another device or dtype: begin again at the source, there."""
        for layer in self.layers:
            module: Any = layer.module
            module.running_mean, module.running_var = (fn(value) for value in layer.source)
            layer.follow()
        self.reset()

    # ---- state -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {
            "layers": {
                layer.name: {**memory, "used_mean": layer.used[0], "used_var": layer.used[1]}
                for layer, memory in zip(self.layers, self.memory, strict=True)
            }
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = state["layers"]
        if saved.keys() != {layer.name for layer in self.layers}:
            raise StateError("the saved statistics are those of another model")
        used = []
        for index, layer in enumerate(self.layers):
            like = self.memory[index]
            values = {k: v.to(layer.mean0.device) for k, v in saved[layer.name].items()}
            if any(values[key].shape != like[key].shape for key in like):
                raise StateError(f"the saved statistics of {layer.name!r} have another shape")
            used.append((values.pop("used_mean"), values.pop("used_var")))
            self.memory[index] = values
        self.commit(used)


class MovingStatistics(Statistics):
    """An exponential average over the last `clock` images that begins at the source's."""

    clock = 128.0

    def begin(self, layer: Layer) -> dict[str, Tensor]:
        return {"mean": layer.mean0, "square": layer.var0 + layer.mean0.square()}

    def move(
        self, layer: Layer, memory: dict[str, Tensor], moments: tuple[Tensor, Tensor]
    ) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
        rate = 1 - math.exp(-len(moments[0]) / self.clock)
        mean = torch.lerp(memory["mean"], moments[0].mean(0), rate)
        square = torch.lerp(memory["square"], moments[1].mean(0), rate)
        var = torch.maximum(square - mean.square(), 0.01 * layer.var0)
        return {"mean": mean, "square": square}, (mean, var)


class Assignment:
    """The classes that a batch is predicted to hold, for balancing."""

    def __init__(self, logits: Tensor) -> None:
        probabilities = logits.detach().float().softmax(1)
        count = probabilities.sum(0)
        share = probabilities * (count >= count.max().clamp(max=0.5))  # a class of half an image
        self.count = share.sum(0)  # (C,) images of each class
        self.present = self.count > 0
        self.mean = (share / self.count.clamp(min=1e-6)).T  # (C, N): class means of rows
        self.label = probabilities.argmax(1)
        self.hard = F.one_hot(self.label, logits.shape[1]).sum(0).float()
        self.classes = int(self.present.sum())


class AdaptiveStatistics(Statistics):
    """Begin at the source, follow the stream as far as it can be told from noise.

    Every image has a mean and a mean square per channel: its class, its domain, and chance. The
    model of what is seen is a random effect per class: image = domain + offset of its class +
    noise. From the classes predicted for a batch come an estimate of the domain, as if all classes
    were equally frequent, and the variance of that estimate.

        remember   Estimates are averaged over the stream, weighted by their precision.
        drop       Where the last images are further from the memory than their noise explains,
                   the memory moves to them by 1 - k · noise / distance (James and Stein).
        shrink     The statistics in use are the source's, moved towards the memory by
                   1 - k · noise / distance. Unbalanced classes add to the noise: predicted classes
                   are not the true ones.

    With more than `most_classes` classes images of one class are too rare to know its offset:
    nothing is balanced.

    Statistics and noise are measured in units of the source's variance (squared for variances)
    and averaged over channels, so that every layer has one noise for its means, one for variances.
    """

    shrink = 2.0  # k: multiples of the noise that count as chance
    bias = 4.0  # noise of unbalanced classes, in variances between classes
    clock = 512.0  # images that the memory holds
    recent = 8.0  # images that are compared with it; twice as many where classes are uneven
    offsets = 1000.0  # images over which offsets of classes are averaged
    window = 32.0  # images over which classes are counted
    uneven = 0.1  # C · (sum of squared shares - 1 / C) at which classes are half uneven
    between = (0.3, 1.0)  # variance between classes in units of that within: first guess, most
    again = 0.02  # distance of new from used statistics at which a batch is predicted again
    most_classes = 100

    def __init__(self, net: nn.Module, layers: Mapping[str, nn.Module], classes: int) -> None:
        self.classes = classes
        self.balances = classes <= self.most_classes
        super().__init__(net, layers)

    def reset(self) -> None:
        super().reset()
        like = self.layers[0].mean0 if self.layers else torch.zeros(())
        self.images = 0
        self.counted = like.new_zeros(self.classes)  # predicted classes of late
        self.known = like.new_zeros(self.classes)  # images behind the offset of each class
        self.unevenness = 1.0 if self.balances else 0.0  # in [0, 1]
        self.excess = 0.0  # sum of squared shares - 1 / C
        self.jump = 0.0  # how far the last batch was from the memory: 0 as ever, 1 all new
        self.assignment: Assignment | None = None

    def begin(self, layer: Layer) -> dict[str, Tensor]:
        c = layer.mean0
        pair, rows = c.new_zeros(2), c.new_zeros(self.classes if self.balances else 0, len(c))
        return {
            "mean": c,
            "var": layer.var0,
            "noise": pair + UNKNOWN,  # of mean and var
            "within": pair,  # variance over images of one class
            "between": pair + self.between[0],  # variance of offsets / within
            "recent_mean": c,
            "recent_var": layer.var0,
            "recent_noise": pair,
            "recent": pair[0],  # images
            "offset_mean": rows,
            "offset_var": rows,
            "jump": pair[0],
        }

    # ---- a batch -----------------------------------------------------------------------------

    def settle(self, model: Any, x: Tensor) -> Tensor:
        with self.guarded():
            if len(x) <= SMALL:
                logits, memory, used = self._after(model, x)
            elif self.balances and (self.images == 0 or self.unevenness > 0.5):
                logits, memory, used = self._balanced(model, x)
            else:
                logits, memory, used = self._even(model, x)
            self._assign(logits)
            self._count(memory, len(x))
            self.memory = memory
            self.commit(used)
        return logits

    def _after(self, model: Any, x: Tensor) -> Any:
        """Few images: predict, then move; once more where that moves far."""
        logits, moments = self.recorded(model, x)
        self._assign(logits)
        memory, used = self.moved(moments)
        if self._far(used):
            return self.sequential(model, x)
        return logits, memory, used

    def _balanced(self, model: Any, x: Tensor) -> Any:
        """Uneven classes: a forward to tell them, and another where the statistics move far."""
        logits, memory, used = self._after(model, x)
        if self.images == 0:  # the first batch: were the classes uneven, or the source wrong?
            self._assign(logits)
            if self.unevenness < 0.5:
                self.assignment = None
                return self.sequential(model, x)
        return logits, memory, used

    def _even(self, model: Any, x: Tensor) -> Any:
        """Even classes: one forward, as test BN; balanced after all if they turn out uneven."""
        self.assignment = None
        found = self.sequential(model, x)
        if self.balances:
            self._assign(found[0])
            if self.unevenness > 0.5:
                return self.sequential(model, x)
        return found

    def _far(self, used: list[tuple[Tensor, Tensor]]) -> bool:
        pairs = zip(self.layers, used, strict=True)
        distances = [layer.distance(new, layer.used) for layer, new in pairs]
        return bool(torch.stack(distances).mean() > self.again) if distances else False

    def _assign(self, logits: Tensor) -> None:
        """Predicted classes of the batch, and how uneven those of late are."""
        if not self.balances:
            return
        self.assignment = a = Assignment(logits)
        count = self.counted * math.exp(-len(logits) / self.window) + a.hard
        n = float(count.sum())
        if n < 2:
            self.excess, self.unevenness = 0.0, 1.0
            return
        squares = float((count / n).square().sum())
        self.excess = max(0.0, (squares - 1 / n) / (1 - 1 / n) - 1 / self.classes)  # less chance
        x = (self.excess * self.classes / self.uneven) ** 2
        self.unevenness = x / (1 + x)

    def _count(self, memory: list[dict[str, Tensor]], n: int) -> None:
        self.images += n
        self.jump = float(torch.stack([m["jump"] for m in memory]).mean()) if memory else 0.0
        if self.assignment is not None:
            self.counted = self.counted * math.exp(-n / self.window) + self.assignment.hard
            self.known = self.known * math.exp(-n / self.offsets) + self.assignment.count

    # ---- a layer -----------------------------------------------------------------------------

    def move(
        self, layer: Layer, memory: dict[str, Tensor], moments: tuple[Tensor, Tensor]
    ) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
        m, q = moments
        old, n, k, unit = memory, len(m), self.shrink, layer.unit
        first = self.images == 0
        keep = math.exp(-n / (self.recent * (1 + self.unevenness)))
        count = old["recent"] * keep + n
        g = n / count

        # the mean: estimate, memory, the last images
        d, z, within0, between0 = self._estimate(m, old, 0, unit)
        P = old["noise"][0]
        recent = torch.lerp(old["recent_mean"], d, g)
        r0 = g**2 * z + (1 - g) ** 2 * old["recent_noise"][0]
        gain0 = P / (P + z)
        jump0 = _beyond(k * (r0 + P), ((recent - old["mean"]).square() / unit).mean())
        center = torch.lerp(old["mean"], d, gain0)
        center = torch.lerp(center, recent, jump0)

        # the variance, about that mean
        e = q - 2 * m * center + center.square()
        dv, zv, within1, between1 = self._estimate(e, old, 1, unit.square())
        if first:
            dv = dv + z * unit  # the mean is the batch's own
        Pv = old["noise"][1]
        recent_var = torch.lerp(old["recent_var"], dv, g)
        r1 = g**2 * zv + (1 - g) ** 2 * old["recent_noise"][1]
        gain1 = Pv / (Pv + zv)
        apart = ((recent_var - old["var"]).square() / unit.square()).mean()
        jump = (jump0 + _beyond(k * (r1 + Pv), apart)) / 2

        # both move: by precision, and to the last images as far as the domain changed
        mean = torch.lerp(torch.lerp(old["mean"], d, gain0), recent, jump)
        var = torch.lerp(torch.lerp(old["var"], dv, gain1), recent_var, jump)
        older = 1 + n / self.clock
        noise0 = torch.lerp(gain0 * z, r0, jump) * older
        noise1 = torch.lerp(gain1 * zv, r1, jump) * older
        new = {
            "mean": mean,
            "var": var,
            "noise": torch.stack([noise0, noise1]),
            "within": torch.stack([within0, within1]),
            "between": torch.stack([between0, between1]),
            "recent_mean": recent,
            "recent_var": recent_var,
            "recent_noise": torch.stack([r0, r1]),
            "recent": count,
            "offset_mean": self._offsets(old["offset_mean"], m, mean, between0),
            "offset_var": self._offsets(
                old["offset_var"], q - 2 * m * mean + mean.square(), var, between1
            ),
            "jump": torch.ones_like(jump) if first else jump,
        }

        # in use: the source's, moved as far as the distance exceeds the noise
        unsure = self.bias * self.excess * self.unevenness if self.assignment is not None else 0.0
        noise0 = k * (noise0 + unsure * between0 * within0)
        noise1 = k * (noise1 + unsure * between1 * within1)
        share = _beyond(noise0, ((mean - layer.mean0).square() / unit).mean())
        apart = ((var - layer.var0).square() / unit.square()).mean()
        share = (share + _beyond(noise1, apart)) / 2
        used = torch.lerp(layer.var0, var, share)
        return new, (torch.lerp(layer.mean0, mean, share), torch.maximum(used, 0.01 * layer.var0))

    def _estimate(
        self, rows: Tensor, old: dict[str, Tensor], which: int, unit: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean of rows (N, c) with balanced classes, its noise, variances within and between."""
        n, a, between = len(rows), self.assignment, old["between"][which]
        if a is None:
            center = rows.mean(0)
            spread = ((rows - center).square() / unit).mean(1).sum() / max(n - 1, 1)
            within = self._average(old["within"][which], spread, n)
            return center, within / n, within, between
        offsets = old["offset_var" if which else "offset_mean"]
        means = a.mean.to(rows) @ rows
        if n - a.classes >= 4:
            spread = ((rows - means[a.label]).square() / unit).mean(1).sum() / (n - a.classes)
        else:  # too few: against what is remembered
            expected = old["var" if which else "mean"] + offsets[a.label]
            spread = ((rows - expected).square() / unit).mean()
        within = self._average(old["within"][which], spread, n).clamp(min=TINY)
        count, present = a.count.to(rows), a.present
        if a.classes >= 3:  # analysis of variance
            apart = (means - (means * present[:, None]).sum(0) / a.classes) * present[:, None]
            total = (apart.square() / unit).mean(1).sum() / (a.classes - 1)
            chance = within * (present / count.clamp(min=TINY)).sum() / a.classes
            found = ((total - chance).clamp(min=0) / within).clamp(max=self.between[1])
            between = torch.lerp(between, found, min(1.0, a.classes * n / (64 * self.classes)))
        # generalized least squares: a class mean errs by its offset and by chance
        effective = (between * self.unevenness).clamp(min=1e-4)
        unsure = effective * within / (1 + self.known.to(rows) * effective)
        precision = present / (unsure + within / count.clamp(min=0.5))
        estimate = precision @ (means - self.unevenness * offsets) / precision.sum()
        return estimate, 1 / precision.sum(), within, between

    def _offsets(self, old: Tensor, rows: Tensor, center: Tensor, between: Tensor) -> Tensor:
        a = self.assignment
        if a is None:
            return old
        count = a.count.to(rows)
        rate = a.present * count / (self.known.to(rows) + count + 1 / between.clamp(min=1e-3))
        return old + rate[:, None] * (a.mean.to(rows) @ rows - center - old)

    def _average(self, old: Tensor, new: Tensor, n: int) -> Tensor:
        return new if self.images == 0 else torch.lerp(old, new, min(1.0, n / 64))

    # ---- state -------------------------------------------------------------------------------

    PLAIN = ("images", "unevenness", "excess", "jump")

    def state_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.PLAIN}
        return {**super().state_dict(), **plain, "counted": self.counted, "known": self.known}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for name in self.PLAIN:
            setattr(self, name, state[name])
        self.counted, self.known = (state[k].to(self.counted) for k in ("counted", "known"))
        self.assignment = None


def _beyond(noise: Tensor, distance: Tensor) -> Tensor:
    """1 - noise / distance: the part of a squared distance that noise does not explain."""
    return (1 - noise / distance.clamp(min=TINY)).clamp(0, 1)
