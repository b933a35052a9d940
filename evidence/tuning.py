"""What each selection rule would have chosen, from the trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from fretta.experiment.records import Record
from fretta.experiment.tune import Rule, score
from fretta.methods import REGISTRY

from .committed import METHODS, Evidence
from .prose import paragraph
from .tables import DASH, markdown

TUNED = ("tent", "eta", "eata", "sar", "tsd", "tipi", "s-fret", "g-fret")
ONLY_LR = ("lam", "k1", "k2")  # trials that change something else are not about the rate


def view(evidence: Evidence, suite: str, method: str, rule: Rule) -> dict[float, Record]:
    """By learning rate, the trials that a rule may look at, with all other settings as usual."""
    found = evidence.trial(suite, method)
    default = REGISTRY[method]().resolved(10, quiet=True)
    usual = {name: getattr(default, name, None) for name in ONLY_LR}
    if rule is Rule.EXTRA_CORRUPTIONS:
        chosen = [r for r in found if r.run["data"].get("corruption") == "extra"]
    elif rule is Rule.FIRST_DOMAIN:
        chosen = [r for r in found if _first(r)]
    else:
        chosen = [r for r in found if not _first(r) and r.run["data"].get("corruption") != "extra"]
    chosen = [r for r in chosen if all(r.settings.get(k) == v for k, v in usual.items())]
    return dict(sorted({float(r.settings["lr"]): r for r in chosen}.items()))


def _first(record: Record) -> bool:
    if record.run["data"]["name"] == "pacs":  # each case is one domain
        return True
    return bool(record.run["order_options"].get("domains"))


def best(trials: dict[float, Record], rule: Rule) -> float | None:
    scores = {lr: score(rule, [r]) or -1e9 for lr, r in trials.items()}
    return max(scores, key=lambda lr: scores[lr]) if scores else None


def rules_table(evidence: Evidence, suite: str, rules: tuple[Rule, ...]) -> str:
    """Per method: accuracy over the rates, what each rule chooses, and what that gives."""
    rows = []
    for method in TUNED:
        everything = view(evidence, suite, method, Rule.ORACLE)
        row = [method]
        for rule in rules:
            lr = best(view(evidence, suite, method, rule), rule)
            if lr is None:
                row.append(DASH)
            elif lr in everything:
                row.append(f"{lr:g}: {accuracy(everything[lr]):.2f}")
            else:
                row.append(f"{lr:g}")
        rows.append(row)
    return markdown(["method", *(str(r.value) for r in rules)], rows)


def rates_table(evidence: Evidence, suite: str, rule: Rule) -> str:
    """Accuracy by learning rate: how sensitive a method is."""
    views = {m: view(evidence, suite, m, rule) for m in METHODS if m in TUNED}
    return rates_markdown({m: trials for m, trials in views.items() if trials})


def rates_markdown(rows: Mapping[str, Mapping[float, Record]]) -> str:
    """A row for each method, a column for each rate, the best of a row in bold."""
    all_rates = sorted({lr for trials in rows.values() for lr in trials})
    cells = []
    for title, trials in rows.items():
        values = {lr: accuracy(r) for lr, r in trials.items()}
        top = max(values.values()) if len(values) > 1 else None
        texts = {lr: f"**{v:.2f}**" if v == top else f"{v:.2f}" for lr, v in values.items()}
        cells.append([title, *(texts.get(lr, DASH) for lr in all_rates)])
    return markdown(["method", *(f"{lr:g}" for lr in all_rates)], cells)


def accuracy(record: Record) -> float:
    return 100 * float(record.overall["mean_over_domains"])


# ---- which score without labels ------------------------------------------------------------------

SCORES: dict[str, Callable[[float, float, float], float]] = {
    "−H": lambda e, h, nrs: -h,
    "−NRS": lambda e, h, nrs: -nrs,
    "ln E − H": lambda e, h, nrs: math.log(e) - h,
    "2 ln E − H − NRS": lambda e, h, nrs: 2 * math.log(e) - h - nrs,
    "**4 ln E − H**": lambda e, h, nrs: 4 * math.log(e) - h,
}


def _lost(evidence: Evidence, scored: Callable[[float, float, float], float]) -> dict[str, float]:
    """Points lost against the best rate, by benchmark and method."""
    lost = {}
    for suite, title in (("digits-all", "digits"), ("cifar10c-shared", "CIFAR-10-C")):
        for method in TUNED:
            trials = view(evidence, suite, method, Rule.ORACLE)
            values = {lr: _scored(r, scored) for lr, r in trials.items()}
            picked = max(values, key=lambda lr: values[lr])
            best_one = max(map(accuracy, trials.values()))
            lost[f"{title}: {method}"] = best_one - accuracy(trials[picked])
    return lost


def scores_table(evidence: Evidence) -> str:
    """Points lost against the best rate when a score chooses it."""
    found = {name: _lost(evidence, scored) for name, scored in SCORES.items()}
    rows = [
        [name, *(f"{x:.1f}" for x in lost.values()), f"{max(lost.values()):.1f}"]
        for name, lost in found.items()
    ]
    return markdown(["score", *next(iter(found.values())), "worst"], rows)


def scores_text(evidence: Evidence) -> str:
    """The largest loss of each score, the worst first."""
    found = {name: _lost(evidence, scored) for name, scored in SCORES.items()}
    worst = {name.strip("*"): max(lost, key=lambda k: lost[k]) for name, lost in found.items()}
    values = {name.strip("*"): max(lost.values()) for name, lost in found.items()}
    order = sorted(values, key=lambda name: -values[name])
    words = (f"{name} {values[name]:.1f} ({worst[name]})" for name in order)
    return paragraph(
        f"Lost at worst: {'; '.join(words)}. A quantity that a method itself minimizes can be a bad"
        " judge of it, so NRS is left out, and diversity, which none of these methods"
        " maximizes, weighs most."
    )


def _scored(record: Record, scored: Callable[[float, float, float], float]) -> float:
    """Averaged over domains; a run that diverged scores lowest."""
    keys = ("predicted_classes", "entropy", "nrs_after")
    if any(row[k] is None for row in record.rows for k in keys):
        return -math.inf
    values = [scored(*(row[k] for k in keys)) for row in record.rows]
    return sum(values) / len(values)


# ---- the defaults of the library -----------------------------------------------------------------

CANDIDATES = (1e-5, 1e-4, 1e-3, 5e-3)
START = {m: 1e-4 if m in ("tsd", "s-fret", "g-fret") else 1e-3 for m in TUNED}
HONEST = (  # without the labels that are reported: held-out corruptions, or the first domain
    ("cifar10c-shared", Rule.EXTRA_CORRUPTIONS),
    ("cifar10c-shared", Rule.FIRST_DOMAIN),
    ("digits-all", Rule.EXTRA_CORRUPTIONS),
    ("digits-all", Rule.FIRST_DOMAIN),
    ("pacs-shared", Rule.FIRST_DOMAIN),
)


def gains(evidence: Evidence, method: str) -> dict[float, list[float]]:
    """By rate: points above the starting rate, on each benchmark as each rule sees it."""
    views = [view(evidence, suite, method, rule) for suite, rule in HONEST]
    usual = START[method]
    return {lr: [accuracy(v[lr]) - accuracy(v[usual]) for v in views] for lr in CANDIDATES}


def chosen_rate(evidence: Evidence, method: str) -> float:
    """The starting rate, unless another is better somewhere and worse nowhere."""
    found = {lr: each for lr, each in gains(evidence, method).items() if min(each) >= 0}
    best_mean = max(sum(each) for each in found.values())
    if best_mean == 0:
        return START[method]
    return min(lr for lr, each in found.items() if sum(each) == best_mean)


def defaults_table(evidence: Evidence) -> str:
    """Mean gain over the starting rate, and the worst of the five; bold is the default."""
    rows = []
    for method in TUNED:
        best_rate, cells = chosen_rate(evidence, method), []
        for lr, each in gains(evidence, method).items():
            text = f"{sum(each) / len(each):+.2f} (worst {min(each):+.2f})"
            text = "start" if lr == START[method] else text
            cells.append(f"**{text}**" if lr == best_rate else text)
        rows.append([method, *cells])
    return markdown(["method", *(f"{lr:g}" for lr in CANDIDATES)], rows)
