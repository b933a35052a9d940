"""What `fretta diagnose` says of streams whose truth is known: the limits in diagnosis/advice.py.

    FRETTA_DATA=... python benchmarks/diagnose.py --out evidence/benchmarks/diagnose.json
    FRETTA_DATA=... python benchmarks/diagnose.py --data pacs
    FRETTA_DATA=... python benchmarks/diagnose.py --duplicates

Clean and corrupted images of CIFAR-10 (ResNet-20) and digits, with equal shares of the classes and
with one class at 30, 50 and 80 %; and what batch statistics gain or lose on them. A few minutes on
one core. Nothing is chosen on PACS (EfficientNet-Lite0 at 160 pixels).
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from common import arguments, open_benchmark, write
from PIL import Image

import fretta
from fretta.data import CORRUPTIONS
from fretta.diagnosis import Diagnosis
from fretta.diagnosis.measure import Pictures, measure
from fretta.diagnosis.pictures import Prints
from fretta.experiment.case import Case

BATCH = 64
UNEVEN = ("clean", "gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")


def chosen(labels: Any, number: int, share: float, images: int, seed: int) -> Any:
    """Rows: class `number` holds `share` of them, 0 for equal shares; repeated where too few."""
    random = np.random.RandomState(seed)
    if not share:
        return random.permutation(len(labels))[:images]
    first, rest = np.flatnonzero(labels == number), np.flatnonzero(labels != number)
    counts = (round(share * images), images - round(share * images))
    rows = [random.choice(r, n, n > len(r)) for r, n in zip((first, rest), counts, strict=True)]
    return random.permutation(np.concatenate(rows))


def streams(data: str) -> Iterator[tuple[str, int, int, float]]:
    """(corruption or domain, severity, class, share)."""
    if data == "pacs":
        for domain in ("art_painting", "cartoon", "photo"):
            for share in (0.0, 0.8):
                yield domain, 0, 6, share
        return
    yield "clean", 0, 0, 0.0
    for corruption in CORRUPTIONS:
        for severity in (1, 3, 5) if corruption in UNEVEN else (5,):
            yield corruption, severity, 0, 0.0
    for corruption in UNEVEN:
        for number in (3, 8):
            for share in (0.3, 0.5, 0.8):
                yield corruption, 0 if corruption == "clean" else 5, number, share


def open_stream(data: str, name: str, severity: int, root: str | None) -> tuple[Case, Any]:
    if data == "pacs":
        case = open_benchmark("pacs", root)
        return case, next(d for d in case.data.domains if d.name == name)
    corrupted: dict[str, Any] = {"corruption": name, "severity": severity} if severity else {}
    if data == "digits":  # as strong as in its suite, instead of severity 5
        corrupted = {**corrupted, "corruption": name if severity else None}
        corrupted = {k: v for k, v in corrupted.items() if (k, v) != ("severity", 5)}
    case = open_benchmark(data, root, **corrupted)
    return case, case.data.domains[0]


def row(data: str, stream: tuple[str, int, int, float], images: int, root: str | None) -> Any:
    name, severity, number, share = stream
    case, domain = open_stream(data, name, severity, root)
    rows = chosen(np.asarray(domain.labels), number, share, images, seed=0)
    labels = torch.from_numpy(np.asarray(domain.labels)[rows])
    pixels = torch.from_numpy(np.ascontiguousarray(domain.read(rows).transpose(0, 3, 1, 2)))
    batches = [Pictures(case.preprocessing.apply(p)) for p in pixels.split(BATCH)]
    facts, _ = measure(case.net, batches)
    right = {}
    for method in ("source", "bn"):
        adapter = fretta.adapt(case.net, method)
        hits = [
            adapter(b.x).argmax(1) == y for b, y in zip(batches, labels.split(BATCH), strict=True)
        ]
        right[method] = 100 * float(torch.cat(hits).float().mean())
    own, batch = facts.outputs.predicted, facts.batch_predicted or [0]
    top = int(np.argmax(batch))
    return {
        "data": data, "domain": name, "severity": severity, "class": number, "share": share,
        "moved": facts.moved, "early": facts.early, "late": facts.late,
        "largest": max(own) / sum(own), "batch_largest": max(batch) / sum(batch),
        "own_of_that": own[top] / sum(own),
        "confidence": facts.outputs.confidence, "redundancy": facts.outputs.redundancy,
        "advice": [a.kind for a in Diagnosis(facts).advice], **right,
    }  # fmt: skip


def group(r: Any) -> str:
    gain = r["bn"] - r["source"]
    if r["share"]:
        return f"one class at {100 * r['share']:.0f} %"
    return f"equal shares, gain {'3 points or more' if gain >= 3 else 'below 3 points'}"


def print_summary(rows: list[Any]) -> None:
    """How often each first recommendation is given, and how often classes are said uneven."""
    for data in dict.fromkeys(r["data"] for r in rows):
        for name in sorted({group(r) for r in rows}):
            chosen = [r for r in rows if r["data"] == data and group(r) == name]
            first = Counter(r["advice"][0] for r in chosen)
            uneven = sum("uneven" in r["advice"] for r in chosen)
            said = ", ".join(f"{kind} {n}" for kind, n in first.most_common())
            print(f"{data:8} {name:37} {len(chosen):3} streams, uneven {uneven:2}: {said}")


def print_duplicates(root: str | None, copies: int = 300) -> None:
    """Near-duplicates found among different images, and among them and JPEG copies of some."""
    for data, name, images in (
        *(("cifar10", "clean", 5000), ("cifar10", "contrast", 5000)),
        *(("digits", "clean", 540), ("digits", "contrast", 540)),
    ):
        _, domain = open_stream(data, name, 0 if name == "clean" else 5, root)
        pixels = domain.read(np.arange(images))
        again = []
        for image in pixels[:copies]:
            file = io.BytesIO()
            Image.fromarray(image).save(file, "JPEG", quality=75)
            again.append(np.array(Image.open(file)))
        prints, found = Prints(), []
        for part in (pixels, np.stack(again)):
            names = [str(i) for i in range(len(part))]
            prints.add(names, torch.from_numpy(part.transpose(0, 3, 1, 2).copy()))
            found.append(prints.duplicates()[0])
        first, both = found
        print(f"{data} {name}: {first} among {images:,}, {both - first} of {copies} copies")


def main() -> None:
    parser = arguments(__doc__, data="cifar10,digits", images=256, root="")
    parser.add_argument("--duplicates", action="store_true", help="only find near-duplicates")
    options = parser.parse_args()
    if options.duplicates:
        print_duplicates(options.root or None)
        return
    rows = []
    print(
        "data     domain             sev class share moved early late  top  bn top own  source bn"
    )
    for data in options.data.split(","):
        for stream in streams(data):
            r = row(data, stream, options.images, options.root or None)
            rows.append(r)
            facts = [r[k] for k in ("moved", "early", "late", "largest", "batch_largest")]
            print(
                f"{data:8} {r['domain']:18} {r['severity']}   {r['class']}     {r['share']:.1f}  ",
                *(f"{v:.2f} " for v in (*facts, r["own_of_that"])),
                f"{r['source']:5.1f} {r['bn']:5.1f}  {' '.join(r['advice'])}",
                flush=True,
            )
    print_summary(rows)
    write(options.out, {"images": options.images, "streams": rows})


if __name__ == "__main__":
    main()
