"""Tables of docs/performance.md, from what the benchmarks wrote to `benchmarks/`."""

from __future__ import annotations

from typing import Any

from fretta.methods import REGISTRY

from .committed import Evidence
from .prose import paragraph
from .tables import DASH, markdown

# What was wanted of a ResNet-18 step, in floors of the same layout.
TARGETS = {
    "tent": 1.03,
    "eta": 1.05,
    "s-fret": 1.03,
    "g-fret": 1.05,
    "tsd": 1.05,
    "sar": 2.1,
    "tipi": 4.0,
    "tea": 24.0,
}
OWN_FLOOR = ("tsd",)  # moves every weight, so the default layout is the floor's
TIMED = (
    *("steps-resnet18", "steps-contiguous", "steps-small", "steps-large"),
    *("head", "choices", "memory", "pipeline", "soak"),
)
ONE_BACKWARD = ("tent", "eta", "s-fret", "g-fret")


def _steps(evidence: Evidence, name: str, network: str = "resnet18") -> dict[str, dict[str, Any]]:
    (found,) = [g for g in evidence.benchmark(name)["grid"] if g["name"] == network]
    return {step["name"]: step for step in found["steps"]}


def steps_table(evidence: Evidence) -> str:
    """Every step on a ResNet-18 against the floor."""
    rows = []
    for name, step in _steps(evidence, "steps-resnet18").items():
        own = "" if step["own_ratio"] is None else f"{step['own_ratio']:.2f}"
        passes = REGISTRY[name].passes if name in REGISTRY else ""
        rows.append([name, f"{step['milliseconds']:,.0f}", f"{step['ratio']:.2f}", own, passes])
        rows[-1].append(f"{step['peak_mib']:,.0f}")
    return markdown(["step", "ms", "× floor", "× own floor", "passes", "peak MiB"], rows)


def in_its_layout(evidence: Evidence) -> dict[str, float | None]:
    """Of each step with a target, its share of a floor in the same layout; None: not measured."""
    default, same = (_steps(evidence, f"steps-{name}") for name in ("resnet18", "contiguous"))
    own = {name: default[name]["own_ratio"] for name in OWN_FLOOR}
    return {name: own.get(name, same.get(name, {}).get("ratio")) for name in TARGETS}


def contiguous_table(evidence: Evidence) -> str:
    """The overhead in the floor's own layout, and whether the target was met."""
    rows = []
    for name, ratio in in_its_layout(evidence).items():
        met = "not measured"
        if ratio is not None:
            met = "met" if ratio <= TARGETS[name] else "**missed**"
        of = " of its own" if name in OWN_FLOOR else ""
        rows.append([name, DASH if ratio is None else f"{ratio:.3f}{of}"])
        rows[-1] += [f"≤ {TARGETS[name]:g}", met]
    return markdown(["step", "× floor", "target", ""], rows)


def targets_text(evidence: Evidence) -> str:
    """Which targets were missed: said first."""
    found = in_its_layout(evidence)
    ratios = {name: ratio for name, ratio in found.items() if ratio is not None}
    missed = [name for name, ratio in ratios.items() if ratio > TARGETS[name]]
    words = [f"{name} {ratios[name]:.3f} (target ≤ {TARGETS[name]:g})" for name in missed]
    met = ", ".join(name for name in ratios if name not in missed)
    unknown = ", ".join(name for name in found if name not in ratios)
    return (
        f"**Targets missed** in the floor's own layout: {', '.join(words) or 'none'}. Met: {met}."
        + f" Not measured in that layout: {unknown}." * bool(unknown)
    )


def networks(evidence: Evidence) -> list[dict[str, Any]]:
    """Other networks than the ResNet-18; small ones were measured apart."""
    small, large = (evidence.benchmark(name)["grid"] for name in ("steps-small", "steps-large"))
    return [*small, *large]


def networks_table(evidence: Evidence) -> str:
    rows = []
    for found in networks(evidence):
        steps = {step["name"]: step for step in found["steps"]}
        rows.append([f"`{found['name']}`", found["model"], f"{found['batch']}, {found['size']}"])
        rows[-1] += [f"{steps['floor']['milliseconds']:,.0f}"]
        rows[-1] += [f"{steps[name]['ratio']:.2f}" for name in ("forward", *ONE_BACKWARD)]
    head = ["`--only`", "network", "batch, px", "floor, ms", "forward"]
    return markdown([*head, *ONE_BACKWARD], rows)


def head_table(evidence: Evidence) -> str:
    """G-FRET after the backbone beside its textbook form."""
    found = evidence.benchmark("head")
    ms = found["milliseconds"]
    rows = [
        ["one forward and backward of the linear head", f"{ms['head']:.1f}", ""],
        ["g-fret, everything after the backbone", f"{ms['g-fret']:.1f}"],
        ["textbook", f"{ms['textbook']:,.0f}", f"{found['textbook_over_gfret']:.0f} × g-fret"],
        ["largest difference of an update", "", f"{found['largest_difference_of_an_update']:.0e}"],
    ]
    rows[1].append(f"{found['gfret_over_head']:.1f} × the head")
    return markdown(["", "ms", ""], rows)


