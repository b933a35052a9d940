"""Tables of single questions: the switches and parts of G-FRET, λ, K1 and K2, redundancy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fretta.experiment.records import Record
from fretta.experiment.suite import load_suite

from .committed import CORRUPTIONS, Evidence, by_seed, mean
from .tables import DASH, markdown, percent, points, there, titled

METHODS = ("source", "bn", "tent", "s-fret", "g-fret")
SUITES = (
    *("cifar10c-shared", "cifar10c-shared-full", "cifar10c-shared-lt", "cifar10c-shared-tea"),
    *("cifar10c-shared-correlated", "cifar10c-shared-guarded", "cifar10c-resnet18"),
    *("pacs-shared", "imagenet-shared"),
    *("digits-all", "digits-layernorm"),
    *("gfret-switches", "gfret-parts", "gfret-parts-resnet18", "rates-resnet18"),
)
# what a reader calls it: suite, corruption, images per domain of the search
SEARCHED: dict[str, tuple[str, str | None, int]] = {
    "CIFAR-10-C": ("cifar10c-shared", "all", 256),
    "CIFAR-10-C, ResNet-18": ("cifar10c-resnet18", "all", 128),
    "digits": ("digits-all", None, 256),
}
LOOKED_AT = {"digits": "digits", "cifar10": "CIFAR-10", "resnet18": "CIFAR-10, ResNet-18"}
HALF = ("CIFAR-10-C, ResNet-18",)  # computed in bfloat16
LAM, LAMS = 0.01, (0.001, 0.01, 0.1, 1.0)  # the default, and those tried
K_RATE = 1e-3  # at the default, a tenth of it, hardly anything moves in a search this short


def switches_table(evidence: Evidence) -> str:
    """One difference at a time, from both ends."""
    suite = "gfret-switches"
    ends = {name: evidence.accuracy(suite, name) for name in ("paper", "released")}
    fields = [
        label.removeprefix("paper, ").removesuffix(" as released")
        for label in evidence.labels(suite)
        if label.startswith("paper, ")
    ]
    rows = []
    for field in fields:
        there = evidence.accuracy(suite, f"paper, {field} as released")
        back = evidence.accuracy(suite, f"released, {field} as in the paper")
        rows.append([f"`{field}`", percent(there), points(there, ends["paper"])])
        rows[-1] += [percent(back), points(back, ends["released"])]
    rows.append(["all of them", percent(ends["released"]), points(ends["released"], ends["paper"])])
    rows[-1] += [percent(ends["paper"]), points(ends["paper"], ends["released"])]
    head = ["difference", "paper, this one as released", "minus paper"]
    return markdown([*head, "released, this one as in the paper", "minus released"], rows)


def parts_table(evidence: Evidence, suite: str, lams: Sequence[float]) -> str:
    """The rows of the paper's ablation."""
    found = [x for x in evidence.labels(suite) if x != "source" and not x.endswith("lam=1")]
    names = sorted(found, key=lambda name: (name == "all", name != "bn"))
    bn, rows = evidence.accuracy(suite, "bn"), []
    for name in names:
        rows.append([name.replace("without_", "without ")])
        for lam in lams:
            mine = evidence.accuracy(suite, name if lam == LAM else f"{name} lam={lam:g}")
            rows[-1] += [percent(mine), DASH if name == "bn" else points(mine, bn)]
        rows[-1].append(str(len(by_seed(evidence.accuracy(suite, name)))))
    heads = (head for lam in lams for head in (f"λ = {lam:g}", "over bn"))
    return markdown(["parts", *heads, "seeds"], rows)


def lam_grid(evidence: Evidence, title: str) -> dict[tuple[float, float], float]:
    """Accuracy by (lr, λ), on the stream of the search."""
    return {
        (r.settings["lr"], r.settings["lam"]): 100 * r.overall["mean_over_domains"]
        for r in searched(evidence, title)
        if (r.settings["k1"], r.settings["k2"]) == (100, 0.95)
    }


