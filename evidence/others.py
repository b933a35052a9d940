"""The methods that the paper does not have: how they do here, and what their papers claim."""

from __future__ import annotations

from collections.abc import Mapping

from fretta.methods import list_methods

from .claims import HOLDS, NOT, OPEN, PARTLY, Claim, better, difference, verdict
from .committed import METHODS, Evidence, by_seed, mean
from .streams import KINDS, Scores
from .tables import DASH, MARGIN, markdown, percent, starred

# What a reader calls it: (suite, case or domain)
PLACES: Mapping[str, tuple[str, str]] = {
    "CIFAR-10-C": ("cifar10c-shared", ""),
    "correlated": ("cifar10c-shared-correlated", ""),
    "long-tailed": ("cifar10c-shared-lt", "IF=100"),
    "PACS art_painting": ("pacs-shared", "art_painting"),
    "digits": ("digits-all", ""),
}
LONG, CORRELATED = "cifar10c-shared-full", "cifar10c-shared-correlated"
OURS = ("stein", "auto")
BESIDE = ("source", "bn", "tent", "eta", "g-fret", *OURS)  # for comparison


def _others() -> list[str]:
    return [m for m in list_methods() if m not in METHODS and m not in OURS]


def others_table(evidence: Evidence) -> str:
    """Methods × places; the highest of a column is bold, one seed is marked."""
    methods = [*BESIDE, *_others()]
    grid = {m: [evidence.accuracy(*_key(p, m)) for p in PLACES] for m in methods}
    best = [max((mean(row[i]), m) for m, row in grid.items() if len(row[i]))[1] for i in range(5)]
    rows = []
    for method, row in grid.items():
        cells = [
            DASH
            if scores.empty
            else percent(scores, "best" if best[i] == method else "")
            + (" (1)" if len(by_seed(scores)) == 1 else "")
            for i, scores in enumerate(row)
        ]
        rows.append([f"`{method}`", *cells])
    return markdown(["method", *PLACES], rows)


def _key(place: str, label: str) -> tuple[str, str, str]:
    suite, case = PLACES[place]
    return suite, label, case


def parts_behind_table(evidence: Evidence) -> str:
    """Parts of one method behind or below another."""
    rows = []
    for base, label in (
        *(("eta", f"eta, {what}") for what in ("output=prior", "output=lame")),
        *((m, f"{m}, adaptive statistics") for m in ("eta", "tent")),
        ("tent", "tent, reset every 100"),
    ):
        row = [label]
        for suite in ("cifar10c-shared", CORRELATED):
            with_part = evidence.accuracy(suite, label)
            gap = difference(evidence, suite, "", label, base)
            row.append(DASH if gap is None else f"{percent(with_part)} ({starred(*gap)})")
        rows.append(row)
    return markdown(["", "CIFAR-10-C", "correlated"], rows)


def others_claims(evidence: Evidence) -> str:
    makers = (lame_correlated, note_correlated, rdumb_long, roid_overall)
    parts = []
    for claim in (make(evidence) for make in makers):
        lines = [f"- **{claim.says}: {claim.verdict}.** " + " ".join(claim.numbers)]
        parts.append("\n".join([*lines, f"  `{claim.command}`"]))
    return "\n".join(parts)


def lame_correlated(evidence: Evidence) -> Claim:
    yes = _over(evidence, CORRELATED, "lame", ("source", "bn", "tent"))
    mixed = _over(evidence, "cifar10c-shared", "lame", ("source",))
    small = _small_batches(evidence, "lame")
    return _judged(
        "LAME helps where neighbors share their class",
        {**yes, **{name: (gap > 0, "") for name, gap in small.items()}},
        f"Correlated, batches of 64: {_words(yes)}. In smaller ones, over source:"
        f" {', '.join(f'{gap:+.1f} ({name})' for name, gap in small.items())}, one setting for all"
        f" ([streams](auto.md#results)). Where classes are mixed it harms, as its paper says:"
        f" {_words(mixed)}.",
        CORRELATED,
    )


def _small_batches(evidence: Evidence, method: str) -> dict[str, float]:
    """Points over the source model where classes are correlated or sorted, beyond the margin."""
    scores = Scores(evidence.lines("streams"))
    pairs = {s: scores.pair(s, method, "source") for s in KINDS["sorted classes"]}
    gaps = {s.replace("-", ", "): p[0] - p[1] for s, p in pairs.items() if p is not None}
    return {name: gap for name, gap in gaps.items() if abs(gap) > MARGIN}


def note_correlated(evidence: Evidence) -> Claim:
    yes = _over(evidence, CORRELATED, "note", ("bn", "tent", "source"))
    says = "NOTE is robust to correlated classes"
    return _judged(says, yes, f"Correlated: {_words(yes)}.", CORRELATED)


def rdumb_long(evidence: Evidence) -> Claim:
    """At 1,185 steps its published reset, every 1,000, happens once, so there is no verdict."""
    found = _over(evidence, LONG, "rdumb", ("eta", "tent", "bn"))
    return Claim(
        "RDumb, which begins again now and then, beats methods that never do on long streams",
        OPEN,
        [
            f"All 10,000 images of each corruption, one seed: {_words(found)}. It resets once, at"
            " step 1,000 of 1,185, so what the reset is worth cannot be told."
        ],
        f"fretta run {LONG} --store evidence",
        "",
    )


def roid_overall(evidence: Evidence) -> Claim:
    """Place by mean accuracy among all published methods that ran in a place."""
    places, first = [], []
    published = [m for m in [*METHODS, *_others()] if m not in OURS]
    for place in PLACES:
        scores = {m: evidence.accuracy(*_key(place, m)) for m in published}
        known = {m: mean(s) for m, s in scores.items() if len(s)}
        if "roid" not in known:
            continue
        ranked = sorted(known, key=lambda m: -known[m])
        first.append(ranked.index("roid") + 1)
        places.append(f"{place} {first[-1]} of {len(ranked)} (best: {ranked[0]})")
    return Claim(
        "ROID does well on every kind of stream",
        HOLDS if max(first) <= 3 else PARTLY if min(first) <= 3 else NOT,
        ["Place among published methods: " + ", ".join(places) + ". Holds: third or better."],
        "fretta run (each suite) --store evidence",
        "",
    )


Found = dict[str, tuple[bool | None, str]]


def _judged(says: str, found: Found, numbers: str, suite: str) -> Claim:
    """Holds where the method is above all others."""
    command = f"fretta run {suite} --store evidence"
    return Claim(says, verdict([above for above, _ in found.values()]), [numbers], command, "")


def _over(evidence: Evidence, suite: str, method: str, others: tuple[str, ...]) -> Found:
    """Whether the method is above each of the others beyond noise, and by how much."""
    found: Found = {}
    for other in others:
        gap = difference(evidence, suite, "", method, other)
        if gap is not None:
            found[other] = better(*gap), starred(*gap)
    return found


def _words(found: Found) -> str:
    return ", ".join(f"{words} over {other}" for other, (_, words) in found.items()) or "not run"
