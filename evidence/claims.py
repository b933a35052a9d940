"""The paper's claims, one by one. Verdicts follow from the records by the rules written here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fretta.methods import GFRET

from .committed import METHODS, Evidence, by_seed, compare, mean
from .network import SUITE, rates
from .pages import K_RATE, LAMS, SEARCHED, figures, k_grid, lam_grid, redundancies
from .speed import networks
from .tables import markdown, starred, there, titled
from .tuning import accuracy

HOLDS, PARTLY, NOT = "holds", "holds partly", "does not hold here"
OPEN = "cannot be told here"
SPREAD = 0.5  # points over K1 and K2
RATE = GFRET.lr
ABLATIONS = {"CIFAR-10-C": "gfret-parts", "CIFAR-10-C, ResNet-18": "gfret-parts-resnet18"}


@dataclass(frozen=True)
class Claim:
    """One of the paper's claims, what we found, and how to find it again."""

    says: str
    verdict: str
    numbers: Sequence[str]
    command: str
    figure: str  # drawn by `fretta report evidence`, or the table that shows it


def verdict(findings: Sequence[bool | None]) -> str:
    """From what was found in each place: yes, no, or None where noise hides the answer."""
    if findings and all(findings):
        return HOLDS
    if any(findings):
        return PARTLY
    return NOT if any(f is False for f in findings) else OPEN


def better(gap: float, distinct: bool) -> bool | None:
    return gap > 0 if distinct else None


def claims(evidence: Evidence) -> list[Claim]:
    makers: tuple[Callable[[Evidence], Claim], ...] = (
        *(redundancy_grows, methods_reduce_it, graph_beats_simple, best_or_second),
        *(label_shift, cheapest, parts_help, insensitive, any_lam, separates),
    )
    return [make(evidence) for make in makers]


def redundancy_grows(evidence: Evidence) -> Claim:
    """At severity 5, NRS of the source model is above that of clean images."""
    words, grown, total = [], 0, 0
    for data, points in redundancies(evidence).items():
        mine = [p for p in points if p["method"] == "source"]
        clean = next(p["nrs"] for p in mine if p["severity"] == 0)
        most = {p["corruption"]: p["nrs"] for p in mine if p["severity"] == 5}
        higher = [name for name, nrs in most.items() if nrs > clean]
        steps = {s: [p["nrs"] for p in mine if p["severity"] == s] for s in range(1, 6)}
        averages = " → ".join(f"{sum(v) / len(v):.3f}" for v in steps.values())
        lower = ", ".join(sorted(set(most) - set(higher)))
        words.append(
            f"{data}: above clean ({clean:.3f}) for {len(higher)} of {len(most)} corruptions"
            + (f" (not {lower})" if lower else "")
            + f"; mean over severities 1 to 5: {averages}"
        )
        grown, total = grown + len(higher), total + len(most)
    return Claim(
        "Redundancy grows with the level of corruption",
        HOLDS if grown == total else PARTLY if grown > total / 2 else NOT,
        words,
        "fretta analyze redundancy (see docs/analysis.md)",
        figures(evidence, "severity-methods", "NRS and accuracy against severity"),
    )


def methods_reduce_it(evidence: Evidence) -> Claim:
    """Against bn, whose statistics both methods use too: NRS lower, accuracy higher."""
    words: list[str] = []
    yes: list[bool | None] = []
    for name, (suite, case) in there(evidence).items():
        for method in ("s-fret", "g-fret"):
            nrs = difference(evidence, suite, case, method, "bn", "nrs_after")
            accuracy = difference(evidence, suite, case, method, "bn")
            if nrs is None or accuracy is None:
                continue
            yes.append(nrs[0] < 0 and better(*accuracy))
            words.append(
                f"{titled(evidence, name)}, {method}: NRS {nrs[0]:+.4f}, accuracy"
                f" {starred(*accuracy)} against bn"
            )
    return Claim(
        "S-FRET and G-FRET reduce redundancy, and accuracy rises with it",
        verdict(yes),
        words,
        "fretta run (each suite) --store evidence",
        figures(evidence, "nrs", "NRS before and after"),
    )


def graph_beats_simple(evidence: Evidence) -> Claim:
    words, yes = [], []
    for name, (suite, case) in there(evidence).items():
        gap = difference(evidence, suite, case, "g-fret", "s-fret")
        if gap is not None:
            yes.append(better(*gap))
            words.append(f"{titled(evidence, name)} {starred(*gap)}")
    return Claim(
        "G-FRET beats S-FRET",
        verdict(yes),
        ["g-fret minus s-fret: " + ", ".join(words)],
        "fretta run (each suite) --store evidence",
        figures(evidence, "cost", "accuracy against cost"),
    )


