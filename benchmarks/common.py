"""What the benchmarks share: models and data to try, timing in turns, results as files."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import fretta
from fretta.data import Preprocessing, Stream
from fretta.experiment.case import Case, open_case
from fretta.experiment.loop import stream_through
from fretta.experiment.provenance import provenance


def arguments(doc: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """--out, and an option for each default, of its type."""
    parser = argparse.ArgumentParser(description=doc)
    for name, value in defaults.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=type(value), default=value, help=f"default: {value}")
    parser.add_argument("--out", help="write the numbers as JSON")
    return parser


def open_benchmark(name: str, root: str | Path | None = None, **options: Any) -> Case:
    """digits, cifar10 or pacs with the model that the pages use; options of open_dataset."""
    if name == "digits":
        return open_case("digits", {"name": "digits", **options}, device="cpu")
    model, weights, size, classes = {
        "cifar10": ("cifar:resnet20", "cifar10_resnet20", 32, 10),
        "pacs": ("timm:tf_efficientnet_lite0", "pacs_art_painting_tf_efficientnet_lite0", 160, 7),
    }[name]
    return open_case(
        model,
        {"name": name, "size": size, **options},
        weights=f"{weights}.safetensors",
        num_classes=classes,
        preprocessing=Preprocessing(size=size),
        root=root,
        device="cpu",
    )


def accuracy(case: Case, adapter: fretta.Adapter, stream: Stream) -> float:
    """The share of correct predictions along a stream."""
    correct = 0
    for item, steps in stream_through({"": adapter}, case.items(stream)):
        correct += int((steps[""].logits.argmax(1) == item.y).sum())
    return correct / stream.samples


def seconds(step: Callable[..., object], *inputs: Any) -> float:
    begin = time.perf_counter()
    step(*inputs)
    return time.perf_counter() - begin


def in_turns(steps: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(1000 * seconds(step))
    return {name: statistics.median(values) for name, values in times.items()}


def write(path: str | Path | None, result: Mapping[str, Any], compact: bool = False) -> None:
    """As JSON, rounded to seven digits; nothing where no path is given."""
    if path is None:
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    content = {**_rounded(result), "provenance": provenance()}
    target.write_text(json.dumps(content, indent=None if compact else 1) + "\n", encoding="utf-8")


def write_rows(path: str | Path, rows: Iterable[Mapping[str, Any]], **more: Any) -> None:
    """A table as columns and rows, in few characters."""
    table = list(rows)
    columns = list(table[0])
    values = [[row[column] for column in columns] for row in table]
    write(path, {"columns": columns, "rows": values, **more}, compact=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, Mapping):
        return {str(k): _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list | tuple) else value
