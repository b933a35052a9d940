"""Tables of docs/diagnose.md, from what benchmarks/diagnose.py wrote to `benchmarks/`."""

from __future__ import annotations

from typing import Any

from .committed import Evidence
from .prose import paragraph, signed
from .tables import markdown

Streams = list[dict[str, Any]]
DATA = {"cifar10": "CIFAR-10", "digits": "digits"}
SAID = {
    "do-not-adapt": "do not adapt",
    "measure": "measure",
    "measure-uneven": "measure, uneven",
    "adapt": "adapt",
    "adapt-uneven": "adapt, uneven",
}
TRAINED = ("cartoon", "photo")  # the source model of PACS was trained on them


def _streams(evidence: Evidence, name: str = "diagnose") -> Streams:
    found: Streams = evidence.benchmark(name)["streams"]
    return found


def _gain(stream: dict[str, Any]) -> float:
    return float(stream["bn"] - stream["source"])


def _span(values: list[float], digits: int) -> str:
    return " to ".join(dict.fromkeys(f"{v:.{digits}f}" for v in (min(values), max(values))))


def limits_text(evidence: Evidence) -> str:
    """What the distance does not say: first on the page."""
    seen = [s for s in _streams(evidence, "diagnose-pacs") if s["domain"] in TRAINED]
    even = [s for s in seen if not s["share"]]
    told = sum(s["advice"][0].startswith("adapt") for s in seen)
    by_name = {
        s["domain"]: s
        for s in _streams(evidence)
        if (s["data"], s["severity"], s["share"]) == ("cifar10", 5, 0)
    }
    bright, pixels = by_name["brightness"], by_name["pixelate"]
    return paragraph(
        "**It does not know whether adapting gains accuracy, and on deep networks it sees shifts"
        " where there are none unless it is given source images.** A model that was trained on"
        f" several domains of PACS is {_span([s['moved'] for s in even], 2)} away from two of"
        f" them, and is told to adapt on {told} of {len(seen)} streams of these (below)."
        f" Brightness moves the statistics of CIFAR-10 images by {bright['moved']:.2f}, and batch"
        f" statistics gain {signed(_gain(bright), 1)} points there; pixelated images move by"
        f" {pixels['moved']:.2f}, and they gain {signed(_gain(pixels), 1)}. It says what moved;"
        " [compare](estimate.md) says whether it helps."
    )


def recommended_table(evidence: Evidence) -> str:
    """What batch statistics would have gained where each recommendation comes first."""
    streams, rows = _streams(evidence), []
    shares = [100 * s["share"] for s in streams if s["share"]]
    frequent = f"one class at {_span(shares, 0)} %"
    for uneven, title in ((False, "equal shares"), (True, frequent)):
        mine = [s for s in streams if bool(s["share"]) is uneven]
        for kind, said in SAID.items():
            row = [f"{title}: {said}"]
            for data in DATA:
                gains = [_gain(s) for s in mine if (s["data"], s["advice"][0]) == (data, kind)]
                row += [str(len(gains)), _gains(gains)]
            if row[1::2] != ["0", "0"]:
                rows.append(row)
    gain = "gain, mean (from, to)"
    head = [part for title in DATA.values() for part in (f"{title} streams", gain)]
    return markdown(["first recommendation", *head], rows)


def _gains(gains: list[float]) -> str:
    if not gains:
        return ""
    mean, low, high = (signed(v, 1) for v in (sum(gains) / len(gains), min(gains), max(gains)))
    return f"{mean} ({low}, {high})"


def uneven_text(evidence: Evidence) -> str:
    """How often classes are called uneven, rightly and wrongly."""
    streams = _streams(evidence)
    frequent, even = ([s for s in streams if bool(s["share"]) is u] for u in (True, False))
    missed = [s for s in frequent if "uneven" not in s["advice"]]
    false = [s for s in even if "uneven" in s["advice"]]
    where = sorted({f"{s['domain']} on {DATA[s['data']]}" for s in false})
    text = (
        f"Called uneven with equal shares: {len(false)} of {len(even)} streams"
        f" ({', '.join(where) or 'none'}). Not called uneven with a frequent class:"
        f" {len(missed)} of {len(frequent)}."
    )
    if missed:
        shares = ", ".join(sorted({f"{100 * s['share']:.0f} %" for s in missed}))
        domains = ", ".join(sorted({s["domain"] for s in missed}))
        text += (
            f" There the class has {shares} of the images, the shifts are {domains}, and batch"
            f" statistics gain {_span([_gain(s) for s in missed], 0)} points."
        )
    return paragraph(
        text + ' "Adapt, uneven" covers both streams that batch statistics ruin and streams that'
        " they rescue; that is why it names other statistics."
    )


def pacs_table(evidence: Evidence) -> str:
    """Streams on which nothing was chosen."""
    rows = []
    for s in _streams(evidence, "diagnose-pacs"):
        kind, seen = s["advice"][0], s["domain"] in TRAINED
        title = f"{s['domain']}{', seen in training' * seen}"
        title += f", {100 * s['share']:.0f} % persons" if s["share"] else ""
        rows.append([title, f"{s['moved']:.2f}", SAID[kind], f"{s['source']:.1f}"])
        rows[-1] += [f"{s['bn']:.1f}", _judged(kind, seen, _gain(s))]
    return markdown(["PACS", "distance", "first recommendation", "source", "`bn`", ""], rows)


def _judged(kind: str, seen: bool, gain: float) -> str:
    """`adapt` promises that batch statistics gain, `adapt-uneven` that they lose."""
    if kind.startswith("measure"):
        return "does not commit itself"
    if seen and kind.startswith("adapt"):
        return "**wrong**: nothing to adapt"
    return "right" if (gain > 0) is (kind == "adapt") else "**wrong**"


def layers_text(evidence: Evidence) -> str:
    """Early and late layers on clean images with one class at 80 %."""
    found = {
        data: [
            s
            for s in _streams(evidence)
            if (s["data"], s["domain"], s["share"]) == (data, "clean", 0.8)
        ]
        for data in DATA
    }
    early, late = ([s[k] for s in found["digits"]] for k in ("early", "late"))
    (ships,) = [s for s in found["cifar10"] if s["class"] == 8]
    text = (
        "- Uneven classes from a shift by the statistics alone. On digits a class at 80 % moves"
        f" late layers ({_span(late, 2)}) and leaves early ones ({_span(early, 2)}). On CIFAR-10"
        f" it does not: 80 % ships have early layers at {ships['early']:.2f} and late ones at"
        f" {ships['late']:.2f}. So the ratio of the two is shown and decides nothing; predictions"
        " with and without batch statistics decide."
    )
    return paragraph(text, indent="  ")
