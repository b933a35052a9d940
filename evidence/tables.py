"""The tables of the pages, as Markdown, from the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mode

from pandas import DataFrame, concat

from fretta.experiment.suite import load_suite
from fretta.report.render import DASH, SIGNS, show
from fretta.report.significance import rank

from .committed import METHODS, SPANS, VARIANTS, Evidence, by_seed, compare, mean, paper_value

__all__ = ["BENCHMARKS", "DASH", "NOT_RUN", "WORSE", "markdown", "percent", "points", "there"]
__all__ += ["FEWER", "MARGIN", "titled"]

NOT_RUN = "Not run yet."
WORSE, MARGIN = "▼", 0.5  # by how many points below the source model; red on the site
FEWER = "°"  # seeds than most methods have
TAIL = "cifar10c-shared-lt"
LAYERNORM = "digits-layernorm"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return NOT_RUN
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def percent(scores: DataFrame, mark: str = "") -> str:
    """Mean ± sample deviation over seeds; bold is the highest, † what cannot be told from it."""
    values = 100 * by_seed(scores)
    text = show(values.mean(), "percent", values.std())
    return f"**{text}**" if mark == "best" else text + SIGNS.get(mark, "")


def _marked(grid: Sequence[Sequence[DataFrame]]) -> list[list[str]]:
    """The cells of a table, the highest of each column and its ties marked."""
    marks = [
        rank(concat(dict(enumerate(column)), names=["row"]))[0]
        for column in zip(*grid, strict=True)
    ]
    return [
        [percent(scores, marks[j].get(i, "")) for j, scores in enumerate(row)]
        for i, row in enumerate(grid)
    ]


def starred(gap: float, distinct: bool) -> str:
    """A difference in points; * where it is beyond noise. Two bare stars would be emphasis."""
    return f"{100 * gap:+.2f}" + (r"\*" if distinct else "")


def points(first: DataFrame, second: DataFrame) -> str:
    """The paired difference."""
    test = compare(first, second)
    return DASH if test is None else starred(test.difference, test.distinct)


def accuracy_table(
    evidence: Evidence, suite: str, columns: Sequence[tuple[str, Sequence[str]]]
) -> str:
    """Methods × (title, domains), the gain over bn of the last column, and the number of seeds."""
    labels = evidence.labels(suite)
    grid = [[evidence.accuracy(suite, la, "", d) for _, d in columns] for la in labels]
    bn = evidence.accuracy(suite, "bn", "", columns[-1][1])
    rows = []
    for label, row, cells in zip(labels, grid, _marked(grid), strict=True):
        last = DASH if label == "bn" else points(row[-1], bn)
        rows.append([label, *cells, last, _seeds(row)])
    return markdown(["method", *(title for title, _ in columns), "over bn", "seeds"], rows)


def corruption_table(evidence: Evidence, suite: str) -> str:
    return accuracy_table(evidence, suite, list(SPANS.items()))


def pacs_table(evidence: Evidence) -> str:
    domains = ("art_painting", "cartoon", "photo")
    columns = [(d, (d,)) for d in domains]
    return accuracy_table(evidence, "pacs-shared", [*columns, ("mean", domains)])


def case_table(evidence: Evidence, suite: str, columns: Mapping[str, tuple[str, str]]) -> str:
    """Methods × (case, measure) by title; ▼ is more than half a point below the source model."""
    labels = evidence.labels(suite)
    if "source" not in labels:
        return NOT_RUN
    grid = [
        [evidence.accuracy(suite, label, case, None, measure) for case, measure in columns.values()]
        for label in labels
    ]
    source, rows = grid[labels.index("source")], []
    for label, row, cells in zip(labels, grid, _marked(grid), strict=True):
        below = [_below(scores, base) for scores, base in zip(row, source, strict=True)]
        cells = [cell + f" {WORSE}" * low for cell, low in zip(cells, below, strict=True)]
        rows.append([label, *cells, _seeds(row)])
    return markdown(["method", *columns, "seeds"], rows)


def _below(scores: DataFrame, base: DataFrame) -> bool:
    test = compare(scores, base)
    return test is not None and 100 * test.difference < -MARGIN


def tail_table(evidence: Evidence) -> str:
    """Long-tailed streams: over images, and where classes are uneven over classes too."""
    columns = {
        "IF=1": ("IF=1", "accuracy"),
        "IF=10": ("IF=10", "accuracy"),
        "IF=10 over classes": ("IF=10", "accuracy_macro"),
        "IF=100": ("IF=100", "accuracy"),
        "IF=100 over classes": ("IF=100", "accuracy_macro"),
    }
    return case_table(evidence, TAIL, columns)


def layernorm_table(evidence: Evidence) -> str:
    """Networks without batch norms, on the streams of their suite."""
    cases = [case.name for case in load_suite(LAYERNORM).cases]
    columns = {case.replace("/", ", "): (case, "accuracy") for case in cases}
    return case_table(evidence, LAYERNORM, columns)


def rare_text(evidence: Evidence) -> str:
    """Long-tailed streams: what the default gains over images and loses over classes."""
    words = []
    for case in ("IF=100", "IF=10"):
        means = []
        for measure, over in (("accuracy", "images"), ("accuracy_macro", "classes")):
            found = {
                m: evidence.accuracy(TAIL, m, case, None, measure)
                for m in ("source", "bn", "stein", "auto")
            }
            shown = (f"`{m}` {100 * mean(s):.1f}" for m, s in found.items() if not s.empty)
            means.append(f"over {over} {', '.join(shown)}")
        words.append(f"{case}: {'; '.join(means)}")
    return f"Long-tailed CIFAR-10-C, accuracy in percent. {'. '.join(words)}."


def _seeds(row: Sequence[DataFrame]) -> str:
    counts = sorted({len(by_seed(scores)) for scores in row if len(scores)})
    return "-".join(str(n) for n in (counts if len(counts) < 2 else (counts[0], counts[-1])))


def variants_table(evidence: Evidence) -> str:
    """Released minus paper, on every benchmark."""
    rows = []
    there = {
        name: (suite, case)
        for name, (suite, case) in BENCHMARKS.items()
        if any(label.endswith("(released)") for label in evidence.labels(suite, case))
    }
    for method in VARIANTS:
        row = [method]
        for suite, case in there.values():
            paper = evidence.accuracy(suite, method, case)
            row.append(points(evidence.accuracy(suite, f"{method} (released)", case), paper))
        rows.append(row)
    return markdown(["released minus paper", *there], rows)


# What a reader calls it: (suite, case or domain). Empty where a suite has one setup.
BENCHMARKS: dict[str, tuple[str, str]] = {
    "CIFAR-10-C": ("cifar10c-shared", ""),
    "CIFAR-10-C, all images": ("cifar10c-shared-full", ""),
    "CIFAR-10-C, ResNet-18": ("cifar10c-resnet18", ""),
    "CIFAR-10-C-LT, IF=100": ("cifar10c-shared-lt", "IF=100"),
    "PACS art_painting": ("pacs-shared", "art_painting"),
    "PACS cartoon": ("pacs-shared", "cartoon"),
    "PACS photo": ("pacs-shared", "photo"),
    "ImageNet-sample-C": ("imagenet-shared", ""),
    "digits": ("digits-all", ""),
}
PAPER = {  # table, data set and column of the paper, ResNet-18
    "CIFAR-10-C, all images": ("IC", "CIFAR-10-C", "1-15"),
    "PACS art_painting": ("DG", "PACS", "art_painting"),
    "ImageNet-sample-C": ("IC", "ImageNet-C", "1-15"),
}


def there(evidence: Evidence) -> dict[str, tuple[str, str]]:
    """The benchmarks that were run, if only in part."""
    return {name: place for name, place in BENCHMARKS.items() if evidence.of(*place)}


def titled(evidence: Evidence, name: str) -> str:
    """The name of a benchmark; (1) says that most default variants have one seed."""
    suite, case = BENCHMARKS[name]
    seeds = [len(by_seed(evidence.accuracy(suite, method, case))) for method in METHODS]
    return f"{name} (1)" if 2 * seeds.count(1) > sum(n > 0 for n in seeds) else name


def results_table(evidence: Evidence) -> str:
    """Every benchmark in a column. The highest mean is bold; ° has fewer seeds than most."""
    methods = (*METHODS, "auto")
    rows: list[list[str]] = [[f"`{method}`"] for method in methods]
    for suite, case in there(evidence).values():
        scores = [evidence.accuracy(suite, method, case) for method in methods]
        seeds = [len(by_seed(found)) for found in scores]
        usual = mode(n for n in seeds if n)
        means = [mean(found) for found in scores]
        best = max((m for m, n in zip(means, seeds, strict=True) if n >= usual), default=None)
        for row, value, n in zip(rows, means, seeds, strict=True):
            cell = f"{100 * value:.1f}" if n else DASH
            row.append(f"**{cell}**" if value == best else cell + f" {FEWER}" * (0 < n < usual))
    return markdown(["method", *(titled(evidence, name) for name in there(evidence))], rows)


def summary_table(evidence: Evidence) -> str:
    """Ours and the paper's side by side, each with its gain over its own source model."""
    narrow = ("PACS cartoon", "PACS photo")  # wide enough without them
    shown = [name for name in there(evidence) if name not in narrow]
    head = ["method"]
    for name in shown:
        head += [titled(evidence, name)] + (["the paper's"] if name in PAPER else [])
    rows = []
    for method in METHODS:
        row = [f"`{method}`"]
        for name in shown:
            suite, case = BENCHMARKS[name]
            ours, base = (evidence.accuracy(suite, m, case) for m in (method, "source"))
            test = compare(ours, base)
            gain = "" if test is None or method == "source" else f" ({100 * test.difference:+.1f})"
            row.append(DASH if ours.empty else f"{100 * mean(ours):.1f}{gain}")
            if name in PAPER:
                row.append(_paper_cell(name, method))
        rows.append(row)
    return markdown(head, rows)


def _paper_cell(benchmark: str, method: str) -> str:
    table, data, column = PAPER[benchmark]
    value, source = (paper_value(table, data, "ResNet-18", m, column) for m in (method, "source"))
    if value is None:
        return DASH
    gain = "" if source is None or method == "source" else f" ({value - source:+.1f})"
    return f"{value:.1f}{gain}"


def beaten(evidence: Evidence) -> str:
    """Where a baseline is above G-FRET: said first."""
    lines = []
    for name, (suite, case) in there(evidence).items():
        mine = evidence.accuracy(suite, "g-fret", case)
        if mine.empty:
            continue
        above = []
        for method in METHODS:
            if method in ("g-fret", "s-fret"):
                continue
            theirs = evidence.accuracy(suite, method, case)
            test = compare(theirs, mine)
            if test is not None and test.difference > 0:
                above.append((test.difference, f"{method} {points(theirs, mine)}"))
        words = ", ".join(text for _, text in sorted(above, reverse=True)) or "none"
        lines.append(f"- **{titled(evidence, name)}** (g-fret {100 * mean(mine):.2f} %): {words}")
    return "\n".join(lines)
