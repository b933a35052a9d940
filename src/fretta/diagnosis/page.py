"""diagnose.html, and the lines on the terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ..data.listing import shown
from ..deploy.page import percent, predicted_shares, render
from .advice import MOVED, UNMOVED
from .facts import Facts, kind_of_reason

if TYPE_CHECKING:
    from . import Diagnosis

LISTED, NAMED = 50, 10  # unreadable files, on the page and on the terminal
SIZES = 8
LAYERS = 60  # rows of the table; of more, every so many-th
DASH = "–"
CANNOT = (
    "What this cannot tell: whether adapting gains accuracy (a shift of brightness moves the"
    " statistics a lot and costs next to nothing); new classes, or wrong labels; uneven classes"
    " from confusion, where a shift makes the model see one class everywhere; and shifts that"
    " leave mean and variance of every channel as they are. Uneven classes move late layers a"
    " little, most shifts move early layers more, but the ratio of the two does not tell them"
    " apart: contrast moves late layers as much."
)


def lines(diagnosis: Diagnosis) -> list[str]:
    """The summary on the terminal: the recommendation last."""
    rows = [
        f"{name:28} {value}" + (f" ({more})" if more else "")
        for name, value, more in summary(diagnosis)
    ]
    unreadable = [] if diagnosis.facts.files is None else diagnosis.facts.files.unreadable
    named = [f"  {shown(name)}: {why}" for name, why in unreadable[:NAMED]]
    if len(unreadable) > NAMED:
        named.append(f"  and {len(unreadable) - NAMED:,} more")
    first, *rest = diagnosis.advice
    return [*rows, *named, "", str(first), *(f"- {advice}" for advice in rest)]


def summary(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """(name, value, what to compare it with): the main numbers, for the terminal and the page."""
    facts, names = diagnosis.facts, diagnosis.names
    own, source, largest = facts.outputs, facts.source, facts.largest
    rows = [("images", f"{facts.images:,}", "")]
    if facts.moved is not None:
        known = facts.source_moved
        beside = "" if known is None else f"source images {known:.2f} σ"
        rows.append(("distance from the source", f"{facts.moved:.2f} σ", beside))
        rows.append(("in early and late layers", f"{facts.early:.2f}, {facts.late:.2f} σ", ""))
    name = names[largest.number] if largest.number < len(names) else f"class {largest.number}"
    expected = f"{name}; expected {percent(largest.expected)}"
    rows.append(("largest predicted class", percent(largest.share), expected))
    if facts.batch_predicted is not None:
        share = max(facts.batch_predicted) / sum(facts.batch_predicted)
        rows.append(("the same, batch statistics", percent(share), ""))
    effective = f"of {facts.classes:,}; marginal entropy {own.marginal_entropy:.2f} nats"
    rows.append(("effective classes", f"{own.effective_classes:.1f}", effective))
    beside = "" if source is None else f"source images {percent(source.confidence)}"
    rows.append(("mean confidence", percent(own.confidence), beside))
    if own.redundancy is not None:
        beside = f"batches of {own.batch}"
        if source is not None and source.redundancy is not None and source.batch == own.batch:
            beside = f"source images {source.redundancy:.3f}"
        rows.append(("redundancy of the features", f"{own.redundancy:.3f}", beside))
    if facts.files is not None:
        files, seen = facts.files, facts.images
        lost = len(files.unreadable)
        rows.append(("near-duplicates", f"{files.duplicates:,}", percent(files.duplicates / seen)))
        rows.append(("unreadable files", f"{lost:,}", percent(lost / max(1, files.files))))
        rows.append(("images without color", f"{files.gray:,}", percent(files.gray / seen)))
    return rows


def page(diagnosis: Diagnosis, title: str, lead: str, settings: list[tuple[str, object]]) -> str:
    facts = diagnosis.facts
    files = facts.files
    unreadable = [] if files is None else files.unreadable
    known, own = diagnosis.names, facts.outputs.predicted
    names = [*known, *(f"class {c}" for c in range(len(known), len(own)))]
    models = [m for m in (own, facts.batch_predicted) if m is not None]
    return render(
        "diagnose.html",
        title=title,
        lead=lead,
        advice=diagnosis.advice,
        tiles=summary(diagnosis),
        layers=_layers(facts),
        hidden=max(0, len(facts.layers) - len(_layers(facts))),
        source=bool(facts.source_layers),
        limits=f"Up to {UNMOVED:.2f} is usual for images like those of training, from {MOVED:.2f}"
        " on the shift is clear.",
        shares=predicted_shares(names, *models),
        both=len(models) > 1,
        sheet=[(m.uri(), m.name, f"{m.distance:.2f}") for m in diagnosis.sheet],
        sizes=_sizes(facts),
        groups=[] if files is None else [(len(g), ", ".join(g[:4])) for g in files.groups],
        reasons=Counter(kind_of_reason(why) for _, why in unreadable).most_common(5),
        unreadable=[(shown(name), why) for name, why in unreadable[:LISTED]],
        more_unreadable=len(unreadable) - LISTED,
        cannot=CANNOT,
        settings=settings,
    )


def _layers(facts: Facts) -> list[tuple[str, ...]]:
    """name, distance with the width of its bar, source images, × noise, of mean and variance."""
    largest = max([layer.moved for layer in facts.layers], default=0) or 1
    known = {layer.name: layer.moved for layer in facts.source_layers}
    every = -(-len(facts.layers) // LAYERS) or 1
    return [
        (
            layer.name,
            f"{layer.moved:.2f}",
            f"{70 * layer.moved / largest:.1f}",
            f"{known[layer.name]:.2f}" if layer.name in known else DASH,
            f"{layer.ratio:,.0f}" if layer.ratio >= 10 else f"{layer.ratio:.1f}",
            f"{layer.mean**0.5:.2f}",
            f"{layer.var**0.5:.2f}",
        )
        for layer in facts.layers[::every]
    ]


def _sizes(facts: Facts) -> dict[str, Any]:
    sizes = {} if facts.files is None else facts.files.sizes
    common = sorted(sizes.items(), key=lambda pair: -pair[1])
    total = sum(sizes.values())
    aspects: Counter[str] = Counter()
    for size, count in sizes.items():
        width, height = map(int, size.split("×"))
        ratio = width / height
        kind = "wide" if ratio > 1.1 else "tall" if ratio < 1 / 1.1 else "nearly square"
        aspects[kind] += count
    rows = [(size, f"{count:,}", percent(count / total)) for size, count in common[:SIZES]]
    shapes = ", ".join(f"{percent(n / total)} {kind}" for kind, n in aspects.most_common())
    return {"rows": rows, "more": len(common) - len(rows), "aspects": shapes}