def soak_table(evidence: Evidence) -> str:
    """A row for each method; without a guard, then with one."""
    found = {(m["method"], m["guard"]): m for m in evidence.benchmark("soak")["methods"]}
    rows = []
    for method in sorted({name for name, _ in found}):
        row = [method]
        for guard in (None, "rollback"):
            m = found.get((method, guard))
            row += ["", ""] if m is None else [_late_over_fresh(m), f"{m['memory_growth_mib']:.1f}"]
        rows.append(row)
    titles = ["late / fresh", "growth, MiB", "guarded: late / fresh", "growth, MiB"]
    return markdown(["method", *titles], rows)


def _late_over_fresh(measured: dict[str, Any]) -> str:
    """With the modes of the guard where it is in another one by then."""
    fresh, late = _modes(measured)
    return f"{measured['late_over_early']:.2f}" + ("" if fresh == late else f" ({fresh}, {late})")


def _modes(measured: dict[str, Any]) -> tuple[str | None, str | None]:
    fresh, late = measured.get("modes") or (None, None)
    return fresh, late


def pipeline_table(evidence: Evidence) -> str:
    rows = [
        [str(w["workers"]), f"{w['images_per_second']:.0f}"]
        + [f"{100 * w[key]:.0f} %" for key in ("adapting_share", "loading_share", "cpu")]
        for w in evidence.benchmark("pipeline")["workers"]
    ]
    return markdown(
        ["decoding processes", "images/s", "adapting", "loading", "CPU, all cores"], rows
    )


def choices_table(evidence: Evidence) -> str:
    """Each choice against what it replaced."""
    found, memory = evidence.benchmark("choices"), evidence.benchmark("memory")
    rows = []
    for title, ms in found["adam_milliseconds"].items():
        what = f"fused Adam over {ms['tensors']} tensors ({title})"
        rows.append([what, "a loop", f"{ms['fused'] / ms['loop']:.2f}"])
        rows.append([what, "foreach", f"{ms['fused'] / ms['foreach']:.2f}"])
    for network, ratio in found["channels_last"].items():
        rows.append([f"Tent, channels-last, {network} px", "contiguous", f"{ratio:.2f}"])
    what = f"Tent, freed memory kept, {memory['model']} at {memory['size']} px"
    rows.append([what, "returned", f"{memory['ratio']:.2f}"])
    return markdown(["", "against", "time"], rows)


def precision_table(evidence: Evidence) -> str:
    rows = [
        [method, *(f"{100 * by[name]:.2f}" for name in ("float32", "bfloat16"))]
        for method, by in evidence.benchmark("precision")["accuracy"].items()
    ]
    return markdown(["digits, accuracy %", "float32", "bfloat16"], rows)


def speed_text(evidence: Evidence) -> str:
    """The page in short: what was missed, then what was reached."""

    def span(name: str) -> str:
        ratios = sorted(_steps(evidence, name)[m]["ratio"] for m in ONE_BACKWARD)
        return f"{ratios[0]:.2f} to {ratios[-1]:.2f}"

    head = evidence.benchmark("head")
    soaked = evidence.benchmark("soak")["methods"]
    late = sorted(m["late_over_early"] for m in soaked if len(set(_modes(m))) == 1)
    reached = (
        "A step of Tent, ETA, S-FRET or G-FRET costs one forward and one backward without weight"
        " gradients. Against that floor, written by hand in plain PyTorch, ResNet-18 steps take"
        f" {span('steps-contiguous')} of the time in the floor's own layout and"
        f" {span('steps-resnet18')} in the default one. After the backbone G-FRET is"
        f" {head['textbook_over_gfret']:.0f} times as fast as its textbook form at"
        f" {head['classes']} classes and {head['features']} features. A step after 20,000 takes"
        f" {late[0]:.2f} to {late[-1]:.2f} of one after 50."
    )
    return f"{paragraph(targets_text(evidence))}\n\n{paragraph(reached)}"


def machines_text(evidence: Evidence) -> str:
    """Where the times come from, and how noisy they are."""
    found: dict[str, list[str]] = {}
    for name in TIMED:
        made = evidence.benchmark(name)["provenance"]
        where = f"{made['cores']} cores of {made['processor']}, torch {made['torch']}"
        found.setdefault(where, []).append(name)
    most, *others = sorted(found, key=lambda where: -len(found[where]))
    titles = {"soak": "the long stream"}
    elsewhere = "".join(
        f"; {', '.join(titles.get(name, name) for name in found[where])}: {where}"
        for where in others
    )
    spreads = sorted(
        step["spread"]
        for name in ("resnet18", "contiguous")
        for step in _steps(evidence, f"steps-{name}").values()
    )
    return paragraph(
        f"The machine: {most}{elsewhere}; {evidence.benchmark('steps-resnet18')['threads']} threads"
        " unless stated otherwise. It is noisy: the quartiles of a step's time lie"
        f" {100 * spreads[0]:.0f} to {100 * spreads[-1]:.0f} % of the median apart. Milliseconds"
        " are only for orientation; ratios are of two things timed in turns, in one process."
    )