def best_or_second(evidence: Evidence) -> Claim:
    words, yes = [], []
    for name, (suite, case) in there(evidence).items():
        scores = {m: evidence.accuracy(suite, m, case) for m in METHODS}
        known = {m: mean(s) for m, s in scores.items() if len(s)}
        if "g-fret" not in known:
            continue
        ranked = sorted(known, key=lambda m: -known[m])
        place = ranked.index("g-fret") + 1
        tests = [compare(scores["g-fret"], scores[m]) for m in known if m != "g-fret"]
        sure = [test.difference for test in tests if test is not None and test.distinct]
        behind, ahead = (sum(sign * gap > 0 for gap in sure) for sign in (1, -1))
        judged = len(ranked) >= len(METHODS) - 1  # all but the slowest
        if judged:
            yes.append(True if behind >= len(tests) - 1 else False if ahead >= 2 else None)
        words.append(
            f"{titled(evidence, name)} {place} of {len(ranked)} (best: {ranked[0]}"
            + ("" if judged else "; too few to judge")
            + ")"
        )
    return Claim(
        "G-FRET is best or second",
        verdict(yes),
        ["place by mean accuracy, of the default variants that were run: " + ", ".join(words)],
        "fretta run (each suite) --store evidence",
        "the one of claim 3",
    )


def label_shift(evidence: Evidence) -> Claim:
    """The paper: under label shift S-FRET falls behind bn, G-FRET stays ahead of it."""
    suite, words = "cifar10c-shared-lt", []
    found = {}
    for case in ("IF=1", "IF=10", "IF=100"):
        s = difference(evidence, suite, case, "s-fret", "bn")
        g = difference(evidence, suite, case, "g-fret", "bn")
        assert s is not None
        assert g is not None
        found[case] = (s, g)
        words.append(f"{case}: s-fret {starred(*s)}, g-fret {starred(*g)}")
    simple, graph = found["IF=100"]
    parts = [better(-simple[0], simple[1]), better(*graph)]
    said = {True: "it is behind", False: "it is ahead", None: "no difference beyond noise"}
    words[-1] += f" (S-FRET: {said[parts[0]]})"
    return Claim(
        "S-FRET fails under label shift, G-FRET does not",
        verdict(parts),
        ["against bn, " + "; ".join(words)],
        "fretta run cifar10c-shared-lt --store evidence",
        "[the table](#cifar-10-c-lt)",
    )


def cheapest(evidence: Evidence) -> Claim:
    """Steps of all methods taken in turns, in floors; noise is the larger spread of the two."""
    words: list[str] = []
    yes: list[bool | None] = []
    for network in [*evidence.benchmark("steps-resnet18")["grid"], *networks(evidence)]:
        costs = {s["name"]: s["ratio"] for s in network["steps"] if s["name"] in METHODS[2:]}
        spread = {s["name"]: s["spread"] for s in network["steps"]}
        order = sorted(costs, key=lambda m: costs[m])
        other = next(m for m in order if m != "s-fret")
        gap = costs["s-fret"] / costs[other] - 1
        yes.append(better(-gap, abs(gap) > max(spread["s-fret"], spread[other])))
        steps = ", ".join(f"{m} {costs[m]:.2f}" for m in order)
        words.append(f"{network['model']}, {network['batch']} images: {steps}")
    return Claim(
        "S-FRET is the cheapest trained method",
        verdict(yes),
        ["time of a step, in turns, against the same floor:", *words],
        "python benchmarks/steps.py --only resnet18 (and the other networks)",
        "[the table](performance.md#a-step-against-the-floor)",
    )


def parts_help(evidence: Evidence) -> Claim:
    """Leaving a part out must cost accuracy."""
    words: list[str] = []
    yes: list[bool | None] = []
    for title, suite in ABLATIONS.items():
        gaps = {
            f"{part}{lam}": difference(evidence, suite, "", f"all{lam}", f"without_{part}{lam}")
            for lam in ("", " lam=1")
            for part in ("L_R(A)", "L_R(R)", "L_P(A)", "L_P(R)")
        }
        found = {part.replace("lam", "λ"): gap for part, gap in gaps.items() if gap is not None}
        yes += [better(*gap) for gap in found.values()]
        each = ", ".join(f"{part} {starred(*gap)}" for part, gap in found.items())
        one = " (1)" if len(by_seed(evidence.accuracy(suite, "all"))) == 1 else ""
        if found:
            words.append(f"{title}{one}, all parts minus all but one, λ = 0.01 unless said: {each}")
    return Claim(
        "Each part of G-FRET helps",
        verdict(yes),
        words,
        "fretta run gfret-parts --store evidence (and gfret-parts-resnet18)",
        "[the table](#ablation-λ-k1-and-k2)",
    )


