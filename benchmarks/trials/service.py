"""The HTTP service: what benchmarks/serve.py counted, if it is there."""

from __future__ import annotations

import json
from pathlib import Path

from .tally import Tally

RESULTS = Path(__file__).resolve().parents[2] / "evidence" / "benchmarks" / "serve.json"


def trials(methods: list[str], seed: int, short: bool) -> Tally:
    """Its rows under `faults`: promise, tried, failed, failures."""
    tally = Tally("service")
    if RESULTS.exists():
        for row in json.loads(RESULTS.read_text(encoding="utf-8")).get("faults", []):
            tally.rows[row["promise"]] = {"failures": [], **row}
    return tally
