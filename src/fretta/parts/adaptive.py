"""Adaptive statistics of batch norms: begin at the source, follow the stream out of the noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .statistics import Channels, Memory, Network, Pair, Settled, Statistics, positive

SMALL = 16  # images; a batch of so few is predicted with the statistics of those before it
UNKNOWN = 1e30  # noise of statistics that have seen nothing
TINY = 1e-12


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
        shrink     The statistics in use are the source's, moved toward the memory by
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

    per_layer = ("noise", "within", "between", "recent_noise", "recent", "jump")

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
        self.assigned = False  # whether it is of the logits to return

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
            self.assigned = False
            if len(x) <= SMALL:
                logits, memory, used = self._after(model, x)
            elif self.balances and (self.images == 0 or self.unevenness > 0.5):
                logits, memory, used = self._balanced(model, x)
            else:
                logits, memory, used = self._even(model, x)
            if not self.assigned:
                self._assign(logits)
            self._count(memory, len(x))
            self.commit(memory, used)
        return logits

    def _after(self, model: Network, x: Tensor) -> Settled:
        """Few images: predict, then move; once more where that moves far."""
        logits, moments = self.recorded(model, x)
        self._assign(logits)
        memory, used = self._moved(self.all, self.memory, moments)
        if self._far(used):
            del logits
            return self._again(model, x)
        return logits, memory, used

    def _balanced(self, model: Network, x: Tensor) -> Settled:
        """Uneven classes: a forward to tell them, and another where the statistics move far."""
        logits, memory, used = self._after(model, x)
        if self.images == 0:  # the first batch: were the classes uneven, or the source wrong?
            self._assign(logits)
            if self.unevenness < 0.5:
                self.assignment = None
                del logits
                return self._again(model, x)
        return logits, memory, used

    def _even(self, model: Network, x: Tensor) -> Settled:
        """Even classes: one forward, as test BN; balanced after all if they turn out uneven."""
        self.assignment = None
        found = self.sequential(model, x)
        if self.balances:
            self._assign(found[0])
            if self.unevenness > 0.5:
                del found
                return self._again(model, x)
        return found

    def _again(self, model: Network, x: Tensor) -> Settled:
        """Another forward. The caller lets go of the first: two graphs need twice the memory."""
        self.assigned = False
        return self.sequential(model, x)

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
        self.assigned = True
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
            expected = center if n > 1 else old["var" if which else "mean"]  # as remembered
            spread = at.by_layer((rows - expected).square() / unit).sum(0) / max(n - 1, 1)
            within = self._average(within, spread, n).clamp(min=TINY)
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