def insensitive(evidence: Evidence) -> Claim:
    """The spread over K1 × K2."""
    words, spreads = [], []
    for title in SEARCHED:
        values = list(k_grid(evidence, title).values())
        if len(values) < 2:
            continue
        spreads.append(max(values) - min(values))
        words.append(
            f"{title}: {min(values):.2f} to {max(values):.2f} % over {len(values)} settings of K1"
            f" and K2 (spread {spreads[-1]:.2f} points, below {SPREAD:g} is insensitive; lr"
            f" {K_RATE:g})"
        )
    return Claim(
        "Insensitive to K1 and K2",
        HOLDS if max(spreads) < SPREAD else PARTLY if min(spreads) < SPREAD else NOT,
        words,
        "fretta tune cifar10c-shared --method g-fret --rule oracle --grid k1=... (evidence/run.sh)",
        "[the table](#ablation-λ-k1-and-k2)",
    )


def any_lam(evidence: Evidence) -> Claim:
    """Every λ that was searched, at the default rate, against the source model."""
    words: list[str] = []
    yes: list[bool | None] = []
    for title, (suite, *_) in SEARCHED.items():
        source = 100 * mean(evidence.accuracy(suite, "source"))
        found = lam_grid(evidence, title)
        if not found or source != source:
            continue
        yes += [value > source for (lr, _), value in found.items() if lr == RATE]
        words.append(
            f"{title}, λ {LAMS[0]:g} to {LAMS[-1]:g} (the paper: 1e-6 to 100):"
            f" {min(found.values()):.2f} to {max(found.values()):.2f} % over {len(found)} settings"
            f" of λ and lr; source, on the longer stream of the suite, {source:.2f} %"
        )
    long = {
        (row, lr): accuracy(record)
        for row, runs in rates(evidence).items()
        if row.startswith("g-fret")
        for lr, record in runs.items()
    }
    source = 100 * mean(evidence.accuracy(SUITE, "source"))
    yes += [value > source for (_, lr), value in long.items() if lr == RATE]
    if long:
        each = ", ".join(f"{row} lr {lr:g} {value:.2f} %" for (row, lr), value in long.items())
        words.append(f"CIFAR-10-C, ResNet-18, whole stream, source {source:.2f} %: {each}")
    words.append(f"judged at the default rate, {RATE:g}; a large rate can destroy any model")
    return Claim(
        "G-FRET is above the source model for a wide range of λ",
        verdict(yes),
        words,
        "fretta tune cifar10c-shared --method g-fret --rule oracle --grid lam=... (run.sh)",
        "[the table](#ablation-λ-k1-and-k2)",
    )


def separates(evidence: Evidence) -> Claim:
    """Silhouette of the true classes in feature space; a hundredth is noise."""
    words: list[str] = []
    yes: list[bool | None] = []
    for name, analysis in sorted(evidence.analyses.items()):
        if analysis["kind"] != "tsne":
            continue
        found = {panel["method"]: panel["silhouette"] for panel in analysis["panels"]}
        gap = found["g-fret"] - found["s-fret"]
        yes.append(better(gap, abs(gap) > 0.01))
        shown = ", ".join(f"{method} {value:.3f}" for method, value in found.items())
        words.append(f"{name.removeprefix('tsne-')}: silhouette of the classes {shown}")
    return Claim(
        "G-FRET separates classes better than S-FRET",
        verdict(yes),
        words,
        "fretta analyze tsne (evidence/run.sh)",
        "drawn by `fretta report evidence`",
    )


def difference(
    evidence: Evidence, suite: str, case: str, first: str, second: str, measure: str = "accuracy"
) -> tuple[float, bool] | None:
    """The paired difference, and whether it is beyond noise; None without a common seed."""
    a, b = (evidence.accuracy(suite, m, case, None, measure) for m in (first, second))
    test = compare(a, b)
    return None if test is None else (test.difference, test.distinct)


def claims_table(evidence: Evidence) -> str:
    rows = [[c.says, f"**{c.verdict}**"] for c in claims(evidence)]
    return markdown(["the paper says", "here"], rows)


def claims_text(evidence: Evidence) -> str:
    parts = []
    for number, c in enumerate(claims(evidence), 1):
        lines = [f"### {number}. {c.says}: {c.verdict}", ""]
        lines += [f"- {text}" for text in c.numbers]
        where = c.figure if c.figure.startswith("!") else f"Figure: {c.figure}."
        lines += ["", f"Command: `{c.command}`.", "", where]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
