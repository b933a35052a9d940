"""A page for each method: what `fretta info` says of it, when to use it, and its results."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

from evidence.committed import Evidence
from evidence.method_pages import benchmarks_of, streams_of, verdict_of
from evidence.streams import Scores

from fretta.describe import Description, describe
from fretta.methods import REGISTRY, list_methods

FIRST = ("auto", "stein", "source", "bn")  # ours, and what every method must beat
ADDRESS = re.compile(r"https?://[^\s,]*[^\s,.]")


def names() -> list[str]:
    return [*FIRST, *(name for name in list_methods() if name not in FIRST)]


def pages(root: Path) -> dict[str, str]:
    evidence = Evidence(root / "evidence")
    scores, when = Scores(evidence.lines("streams")), advice(root)
    return {
        f"methods/{name}.md": _page(name, describe(name), when[name], evidence, scores)
        for name in names()
    }


def advice(root: Path) -> dict[str, str]:
    """method -> when to use it: the second table of docs/methods.md."""
    text = (root / "docs" / "methods.md").read_text(encoding="utf-8")
    section = text.partition("\n## When to use which\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:`[a-z0-9-]+`(?:, )?)+) \| (.*) \| (.*) \|$", section, re.M)
    return {
        name: f"**For:** {use}\n\n**Not for:** {leave}"
        for keys, use, leave in rows
        for name in re.findall(r"`([a-z0-9-]+)`", keys)
    }


def _page(name: str, found: Description, when: str, evidence: Evidence, scores: Scores) -> str:
    title, *reference = found.paper.split("\n")
    does, *notes = found.what.split("\n")
    parts = [f"# {name}", f"**{does}**", title, *reference]
    parts += ["## When to use it", when, verdict_of(evidence, scores, name)]
    parts += [f'```python\nadapter = fretta.adapt(model, "{name}")\n```']
    parts += ["## What it does", "```text\n" + found.loss.replace("; ", ";\n") + "\n```", *notes]
    parts += [f"- **Needs:** {found.needs}\n- **Cost:** {found.cost}"]
    parts += ["## Results", _results(name, evidence, scores)]
    if found.fields:
        parts += ["## Hyper-parameters", _fields(found)]
    for variant, how in found.variants.items():
        parts += [f"## The variant `{variant}`", f"Against `{REGISTRY[name].variants[0]}`: {how}."]
    file, code = _step(name)
    parts += ["## A step in code", f"From `{file}`:", f"```python\n{code}\n```"]
    return "\n\n".join(ADDRESS.sub(r"<\g<0>>", part) for part in parts if part) + "\n"


def _results(name: str, evidence: Evidence, scores: Scores) -> str:
    streams, benchmarks = streams_of(scores, name), benchmarks_of(evidence, name)
    parts = []
    if streams and name != "source":
        parts += ["Accuracy in percent along streams, the worst first; ▼ is more than half a"]
        parts[-1] += " point below the source. The number behind a comma is the size of a batch:"
        parts[-1] += " [what the streams are](../auto.md)."
        parts.append(streams)
    if benchmarks:
        parts += ["Suites of the package; \\* is beyond noise: [all methods](../evidence.md)."]
        parts.append(benchmarks)
    return "\n\n".join(parts) or "No runs of this method are committed yet."


def _fields(found: Description) -> str:
    rows = [["hyper-parameter", "default", "meaning", "published"], ["---"] * 4]
    for one in found.fields:
        rows.append([f"`{one.name}`", f"`{one.default}`", one.meaning, one.published])
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in r)} |" for r in rows)


def _step(name: str) -> tuple[str, str]:
    """(file, code) of `step`, of the class or of one it comes from."""
    step = inspect.unwrap(REGISTRY[name].step)
    file = f"src/{step.__module__.replace('.', '/')}.py"
    return file, textwrap.dedent(inspect.getsource(step)).rstrip()
