"""What to do, as a pure function of what was measured.

The limits were chosen on CIFAR-10-C (ResNet-20) and digits, clean and corrupted, with equal shares
of the classes and with one class at 30 to 80 %: benchmarks/diagnose.py, docs/diagnose.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..prepare import SMALL_BATCH
from .facts import CONFUSED, Facts, Largest, kind_of_reason, sampled

# Mean distance of the layers' statistics from the source's, in standard deviations. Clean images
# are at 0.08 to 0.15, with one class at 80 % up to 0.24. From 0.30 on batch statistics gained
# wherever classes were balanced; between the two they gained from -1.5 to 24 points.
UNMOVED, MOVED = 0.20, 0.30
# The same against the distance of source images, where some are given.
UNMOVED_BY, MOVED_BY = 1.4, 2.0
FEWEST = 32  # images: below, neither statistics nor shares of classes say much
UNSURE = 0.10  # confidence lost against source images
UNREADABLE, DUPLICATES = 0.05, 0.20  # shares above which cleaning comes first

ADAPTIVE = "statistics=adaptive, stein or auto"
WHETHER = "That tells what moved, not whether adapting helps: fretta compare does."


@dataclass(frozen=True)
class Advice:
    """One recommendation: `kind` for programs, `title` in bold, `text` with the reason."""

    kind: str
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.title} {self.text}"


def shift_grade(facts: Facts) -> str | None:
    """ "none", "small" or "clear"; None where it cannot be told."""
    moved, source = facts.moved, facts.source_moved or 0.0
    if moved is None or facts.images < FEWEST:
        return None
    if not facts.batch_norms:
        source = 0.0  # the source images are the reference themselves
    clear = max(MOVED, MOVED_BY * source)
    if moved < max(UNMOVED, UNMOVED_BY * source):
        # late layers alone: elastic digits, or only uneven classes
        only_late = (facts.late or 0.0) >= clear and uneven_class(facts) is None
        return "small" if only_late else "none"
    return "small" if moved < clear else "clear"


def uneven_class(facts: Facts) -> Largest | None:
    """The class that makes the classes look uneven, or None. A prior that is given decides.

    Under a shift the model itself may predict one class for half of a balanced stream; with batch
    statistics it does not, while a class that is frequent stays so, if only a little: they take
    away what a batch has in common. Without batch norm there is nothing to check against.
    """
    even, own, batch = 1 / facts.classes, facts.largest, facts.batch_predicted
    if facts.prior is not None:
        top = max(facts.prior)
        known = Largest(facts.prior.index(top), top, even, even + CONFUSED)
        return known if known.uneven else None
    if facts.images < FEWEST:
        return None
    if batch is None or facts.batch_largest is None:
        return own if own.uneven else None
    if facts.batch_largest.uneven:
        return own if own.number == facts.batch_largest.number else facts.batch_largest
    still = batch[own.number] / sum(batch) > even + sampled(even, sum(batch))
    return own if own.uneven and still else None


def recommend(facts: Facts, names: Sequence[str] = ()) -> list[Advice]:
    """The main recommendation, then what else matters; what must come first comes first."""
    cleaning = _cleaning(facts)
    urgent = [a for a in cleaning if a.kind.startswith("first:")]
    other = [a for a in cleaning if a not in urgent]
    rest = [*_classes(facts, names), *_batches(facts), *_model(facts), *other]
    return [*urgent, _adapting(facts), *rest]


def _name(number: int, names: Sequence[str]) -> str:
    return repr(names[number]) if number < len(names) else f"class {number}"


def _adapting(facts: Facts) -> Advice:
    grade, uneven, moved = shift_grade(facts), uneven_class(facts), facts.moved
    if facts.images < FEWEST:
        return Advice(
            "too-few",
            "Too few images to tell.",
            f"{facts.images:,} were seen; {FEWEST} or more are needed to tell a shift from chance.",
        )
    if grade is None or moved is None:
        return Advice(
            "cannot-tell",
            "What changed cannot be told.",
            "The model has no batch norm with running statistics to compare with; give source"
            " images (--source-data) to compare the images with them.",
        )
    found = f"The statistics of the layers are {moved:.2f} standard deviations from the source's"
    usual = f"up to {UNMOVED:.2f} is usual for images like those of training"
    if facts.source_moved is not None:
        found += f" (those of source images {facts.source_moved:.2f})"
        usual = "that is no shift"
    if grade == "none":
        less_sure = facts.source is not None and (
            facts.source.confidence - facts.outputs.confidence > UNSURE
        )
        if less_sure:
            return Advice(
                "unsure",
                "Less sure, without a clear shift: look at the images, and measure.",
                f"{found}, but the model is less sure than on source images. New contents or"
                " classes do that, or a shift that the statistics hardly show.",
            )
        return Advice(
            "do-not-adapt",
            "Nothing shifted: do not adapt.",
            f"{found}; {usual}.",
        )
    if uneven is not None and facts.batch_norms:
        if grade == "small":
            return Advice(
                "measure-uneven",
                f"Measure before you adapt, and only with {ADAPTIVE}.",
                f"{found}, and the classes look uneven, which alone can do this.",
            )
        return Advice(
            "adapt-uneven",
            f"Shifted: try adapting, but only with {ADAPTIVE}.",
            f"{found}, and the classes look uneven. {WHETHER}",
        )
    if grade == "small":
        return Advice(
            "measure",
            "A small shift: measure before you adapt.",
            f"{found}; adapting may gain or lose there. fretta compare says which.",
        )
    return Advice("adapt", "Shifted: try the default method.", f"{found}. {WHETHER}")


def _classes(facts: Facts, names: Sequence[str]) -> list[Advice]:
    uneven, own = uneven_class(facts), facts.largest
    shifted = shift_grade(facts) in ("small", "clear")
    if uneven is not None:
        name, share = _name(uneven.number, names), f"{100 * uneven.share:.0f} %"
        if facts.prior is not None:
            text = f"You say that {share} are {name}."
        else:
            text = f"{share} are predicted {name}, where {100 * uneven.expected:.3g} % are even."
        if facts.batch_norms:
            text += (
                " Methods that normalize by the batch (bn, tent and most others) lose accuracy on"
                f" such images; use {ADAPTIVE}."
            )
        if facts.prior is None:
            text += " If you know the shares, give them: --prior."
        if facts.prior is None and (shifted or not facts.batch_norms):
            text += " It may also be the model's confusion: look at some images."
        title = "The classes are uneven." if facts.prior else "The classes look uneven."
        return [Advice("uneven", title, text)]
    if own.uneven and facts.images >= FEWEST:
        return [
            Advice(
                "favors",
                f"The model favors {_name(own.number, names)}.",
                f"It predicts it for {100 * own.share:.0f} % of the images, where"
                f" {100 * own.expected:.3g} % are expected; with batch statistics the class does"
                " not stand out, so the shift seems to do this, not the classes.",
            )
        ]
    return []


def _batches(facts: Facts) -> list[Advice]:
    if not facts.batch_norms or facts.batch_noise is None or facts.images < 2:
        return []
    size, noise, moved = facts.batch_size, facts.batch_noise, facts.moved or 0.0
    grade = shift_grade(facts)
    if size >= SMALL_BATCH and (grade in (None, "none") or noise <= moved):
        return []
    return [
        Advice(
            "small-batch",
            f"Batches of {size} are small.",
            f"Chance alone moves the statistics of such a batch by {noise:.2f} standard deviations"
            f" (the images moved by {moved:.2f}). Give {SMALL_BATCH} or more, better 64, or use"
            f" {ADAPTIVE}, which remember earlier batches.",
        )
    ]


def _model(facts: Facts) -> list[Advice]:
    if facts.batch_norms:
        return []
    kind = "other normalization layers" if facts.norms else "no normalization layer at all"
    return [
        Advice(
            "no-batch-norm",
            "The model has no batch norm.",
            f"It has {kind}: nothing is gained by batch statistics (bn equals source), and batches"
            " may have any size. fretta check lists the methods that fit.",
        )
    ]


def _cleaning(facts: Facts) -> list[Advice]:
    files, found = facts.files, []
    if files is None:
        return []
    lost = len(files.unreadable)
    if lost:
        urgent = lost >= UNREADABLE * files.files
        why = Counter(kind_of_reason(why) for _, why in files.unreadable).most_common(1)[0][0]
        found.append(
            Advice(
                "first:unreadable" if urgent else "unreadable",
                "Repair or remove unreadable files" + (" first." if urgent else "."),
                f"{lost:,} of {files.files:,} cannot be read; most often: {why}.",
            )
        )
    if files.duplicates:
        urgent = files.duplicates >= DUPLICATES * max(1, facts.images)
        beside = ""
        if files.neighbors:
            beside = f"; {files.neighbors:,} lie beside it by name, as bursts and video frames do"
        found.append(
            Advice(
                "first:duplicates" if urgent else "duplicates",
                "Thin out near-duplicates" + (" first." if urgent else "."),
                f"{files.duplicates:,} of {facts.images:,} images nearly equal another one"
                f"{beside}. They count as one, so batches are smaller than they look.",
            )
        )
    return found
