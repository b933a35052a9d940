"""How fast the corruptions are, against a plain per-image implementation, in one run.

    python benchmarks/corruptions.py --json corruptions.json

Both sides draw their own random numbers and both have imported what they need; tables and matrices
that the batched engine builds once for a severity are built inside the measured time. Images are
CIFAR's test batch and ImageNet files below FRETTA_DATA where they are there, and pieces of
scikit-learn's two sample photographs otherwise.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import write

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "corruptions"))
from reference import plain

from fretta.corruptions import ALL, CORRUPTIONS, constants_for, corrupt

Images = np.ndarray[Any, np.dtype[np.uint8]]


def pieces(count: int, side: int) -> Images:
    """Squares cut from two photographs, mirrored at random."""
    from sklearn.datasets import load_sample_images

    photographs = load_sample_images().images
    rng = np.random.default_rng(0)
    found = []
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        top = int(rng.integers(photograph.shape[0] - side + 1))
        left = int(rng.integers(photograph.shape[1] - side + 1))
        piece = photograph[top : top + side, left : left + side]
        found.append(piece[:, ::-1] if rng.random() < 0.5 else piece)
    return np.stack(found)


def small_images(count: int) -> tuple[Images, str]:
    batch = Path(os.environ.get("FRETTA_DATA", "")) / "cifar-10-batches-py" / "test_batch"
    if batch.is_file():
        from fretta.data.cifar_pickle import read_batch

        return read_batch(batch)[0][:count], "CIFAR-10 test batch"
    return pieces(count, 32), "pieces of sample photographs"


def large_images(count: int) -> tuple[Images, str]:
    folder = Path(os.environ.get("FRETTA_DATA", "")) / "imagenet-sample"
    files = sorted(folder.glob("*/*.JPEG"))
    if len(files) >= count:
        from fretta.corruptions.base import read_rgb

        return np.stack([read_rgb(file) for file in files[:count]]), "ImageNet sample"
    return pieces(count, 224), "pieces of sample photographs"


def measure(images: Images, name: str, severity: int, plain_count: int) -> dict[str, Any]:
    """Milliseconds per image, batched and plain."""
    height, width = images.shape[1:3]
    rng = np.random.default_rng(0)
    warm = 1 if severity != 1 else 2  # imports, but not the tables of the severity to be measured
    corrupt(images[:1], name, warm)
    plain(images[0], name, constants_for(name, warm, height, width), rng)
    start = time.perf_counter()
    corrupt(images, name, severity)
    batched = (time.perf_counter() - start) / len(images)
    c = constants_for(name, severity, height, width)
    start = time.perf_counter()
    for image in images[:plain_count]:
        plain(image, name, c, rng)
    plainly = (time.perf_counter() - start) / min(plain_count, len(images))
    return {
        "corruption": name,
        "batched_ms": batched * 1e3,
        "plain_ms": plainly * 1e3,
        "ratio": plainly / batched,
    }


def table(title: str, images: Images, args: argparse.Namespace, plain_count: int) -> dict[str, Any]:
    print(f"\n{title}, severity {args.severity}")
    print(f"{'':20}{'batched ms':>12}{'plain ms':>12}{'ratio':>9}")
    rows = []
    for name in args.corruptions:
        row = measure(images, name, args.severity, plain_count)
        rows.append(row)
        print(
            f"{name:20}{row['batched_ms']:12.3f}{row['plain_ms']:12.3f}{row['ratio']:8.1f}x",
            flush=True,
        )
    batched, plainly = (sum(row[key] for row in rows) for key in ("batched_ms", "plain_ms"))
    print(f"{'together':20}{batched:12.3f}{plainly:12.3f}{plainly / batched:8.1f}x")
    others = [row for row in rows if row["corruption"] != "glass_blur"]
    rest = sum(row["plain_ms"] for row in others) / sum(row["batched_ms"] for row in others)
    print(f"{'without glass_blur':44}{rest:8.1f}x")
    return {
        "images": len(images),
        "plain_images": min(plain_count, len(images)),
        "size": list(images.shape[1:3]),
        "rows": rows,
        "ratio": plainly / batched,
        "ratio_without_glass_blur": rest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the corruptions against a plain version")
    parser.add_argument("--images", type=int, default=2000, help="32-pixel images (default 2000)")
    parser.add_argument("--plain", type=int, default=None, help="of which the plain version gets")
    parser.add_argument("--large", type=int, default=10, help="224-pixel images (default 10)")
    parser.add_argument(
        "--large-plain", type=int, default=2, help="of which the plain version gets"
    )
    parser.add_argument("--severity", type=int, default=5)
    parser.add_argument("--corruptions", nargs="+", default=list(CORRUPTIONS), choices=ALL)
    parser.add_argument("--json", type=Path, default=None, help="write the numbers here")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "severity": args.severity,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
    }
    if args.images:
        images, source = small_images(args.images)
        title = f"{len(images)} images of 32 x 32 ({source}), ms per image"
        result["small"] = table(title, images, args, args.plain or len(images))
    if args.large:
        images, source = large_images(args.large)
        title = f"{len(images)} images of 224 x 224 ({source}), ms per image"
        result["large"] = table(title, images, args, args.large_plain)
    write(args.json, result)


if __name__ == "__main__":
    main()
