"""Tables of docs/comparison.md, from what benchmarks/comparison.py wrote."""

from __future__ import annotations

from .committed import Evidence
from .tables import markdown


def steps_table(evidence: Evidence) -> str:
    """Processor time of a step in floors: median and quartiles of the rounds."""
    found = evidence.benchmark("comparison")
    rows = [
        [f"{s['name']}", f"{s['ratio']:.2f}", f"{s['low']:.2f} to {s['high']:.2f}"]
        for s in found["steps"]
    ]
    model = f"{found['model']}, batch {found['batch']}, {found['size']} px"
    return markdown([model, "× floor", "quartiles"], rows)


def agreement_table(evidence: Evidence) -> str:
    found = evidence.benchmark("comparison")["largest_difference_of_logits"]
    rows = [[*pair.rsplit(", ", 1), f"{value:.2g}"] for pair, value in found.items()]
    return markdown(["their code", "against", "largest difference"], rows)