def lam_table(evidence: Evidence) -> str:
    """λ × lr on the streams of the search."""
    rows, lams = [], LAMS
    for title in SEARCHED:
        found = lam_grid(evidence, title)
        rates = sorted({lr for lr, lam in found if lam not in (LAM, None)})
        rows += [
            [f"{title}, lr {lr:g}", *(_number(found.get((lr, lam))) for lam in lams)]
            for lr in rates
        ]
    return markdown(["", *(f"λ = {lam:g}" for lam in lams)], rows)


def searched(evidence: Evidence, title: str) -> list[Record]:
    """Trials of G-FRET on the reported corruptions themselves, a few images of each."""
    suite, corruption, limit = SEARCHED[title]
    found = evidence.trial(suite, "g-fret", limit=limit, corruption=corruption)
    return [r for r in found if not r.run["order_options"].get("domains")]


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"


def k_grid(evidence: Evidence, title: str) -> dict[tuple[int, float], float]:
    """Accuracy by (K1, K2), on the stream of the search."""
    return {
        (r.settings["k1"], r.settings["k2"]): 100 * r.overall["mean_over_domains"]
        for r in searched(evidence, title)
        if (r.settings["lr"], r.settings["lam"]) == (K_RATE, LAM)
    }


def k_table(evidence: Evidence) -> str:
    """K1 × K2."""
    rows, k2s = [], (0.5, 0.8, 0.95, 1.0)
    for title in SEARCHED:
        found = k_grid(evidence, title)
        rows += [
            [f"{title}, K1 = {k1}", *(_number(found.get((k1, k2))) for k2 in k2s)]
            for k1 in sorted({k1 for k1, _ in found})
        ]
    return markdown(["", *(f"K2 = {k2:g}" for k2 in k2s)], rows)


def redundancies(evidence: Evidence) -> dict[str, list[dict[str, Any]]]:
    """Points of `fretta analyze redundancy`, by what was looked at."""
    names = {f"redundancy-{short}": title for short, title in LOOKED_AT.items()}
    there = evidence.analyses
    return {title: there[name]["points"] for name, title in names.items() if name in there}


def redundancy_table(evidence: Evidence) -> str:
    """NRS and accuracy against severity, over the 15 corruptions."""
    rows = []
    for title, points_of in redundancies(evidence).items():
        for method in METHODS:
            mine = [p for p in points_of if p["method"] == method]
            for value, digits, factor in (("nrs", 3, 1.0), ("accuracy", 1, 100.0)):
                row = [f"{title}, {method}: {'NRS' if value == 'nrs' else 'accuracy %'}"]
                for severity in range(6):
                    values = [p[value] for p in mine if p["severity"] == severity]
                    row.append(f"{factor * sum(values) / len(values):.{digits}f}")
                rows.append(row)
    return markdown(["", "clean", "1", "2", "3", "4", "5"], rows)


