"""What docs/serve.md says of the service under load, from what benchmarks/serve.py wrote."""

from __future__ import annotations

from .committed import Evidence
from .tables import markdown


def load_table(evidence: Evidence) -> str:
    """The service beside a bare endpoint, in one run."""
    found = evidence.benchmark("serve")["load"]
    rows = []
    for name, title in (("bare", "bare endpoint"), ("fretta", "fretta serve")):
        row = found[name]
        times = [f"{row[key]:,.0f}" for key in ("p50_ms", "p95_ms", "p99_ms")]
        rows.append([title, *times, f"{row['images_per_second']:.0f}", str(row["lost"])])
    ratio = found["fretta_over_bare"]
    keys = ("p50_ms", "p95_ms", "p99_ms", "images_per_second")
    rows.append(["ratio", *(f"{ratio[key]:.2f}" for key in keys), ""])
    head = ["", "p50, ms", "p95, ms", "p99, ms", "images per second", "images lost"]
    memory = ", ".join(f"{mib:.0f}" for mib in found["replica_mib"])
    return markdown(head, rows) + f"\n\nMemory of the process after each quarter, MiB: {memory}."


def kills_text(evidence: Evidence) -> str:
    found = evidence.benchmark("serve")["kills"]
    lines = [
        f"{found['kills']} × `kill -9` under load:",
        "",
        f"- {found['answered']:,} of {found['images']:,} images answered, {found['wrong']} wrongly",
        f"- {found['streams_with_the_state_of_the_replay']} of {found['streams']} streams end in"
        " the state of the replay",
        f"- a stream forgot at most {found['most_batches_forgotten']} batches at a death, with a"
        f" checkpoint every {found['checkpoint_every']}",
    ]
    return "\n".join(lines)
