"""Whose mean and variance batch norms use: moving statistics that begin at the source's.

`settle(x)` predicts a batch and moves the statistics along; between batches they stay where they
are, in the running buffers of the layers. Two kinds:

    moving     an average over the last images, on a clock of images
    adaptive   follow the stream as far as it can be told from noise (see AdaptiveStatistics)

The statistics of the source, of the batch, and a fixed mix of both need no memory: see norm.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import StateError

SMALL = 16  # images; a batch of so few is predicted with the statistics of those before it
UNKNOWN = 1e30  # noise of statistics that have seen nothing
TINY = 1e-12

Memory = dict[str, Tensor]  # (c,) per channel of all layers, (C, c) per class, (L, 2) per layer
Pair = tuple[Tensor, Tensor]  # mean and variance
Network = Callable[[Tensor], Tensor]
Settled = tuple[Tensor, Memory, Pair]  # logits, what is remembered, statistics in use


def image_moments(x: Tensor) -> Pair:
    """(N, c) mean and mean square of every image and channel, of what enters a batch norm."""
    x = x.detach()
    x = x if x.dtype == torch.float64 else x.float()
    axes = list(range(2, x.dim()))
    return (x.mean(axes), x.square().mean(axes)) if axes else (x, x.square())


class Channels:
    """The channels of some layers, side by side: what the source has there, and means by layer."""

    def __init__(self, mean: Tensor, var: Tensor, eps: Tensor, sizes: list[int]) -> None:
        self.mean, self.var, self.sizes = mean, var, sizes
        self.unit = var + eps  # distances are measured in it
        counts = torch.tensor(sizes, device=mean.device)
        self.owner = torch.repeat_interleave(torch.arange(len(sizes), device=mean.device), counts)
        one = F.one_hot(self.owner, len(sizes)).to(mean)
        self.average = one / counts.to(mean).clamp(min=1)  # (c, L)

    def by_layer(self, values: Tensor) -> Tensor:
        """(..., c) -> (..., L): means over the channels of each layer."""
        return values.mean(-1, keepdim=True) if len(self.sizes) == 1 else values @ self.average

    def lerp(self, a: Tensor, b: Tensor, share: Tensor) -> Tensor:
        """From a to b by a share per layer, (L,)."""
        return torch.lerp(a, b, share if len(self.sizes) == 1 else share[self.owner])


class Statistics:
    """The statistics of all batch norms of a network, as state: reset, save, restore."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        self.names, self.layers = list(layers), list(layers.values())
        self._follow()

    def _follow(self) -> None:
        """Take what the layers hold now as the source's."""
        modules: list[Any] = self.layers
        self.source: list[Pair] = [(m.running_mean, m.running_var) for m in modules]
        like = self.source[0][0]
        wide = torch.float64 if like.dtype == torch.float64 else torch.float32
        mean, var = (torch.cat([pair[i] for pair in self.source]).to(wide) for i in (0, 1))
        sizes = [len(pair[0]) for pair in self.source]
        eps = torch.cat([mean.new_full((n,), m.eps) for n, m in zip(sizes, modules, strict=True)])
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        self.slices = [slice(end - n, end) for end, n in zip(ends, sizes, strict=True)]
        self.all = Channels(mean, var, eps, sizes)
        self.each = [
            Channels(mean[part], var[part], eps[part], [n])
            for part, n in zip(self.slices, sizes, strict=True)
        ]
        self.reset()

    def reset(self) -> None:
        """Back to the source's."""
        self.used: Pair = (self.all.mean, self.all.var)
        self.memory = self.begin()
        for index in range(len(self.layers)):
            self._put(index, self.source[index])

    def begin(self) -> Memory:
        """What is remembered before the first batch."""
        raise NotImplementedError

    def move(self, at: Channels, memory: Memory, moments: Pair) -> tuple[Memory, Pair]:
        """New memory and statistics, from the moments of the images of a batch."""
        raise NotImplementedError

    def _moved(self, at: Channels, memory: Memory, moments: Pair) -> tuple[Memory, Pair]:
        with torch.autocast(at.mean.device.type, enabled=False):  # in the caller's: too coarse
            return self.move(at, memory, moments)

    def settle(self, model: Network, x: Tensor) -> Tensor:
        """Logits of a batch, with statistics that have moved along."""
        with self.guarded():
            logits, memory, used = self.sequential(model, x)
            self.commit(memory, used)
        return logits

    # ---- passes ------------------------------------------------------------------------------

    def sequential(self, model: Network, x: Tensor) -> Settled:
        """A forward in which every layer moves, then normalizes: logits, memory, statistics."""
        found: dict[int, tuple[Memory, Pair]] = {}

        def watch(index: int, entering: Tensor) -> None:
            memory = self._part(index)
            found[index] = self._moved(self.each[index], memory, image_moments(entering))
            self._put(index, found[index][1])

        with self._watching(watch):
            logits = model(x)
        pieces = [found.get(i, (self._part(i), self._used(i))) for i in range(len(self.layers))]
        memory = {
            key: torch.cat([piece[0][key] for piece in pieces], _axis(key)) for key in self.memory
        }
        mean, var = (torch.cat([piece[1][i] for piece in pieces]) for i in (0, 1))
        return logits, memory, (mean, var)

    def recorded(self, model: Network, x: Tensor) -> tuple[Tensor, Pair]:
        """A forward with the statistics as they are: logits, and the moments of every channel."""
        found: dict[int, Pair] = {}

        def watch(index: int, entering: Tensor) -> None:
            found[index] = image_moments(entering)

        with self._watching(watch):
            logits = model(x)
        for index in range(len(self.layers)):
            if index not in found:  # unused in this forward: as expected
                mean, var = (value.expand(len(x), -1) for value in self._used(index))
                found[index] = (mean, var + mean.square())
        mean, square = (
            torch.cat([found[j][i] for j in range(len(self.layers))], 1) for i in (0, 1)
        )
        return logits, (mean, square)

    def _part(self, index: int) -> Memory:
        """What is remembered of one layer."""
        channels, row = self.slices[index], slice(index, index + 1)
        memory = self.memory.items()
        return {k: v[row] if k in PER_LAYER else v[..., channels] for k, v in memory}

    def _used(self, index: int) -> Pair:
        part = self.slices[index]
        return self.used[0][part], self.used[1][part]

    @contextmanager
    def _watching(self, watch: Callable[[int, Tensor], None]) -> Iterator[None]:
        with ExitStack() as stack:
            for index, layer in enumerate(self.layers):
                hook = layer.register_forward_pre_hook(
                    lambda _, inputs, index=index: watch(index, inputs[0])
                )
                stack.callback(hook.remove)
            yield

    # ---- what the layers hold ----------------------------------------------------------------

    def _put(self, index: int, statistics: Pair) -> None:
        module: Any = self.layers[index]
        like = self.source[index][0]
        module.running_mean, module.running_var = (value.to(like) for value in statistics)

    def _put_used(self) -> None:
        for index in range(len(self.layers)):
            mean, var = self._used(index)
            self._put(index, (mean.clone(), var.clone()))  # not a view, for export

    def commit(self, memory: Memory, used: Pair) -> None:
        self.memory, self.used = memory, used
        self._put_used()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """A forward that fails leaves the statistics as they were."""
        try:
            yield
        except BaseException:
            self._put_used()
            raise

    @contextmanager
    def as_source(self) -> Iterator[None]:
        """While active, the layers hold the source's statistics."""
        for index, pair in enumerate(self.source):
            self._put(index, pair)
        try:
            yield
        finally:
            self._put_used()

    def apply_to_source(self, fn: Callable[[Tensor], Tensor]) -> None:
        """After a move to another device or dtype: begin again at the source, there."""
        for layer, (mean, var) in zip(self.layers, self.source, strict=True):
            module: Any = layer
            module.running_mean, module.running_var = fn(mean), fn(var)
        self._follow()

    # ---- state -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        mean, var = self.used
        return {"layers": self.names, "memory": self.memory, "mean": mean, "var": var}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        memory, like = state["memory"], self.all.mean
        shapes = {key: value.shape for key, value in self.memory.items()}
        if state["layers"] != self.names or {k: v.shape for k, v in memory.items()} != shapes:
            raise StateError("the saved statistics are those of another model")
        memory = {key: value.to(like) for key, value in memory.items()}
        self.commit(memory, (state["mean"].to(like), state["var"].to(like)))