def mechanism_table(evidence: Evidence) -> str:
    """NRS of the batches in the two halves of a stream; of what was looked at step by step."""
    rows = []
    for name, title in LOOKED_AT.items():
        found = evidence.analyses.get(f"mechanism-{name}", {"curves": {}})
        for method, curve in found["curves"].items():
            known = [nrs for nrs in curve["nrs"] if nrs is not None]
            halves = known[: len(known) // 2], known[len(known) // 2 :]
            means = [f"{sum(values) / len(values):.4f}" for values in halves]
            right = 100 * sum(curve["right"]) / sum(found["images"])
            rows.append([f"{title}, {method}", *means, f"{right:.1f}"])
    table = markdown(["", "NRS, first half", "second half", "accuracy %"], rows)
    return "\n\n".join(filter(None, [table, figures(evidence, "mechanism", "step by step")]))


def figures(evidence: Evidence, kind: str, words: str) -> str:
    """Those of `fretta report` that docs/ has."""
    drawn = sorted((evidence.folder.parent / "docs" / "figures").glob(f"{kind}-*.png"))
    names = {path.name: path.stem.removeprefix(f"{kind}-") for path in drawn}
    return "\n\n".join(f"![{words}, {of}](figures/{file})" for file, of in names.items())


def nrs_table(evidence: Evidence) -> str:
    """At the end of each domain: NRS, against that of the source model, and accuracy."""
    rows = []
    for name, (suite, case) in there(evidence).items():
        for method in METHODS:
            before = evidence.accuracy(suite, "source", case, None, "nrs_after")
            after = evidence.accuracy(suite, method, case, None, "nrs_after")
            accuracy = evidence.accuracy(suite, method, case)
            if after.empty:
                continue
            change = mean(after) - mean(before)
            digits = 3 if name in HALF else 4
            rows.append([titled(evidence, name), method, f"{mean(after):.{digits}f}"])
            rows[-1] += [f"{change:+.{digits}f}", percent(accuracy)]
    return markdown(["benchmark", "method", "NRS", "minus source", "accuracy %"], rows)


def estimate_table(evidence: Evidence) -> str:
    """`fretta compare` where the truth was never looked at before."""
    rows = []
    for domain in ("cartoon", "photo"):
        text = (evidence.folder / "compare" / domain / "compare.json").read_text(encoding="utf-8")
        by_name = {m["method"]: m for m in json.loads(text)["methods"]}
        bn, source = by_name["bn"], by_name["source"]
        low, high, change = (100 * bn[k] for k in ("low", "high", "change"))
        true = 100 * (bn["accuracy"] - source["accuracy"])
        inside = "yes" if low <= true <= high else "**no**"
        verdict = bn.get("without_labels", bn["verdict"])
        rows.append([domain, verdict, f"{change:+.1f} ({low:+.1f} to {high:+.1f})"])
        rows[-1] += [f"{true:+.1f}", inside]
    return markdown(["PACS, bn", "verdict", "estimated change", "true", "inside"], rows)


def not_run(evidence: Evidence) -> str:
    """What the suites ask for and time did not allow."""
    seeds: dict[tuple[str, str, str], set[int]] = {}
    for r in evidence.records:
        where = r.tags["suite"], r.tags["case"], r.tags["label"]
        seeds.setdefault(where, set()).add(r.run["seed"])
    cases: dict[tuple[str, str], list[str]] = {}  # suite, what it misses -> its cases
    for name in SUITES:
        suite = load_suite(name)
        for case in suite.cases:
            found = {m.title: len(seeds.get((name, case.name, m.title), ())) for m in suite.methods}
            wanted = len(case.protocol["seeds"])
            missing = []
            for count in sorted({n for n in found.values() if n < wanted}):
                few = "; ".join(title for title, n in found.items() if n == count)
                missing.append(
                    f"    - {f'{count} of {wanted} seeds' if count else 'not run'}: {few}"
                )
            if missing:
                key = name, "\n".join(missing)
                cases.setdefault(key, []).append(case.name if len(suite.cases) > 1 else "")
    lines = [
        f"- {', '.join([f'`{name}`', *filter(None, found)])}\n{missing}"
        for (name, missing), found in cases.items()
    ]
    return "\n".join(lines) or "- nothing"


def digits_table(evidence: Evidence) -> str:
    """Seed 0 of the embedded benchmark, corruption by corruption."""
    rows = []
    for corruption in CORRUPTIONS:
        scores = [evidence.accuracy("digits-all", m, "", [corruption]) for m in METHODS]
        rows.append([corruption, *(f"{100 * by_seed(s)[0]:.1f}" for s in scores)])
    scores = [evidence.accuracy("digits-all", m) for m in METHODS]
    rows.append(["**mean**", *(f"{100 * by_seed(s)[0]:.1f}" for s in scores)])
    return markdown(["corruption", *METHODS], rows)


def provenance(evidence: Evidence) -> str:
    """What made the records."""
    records = [*evidence.runs, *evidence.trials]
    commits = sorted({str(r.provenance["commit"])[:7] for r in records})
    versions = {k: sorted({str(r.provenance[k]) for r in records}) for k in ("torch", "processor")}
    hours = sum(float(r.provenance["wall_seconds"]) for r in records) / 3600
    return (
        f"{len(evidence.runs)} results and {len(evidence.trials)} trials; {hours:.1f} hours of"
        f" one core; torch {', '.join(versions['torch'])} on {', '.join(versions['processor'])},"
        f" two runs side by side; commits {', '.join(commits)}."
    )
