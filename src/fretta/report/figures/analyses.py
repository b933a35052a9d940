"""Figures of what `fretta analyze` measured: redundancy, relation graph, mechanism, t-SNE."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, Series

from ..palette import COLORS, INK, MARKERS, RED
from ..table import slug
from .draw import Canvas, Figure, plain, short_names
from .runs import domain_axis, spans_of

Analysis = dict[str, Any]


def _stem(kind: str, analysis: Analysis) -> str:
    """File name of a figure of an analysis, which is usually called after its kind already."""
    return f"{kind}-{slug(str(analysis['name']).removeprefix(str(analysis['kind'])))}"


def _data(analysis: Analysis) -> tuple[str, str]:
    return plain(analysis["data"]["name"]), plain(analysis["model"]["spec"])


# ---- redundancy and accuracy against severity, figure 1 ------------------------------------------


def severity_by_method(analysis: Analysis) -> DataFrame:
    """Mean over corruptions, by (method, severity)."""
    points = DataFrame(analysis["points"]).astype({"nrs": float})
    table = points.groupby(["method", "severity"])[["nrs", "accuracy"]].mean()
    return table.reindex([m for m in analysis["methods"] if m in table.index], level="method")


def severity_by_corruption(analysis: Analysis, method: str = "source") -> DataFrame:
    """One curve per corruption under one method; the clean data is where they all begin."""
    points = DataFrame(analysis["points"]).astype({"nrs": float})
    points = points[points["method"] == method].set_index(["corruption", "severity"])
    points = points[["nrs", "accuracy"]]
    rows = {
        (name, severity): values
        for name in analysis["corruptions"]
        for (corruption, severity), values in points.iterrows()
        if severity == 0 or corruption == name
    }
    table = DataFrame(rows).T
    table.index.names = ["corruption", "severity"]
    return table


def beyond_bn(nrs: Series) -> Series:
    """What methods that learn add to the statistics of the batch alone, which `bn` uses."""
    added = nrs.sub(nrs.loc["bn"], level="severity")
    return added.drop(["source", "bn"], level=0, errors="ignore").dropna()


def severity(analysis: Analysis) -> list[Figure]:
    """By method, and for the source model by corruption."""
    tables = {"method": severity_by_method(analysis)}
    if "source" in analysis["methods"]:
        tables["corruption"] = severity_by_corruption(analysis)
    return [_severity(analysis, kind, table) for kind, table in tables.items() if len(table)]


def _severity(analysis: Analysis, kind: str, table: DataFrame) -> Figure:
    name, model = _data(analysis)
    d = int(analysis.get("features") or 0)
    series = list(dict.fromkeys(table.index.get_level_values(0)))
    panels = {"normalized redundancy score": table["nrs"], "accuracy %": 100 * table["accuracy"]}
    if "bn" in series and len(added := beyond_bn(table["nrs"])):
        panels["NRS minus bn's, in thousandths: what learning adds"] = 1000 * added

    def paint(canvas: Canvas) -> None:
        heights = [5, 5, 3][: len(panels)]
        axes = canvas.axes(len(panels), 1, sharex=True, height_ratios=heights)
        for ax, (title, curves) in zip(axes, panels.items(), strict=True):
            ax.set_title(title)
            for label in dict.fromkeys(curves.index.get_level_values(0)):
                line, number = curves.loc[label], series.index(label)
                canvas.line(ax, line.index, line, label, number, 1.6, markers=True)
                for s, v in line.items():
                    canvas.point(ax, s, v, number, f"{label}, severity {s:g}: {v:.4g}")
        if len(axes) > 2:
            axes[2].axhline(0, color=INK, linewidth=0.8, alpha=0.6)
        axes[-1].set_xlabel("severity (0: clean)")
        axes[-1].set_xticks(sorted(set(table.index.get_level_values("severity"))))
        canvas.legend({label: n for n, label in enumerate(series)}, {})

    def ends(label: str) -> str:
        first, last = table.loc[label].iloc[0], table.loc[label].iloc[-1]
        severities = table.loc[label].index
        return (
            f"{plain(label)}: NRS {first['nrs']:.3f} at severity {severities[0]:g},"
            f" {last['nrs']:.3f} at {severities[-1]:g}; accuracy"
            f" {100 * first['accuracy']:.1f} % and {100 * last['accuracy']:.1f} %."
        )

    what = (
        f"mean over {', '.join(map(plain, analysis['corruptions']))}; each severity is one"
        f" {plain(analysis['order'])} stream that every method starts afresh"
        if kind == "method"
        else "the source model, one line per corruption"
    )
    numbers = table.reset_index()
    numbers.columns = [kind, "severity", "NRS", "accuracy %"]
    numbers.insert(3, "R_e", (numbers["NRS"] * d * (d - 1)).round(1))
    numbers["accuracy %"] = (100 * numbers["accuracy %"]).round(2)
    return Figure(
        name=_stem(f"severity-{kind}s", analysis),
        title=f"Redundancy against severity, by {kind}: {name}",
        caption=f"Normalized redundancy score and accuracy on {name}, {model}: {what}."
        f" {analysis['limit'] or 'all'} images per corruption in batches of"
        f" {analysis['batch_size']}; severity 0 is the clean data. The paper claims that redundancy"
        " grows with severity and that both FRET methods reduce it while accuracy rises.",
        alt=" ".join(ends(label) for label in series),
        numbers=numbers.round({"NRS": 4}),
        paint=paint,
        series=series,
        height=160 * len(panels) + 40,
    )


def relation(analysis: Analysis) -> Figure | None:
    """The feature relation graph |Z̃ᵀZ̃| on clean and on shifted images."""
    found = analysis.get("relation")
    if not found:
        return None
    name, model = _data(analysis)
    target = f"{plain(found['target']['corruption'])} {found['target']['severity']:g}"
    graphs = {"clean": np.asarray(found["clean"]), target: np.asarray(found["shifted"])}
    size, (before, after) = len(graphs["clean"]), found["nrs"]
    off = {k: g[~np.eye(len(g), dtype=bool)] for k, g in graphs.items()}

    def paint(canvas: Canvas) -> None:
        axes = canvas.axes(1, 2)
        for ax, (title, graph), score in zip(axes, graphs.items(), found["nrs"], strict=True):
            ax.set(title=f"{title}: NRS {score:.3f}", xticks=[], yticks=[])
            canvas.heat(ax, graph**2, RED)  # squared: near 1 the eye tells shades apart
            ax.set_aspect("equal")

    drawn = f"{size} of its {found['of']} features" if size < found["of"] else f"{size} features"
    return Figure(
        name=_stem("relation", analysis),
        title=f"Feature relation graph: {name}",
        caption=f"|Z̃ᵀZ̃| between {drawn} of the source model ({model}) on {found['images'][0]} clean"
        f" images of {name} and on the same number under {target}. Darker: two features say the"
        " same (the shade is the square). Features are ordered by likeness on the clean images, and"
        " in the same order on the right.",
        alt=f"The features are {'more' if after > before else 'less'} alike under {target}:"
        f" normalized redundancy {before:.3f} on clean images, {after:.3f} on shifted ones.",
        numbers=DataFrame(
            {
                "images": list(graphs),
                "number": found["images"],
                "mean |Z̃ᵀZ̃|": [round(float(g.mean()), 4) for g in off.values()],
                "share above 0.8 %": [
                    round(100 * float((g > 0.8).mean()), 2) for g in off.values()
                ],
                "NRS, all features": [round(score, 4) for score in found["nrs"]],
            }
        ),
        paint=paint,
        height=226,
    )


# ---- step by step, figure 3 ----------------------------------------------------------------------


def mechanism_curves(analysis: Analysis) -> dict[str, DataFrame]:
    """Panel -> a column per method, a row per step.

    NRS is taken relative to that of `bn`, if it ran: both see the same batch with statistics of
    its own, so that only what was learned remains, not which domain it is. Losses have scales of
    their own and are divided by their first value. Accuracy is that of all images so far, relative
    to `bn` as well.
    """
    curves = {m: DataFrame(analysis["curves"][m], dtype=float) for m in analysis["methods"]}
    images = np.cumsum(analysis["images"])
    nrs = DataFrame({m: c["nrs"] for m, c in curves.items()})
    right = DataFrame({m: 100 * c["right"].cumsum() / images for m, c in curves.items()})
    losses = {
        m: c["loss"] / c["loss"].dropna().iloc[0] for m, c in curves.items() if c["loss"].any()
    }
    # an entropy falls to a fraction of itself; beside it the paper's losses would be flat lines
    own = {m: v for m, v in losses.items() if m in ("s-fret", "g-fret")}
    if "bn" in curves:
        others = [m for m in curves if m not in ("source", "bn")]
        nrs, right = (t[others].sub(t["bn"], axis=0) for t in (nrs, right))
    return {"nrs": nrs, "loss": DataFrame(own or losses), "accuracy": right}


def mechanism(analysis: Analysis) -> Figure | None:
    """NRS, loss and accuracy against adaptation step."""
    panels = mechanism_curves(analysis)
    series = list(panels["nrs"])
    if not series or len(analysis["images"]) < 2:
        return None
    name, model = _data(analysis)
    curves = {m: analysis["curves"][m] for m in analysis["methods"]}
    relative = "bn" in curves
    spans = spans_of(analysis["domains"])
    steps, total = len(analysis["images"]), sum(analysis["images"])
    window = max(1, steps // 20)
    titles = {
        "nrs": "NRS minus bn's" if relative else "normalized redundancy score",
        "loss": "loss / first loss",
        "accuracy": "accuracy so far minus bn's, points" if relative else "accuracy so far %",
    }

    def paint(canvas: Canvas) -> None:
        axes = canvas.axes(3, 1, sharex=True)
        for ax, (panel, title) in zip(axes, titles.items(), strict=True):
            ax.set(title=title, xlim=(0, steps))
            table = panels[panel]
            if panel != "accuracy":
                table = table.rolling(window, min_periods=1).mean()
            for method in table:
                number, values = series.index(method), table[method].to_numpy()
                canvas.line(ax, np.arange(steps) + 0.5, values, method, number)
                for _, _, stop in spans:
                    text = f"{method}, step {stop}: {title} {values[stop - 1]:.4g}"
                    canvas.point(ax, stop - 0.5, values[stop - 1], number, text)
            if relative and panel != "loss":
                ax.axhline(0, color=INK, linewidth=0.8, alpha=0.6)
            for _, start, _ in spans[1:]:
                ax.axvline(start, color=INK, alpha=0.25, linewidth=0.6)
        domain_axis(canvas, axes[-1], spans, "step")
        canvas.legend({m: n for n, m in enumerate(series)}, {})

    rows = []
    for method, curve in curves.items():
        scores, losses = Series(curve["nrs"], dtype=float), Series(curve["loss"], dtype=float)
        half, losses = max(steps // 2, 1), losses.dropna()
        ends = [float(f"{losses.iloc[i]:.5g}") if len(losses) else None for i in (0, -1)]
        means = [round(part.mean(), 4) for part in (scores[:half], scores[half:])]
        rows.append((method, *means, *ends, round(100 * sum(curve["right"]) / total, 2)))
    numbers = DataFrame(
        rows,
        columns=[
            *("method", "NRS, first half", "NRS, second half"),
            *("first loss", "last loss", "accuracy %"),
        ],
    )
    minus = (" minus that of bn on the same batch", " minus that of bn") if relative else ("", "")
    reading = " Below zero at the top, above zero at the bottom: less redundancy, more right."
    return Figure(
        name=_stem("mechanism", analysis),
        title=f"Step by step: {name}",
        caption=f"Normalized redundancy score of each batch{minus[0]}, the loss relative to its"
        f" first value (of the FRET methods), and accuracy of all images so far{minus[1]}, against"
        f" the step, on {name}, {model}, batches of {analysis['batch_size']}; NRS and loss are"
        f" means of the last {window} steps.{reading if relative else ''}",
        alt="; ".join(
            f"{plain(m)}: NRS {first:.4f} in the first half of the stream and {second:.4f} in the"
            f" second, accuracy {accuracy:.1f} %"
            for m, first, second, _, _, accuracy in rows
        )
        + ".",
        numbers=numbers,
        paint=paint,
        series=series,
        height=470,
    )


# ---- t-SNE, figure 5 -----------------------------------------------------------------------------


def tsne(analysis: Analysis) -> Figure | None:
    """Features on a plane before and after adaptation."""
    panels = analysis["panels"][:6]
    if not panels:
        return None
    name, model = _data(analysis)
    labels: NDArray[Any] = np.asarray(analysis["labels"])
    short = short_names(map(str, analysis["classes"]), 12)
    silhouettes = ["–" if p["silhouette"] is None else f"{p['silhouette']:.2f}" for p in panels]

    def paint(canvas: Canvas) -> None:
        axes = canvas.axes(-(-len(panels) // 2), 2)
        titles = short_names([panel["method"] for panel in panels], 16)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        for ax, panel, score in zip(axes, panels, silhouettes, strict=False):
            accuracy = f"{100 * panel['accuracy']:.0f} %"
            ax.set_title(f"{titles[panel['method']]}: silhouette {score}, {accuracy}")
            ax.set(xticks=[], yticks=[], aspect="equal")
            ax.spines[:].set(visible=True, alpha=0.3)
            xy = np.asarray(panel["xy"], dtype=float)
            for which in np.unique(labels):
                # six colors, and every further six classes another marker
                shape = MARKERS[int(which) // len(COLORS) % len(MARKERS)]
                ax.plot(
                    *xy[labels == which].T,
                    linestyle="",
                    marker=shape,
                    color=COLORS[int(which) % len(COLORS)],
                    markersize=3.4,
                    alpha=0.85,
                    label=short[str(analysis["classes"][int(which)])],
                )
        if len(short) <= 12:
            handles = axes[0].get_legend_handles_labels()
            canvas.figure.legend(*handles, loc="outside lower center", ncols=5)

    return Figure(
        name=_stem("tsne", analysis),
        title=f"t-SNE of the features: {name}",
        caption=f"Features of the same {len(labels)} images of {plain(analysis['domain'])} ({name},"
        f" {model}) under the source model and after each method adapted along the whole stream;"
        " colors are the labels, which no method sees. t-SNE distorts distances: the silhouette"
        " (-1 to 1, cosine, in feature space) says how well classes are apart.",
        alt="Silhouette of the classes: "
        + "; ".join(f"{plain(p['method'])} {s}" for p, s in zip(panels, silhouettes, strict=True))
        + ".",
        numbers=DataFrame(
            {
                "method": [p["method"] for p in panels],
                "silhouette": Series([p["silhouette"] for p in panels], dtype=float).round(3),
                "NRS": [round(p["nrs"], 4) for p in panels],
                "accuracy %": [round(100 * p["accuracy"], 2) for p in panels],
            }
        ),
        paint=paint,
        height=40 + 220 * -(-len(panels) // 2),
    )


ANALYSES = {"redundancy": (severity, relation), "mechanism": (mechanism,), "tsne": (tsne,)}