PER_LAYER = ("noise", "within", "between", "recent_noise", "recent", "jump")


def _axis(key: str) -> int:
    """Along which layers lie side by side in what is remembered."""
    return 0 if key in PER_LAYER else -1


class MovingStatistics(Statistics):
    """An exponential average over the last `clock` images that begins at the source's."""

    clock = 128.0

    def begin(self) -> Memory:
        return {"mean": self.all.mean, "square": self.all.var + self.all.mean.square()}

    def move(self, at: Channels, memory: Memory, moments: Pair) -> tuple[Memory, Pair]:
        rate = 1 - math.exp(-len(moments[0]) / self.clock)
        mean = torch.lerp(memory["mean"], moments[0].mean(0), rate)
        square = torch.lerp(memory["square"], moments[1].mean(0), rate)
        return {"mean": mean, "square": square}, (mean, positive(square - mean.square(), at.var))


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
        self.classes = 0  # of the present ones; filled by whoever fetches numbers


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
    bias = 8.0  # noise of unbalanced classes, in variances between classes
    clock = 512.0  # images that the memory holds
    recent = 8.0  # images that are compared with it; twice as many where classes are uneven
    offsets = 1000.0  # images over which offsets of classes are averaged
    window = 32.0  # images over which classes are counted
    uneven = 0.1  # C · (sum of squared shares - 1 / C) at which classes are half uneven
    between = (0.3, 1.0)  # variance between classes in units of that within: first guess, most
    again = 0.02  # distance of new from used statistics at which a batch is predicted again
    most_classes = 100

    def __init__(self, layers: Mapping[str, nn.Module], classes: int) -> None:
        self.classes = classes
        self.balances = classes <= self.most_classes
        super().__init__(layers)

    def reset(self) -> None:
        super().reset()
        like = self.all.mean
        self.images = 0
        self.counted = like.new_zeros(self.classes)  # predicted classes of late
        self.known = like.new_zeros(self.classes)  # images behind the offset of each class
        self.unevenness = 1.0 if self.balances else 0.0  # in [0, 1]
        self.excess = 0.0  # sum of squared shares - 1 / C
        self.jump = 0.0  # how far the last batch was from the memory: 0 as ever, 1 all new
        self.assignment: Assignment | None = None
        self.assigned: Tensor | None = None  # the logits it is of

    def begin(self) -> Memory:
        c = self.all.mean
        pair = c.new_zeros(len(self.layers), 2)  # of means and of variances
        rows = c.new_zeros(self.classes if self.balances else 0, len(c))
        return {
            "mean": c,
            "var": self.all.var,
            "noise": pair + UNKNOWN,
            "within": pair,  # variance over images of one class
            "between": pair + self.between[0],  # variance of offsets / within
            "recent_mean": c,
            "recent_var": self.all.var,
            "recent_noise": pair,
            "recent": pair[:, 0],  # images
            "offset_mean": rows,
            "offset_var": rows,
            "jump": pair[:, 0],
        }

    # ---- a batch -----------------------------------------------------------------------------

    def settle(self, model: Network, x: Tensor) -> Tensor:
        with self.guarded():
            if len(x) <= SMALL:
                logits, memory, used = self._after(model, x)
            elif self.balances and (self.images == 0 or self.unevenness > 0.5):
                logits, memory, used = self._balanced(model, x)
            else:
                logits, memory, used = self._even(model, x)
            if self.assigned is not logits:
                self._assign(logits)
            self.assigned = None
            self._count(memory, len(x))
            self.commit(memory, used)
        return logits

    def _after(self, model: Network, x: Tensor) -> Settled:
        """Few images: predict, then move; once more where that moves far."""
        logits, moments = self.recorded(model, x)
        self._assign(logits)
        memory, used = self._moved(self.all, self.memory, moments)
        if self._far(used):
            return self.sequential(model, x)
        return logits, memory, used

    def _balanced(self, model: Network, x: Tensor) -> Settled:
        """Uneven classes: a forward to tell them, and another where the statistics move far."""
        logits, memory, used = self._after(model, x)
        if self.images == 0:  # the first batch: were the classes uneven, or the source wrong?
            self._assign(logits)
            if self.unevenness < 0.5:
                self.assignment = None
                return self.sequential(model, x)
        return logits, memory, used

    def _even(self, model: Network, x: Tensor) -> Settled:
        """Even classes: one forward, as test BN; balanced after all if they turn out uneven."""
        self.assignment = None
        found = self.sequential(model, x)
        if self.balances:
            self._assign(found[0])
            if self.unevenness > 0.5:
                return self.sequential(model, x)
        return found

    def _far(self, used: Pair) -> bool:
        mean, var = used[0] - self.used[0], used[1] - self.used[1]
        unit = self.all.unit
        distance = self.all.by_layer(mean.square() / unit + var.square() / unit.square())
        return bool(distance.mean() > self.again)

    def _assign(self, logits: Tensor) -> None:
        """Predicted classes of the batch, and how uneven those of late are."""
        if not self.balances:
            return
        self.assignment = a = Assignment(logits)
        self.assigned = logits
        count = self.counted * math.exp(-len(logits) / self.window) + a.hard
        numbers = torch.stack([a.present.sum(), count.sum(), count.square().sum()])
        classes, n, squares = numbers.tolist()  # one transfer
        a.classes = int(classes)
        if n < 2:
            self.excess, self.unevenness = 0.0, 1.0
            return
        squares /= n**2
        self.excess = max(0.0, (squares - 1 / n) / (1 - 1 / n) - 1 / self.classes)  # less chance
        x = (self.excess * self.classes / self.uneven) ** 2
        self.unevenness = x / (1 + x)

    def _count(self, memory: Memory, n: int) -> None:
        self.images += n
        self.jump = float(memory["jump"].mean())
        if self.assignment is not None:
            self.counted = self.counted * math.exp(-n / self.window) + self.assignment.hard
            self.known = self.known * math.exp(-n / self.offsets) + self.assignment.count

    # ---- layers ------------------------------------------------------------------------------

    def move(self, at: Channels, memory: Memory, moments: Pair) -> tuple[Memory, Pair]:
        m, q = moments
        old, n, k, unit = memory, len(m), self.shrink, at.unit
        first = self.images == 0
        count = old["recent"] * math.exp(-n / (self.recent * (1 + self.unevenness))) + n
        g = n / count
        (P, Pv), (r, rv) = old["noise"].T, old["recent_noise"].T

        # the mean: estimate, memory, the last images
        d, z, within, between = self._estimate(at, m, old, 0)
        recent = at.lerp(old["recent_mean"], d, g)
        r = g**2 * z + (1 - g) ** 2 * r
        gain = P / (P + z)
        jump = _beyond(k * (r + P), at.by_layer((recent - old["mean"]).square() / unit))
        kept = at.lerp(old["mean"], d, gain)
        center = at.lerp(kept, recent, jump)

        # the variance, about that mean
        e = q - 2 * m * center + center.square()
        dv, zv, within_v, between_v = self._estimate(at, e, old, 1)
        if first:  # the mean is the batch's own
            dv = dv + (z if len(z) == 1 else z[at.owner]) * unit
        recent_var = at.lerp(old["recent_var"], dv, g)
        rv = g**2 * zv + (1 - g) ** 2 * rv
        gain_v = Pv / (Pv + zv)
        apart = at.by_layer((recent_var - old["var"]).square() / unit.square())
        jump = (jump + _beyond(k * (rv + Pv), apart)) / 2

        # both move: by precision, and to the last images as far as the domain changed
        mean = at.lerp(kept, recent, jump)
        var = at.lerp(at.lerp(old["var"], dv, gain_v), recent_var, jump)
        older = 1 + n / self.clock
        noise = torch.lerp(gain * z, r, jump) * older
        noise_v = torch.lerp(gain_v * zv, rv, jump) * older
        e = q - 2 * m * mean + mean.square()
        new = {
            "mean": mean,
            "var": var,
            "noise": torch.stack([noise, noise_v], 1),
            "within": torch.stack([within, within_v], 1),
            "between": torch.stack([between, between_v], 1),
            "recent_mean": recent,
            "recent_var": recent_var,
            "recent_noise": torch.stack([r, rv], 1),
            "recent": count,
            "offset_mean": self._offsets(at, old["offset_mean"], m - mean, between),
            "offset_var": self._offsets(at, old["offset_var"], e - var, between_v),
            "jump": torch.ones_like(jump) if first else jump,
        }

        # in use: the source's, moved as far as the distance exceeds the noise
        unsure = 0.0 if self.assignment is None else self.bias * self.excess * self.unevenness
        apart = at.by_layer((mean - at.mean).square() / unit)
        share = _beyond(k * (noise + unsure * between * within), apart)
        apart = at.by_layer((var - at.var).square() / unit.square())
        share = (share + _beyond(k * (noise_v + unsure * between_v * within_v), apart)) / 2
        used = at.lerp(at.mean, mean, share), at.lerp(at.var, var, share)
        return new, (used[0], positive(used[1], at.var))

    def _estimate(
        self, at: Channels, rows: Tensor, old: Memory, which: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean of rows (N, c) with balanced classes, its noise, variances within and between."""
        n, a = len(rows), self.assignment
        within, between = old["within"][:, which], old["between"][:, which]
        unit = at.unit.square() if which else at.unit
        if a is None:
            center = rows.mean(0)
            spread = at.by_layer((rows - center).square() / unit).sum(0) / max(n - 1, 1)
            within = self._average(within, spread, n)
            return center, within / n, within, between
        offsets = old["offset_var" if which else "offset_mean"]
        means = a.mean.to(rows) @ rows  # (C, c)
        if n - a.classes >= 4:
            spread = at.by_layer((rows - means[a.label]).square() / unit).sum(0) / (n - a.classes)
        else:  # too few: against what is remembered
            expected = old["var" if which else "mean"] + offsets[a.label]
            spread = at.by_layer((rows - expected).square() / unit).mean(0)
        within = self._average(within, spread, n).clamp(min=TINY)
        count, present = a.count.to(rows)[:, None], a.present[:, None]
        if a.classes >= 3:  # analysis of variance
            apart = (means - (means * present).sum(0) / a.classes) * present
            total = at.by_layer(apart.square() / unit).sum(0) / (a.classes - 1)
            chance = within * (present / count.clamp(min=TINY)).sum() / a.classes
            found = ((total - chance).clamp(min=0) / within).clamp(max=self.between[1])
            between = torch.lerp(between, found, min(1.0, a.classes * n / (64 * self.classes)))
        # generalized least squares: a class mean errs by its offset and by chance; (C, L)
        effective = (between * self.unevenness).clamp(min=1e-4)
        unsure = effective * within / (1 + self.known.to(rows)[:, None] * effective)
        precision = present / (unsure + within / count.clamp(min=0.5))
        total = precision.sum(0)
        weight = precision / total
        weight = weight if weight.shape[1] == 1 else weight[:, at.owner]
        return (weight * (means - self.unevenness * offsets)).sum(0), 1 / total, within, between

    def _offsets(self, at: Channels, old: Tensor, rows: Tensor, between: Tensor) -> Tensor:
        """Offsets of the classes, (C, c), moved by rows that are centered."""
        a = self.assignment
        if a is None:
            return old
        count = a.count.to(rows)[:, None]
        known = self.known.to(rows)[:, None] + count + 1 / between.clamp(min=1e-3)
        rate = a.present[:, None] * count / known  # (C, L)
        rate = rate if rate.shape[1] == 1 else rate[:, at.owner]
        return old + rate * (a.mean.to(rows) @ rows - old)

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


def positive(var: Tensor, source: Tensor) -> Tensor:
    """A variance that is at least a hundredth of the source's."""
    return torch.maximum(var, 0.01 * source)
