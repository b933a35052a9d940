"""summary.html: one page that needs nothing else, readable on light and dark screens.

Everything that comes from outside (names of files, labels, settings) passes through `e`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape

from ..adapter import Adapter
from .curves import Watched, picture, read_health, short
from .listing import shown
from .opened import Opened
from .outputs import HEALTH, PREDICTIONS, WEIGHTS
from .plan import Plan
from .result import Outcome
from .style import STYLE

CURVES = {  # caption, unit
    "entropy": ("mean entropy of the predictions", "nats"),
    "marginal_entropy": ("entropy of the mean prediction (dashed: its reference)", "nats"),
    "changed": ("predictions that differ from the source model's", "%"),
    "nrs": ("redundancy of the features, from 0 to 1", "NRS"),
    "drift": ("distance of the adapted weights from the original ones", "% of their norm"),
    "update_norm": ("size of each update", "L2 norm"),
    "pass_rate": ("images that passed the method's filter", "%"),
}
CLASSES = 15  # shown in the table of labels


def e(value: object) -> str:
    """Text for HTML; bytes that are no text are shown as escapes."""
    return escape(str(value).encode("utf-8", "backslashreplace").decode())


def page(plan: Plan, opened: Opened, adapter: Adapter, outcome: Outcome) -> str:
    seen = read_health(plan.out / HEALTH, [*CURVES, "reference_marginal"])
    title = f"{plan.model} adapted with {plan.method}"
    body = [
        f"<h1>{e(title)}</h1>",
        f"<p class='lead'>{e(_lead(plan, outcome))}</p>",
        _tiles(outcome, seen),
        *_section("Does it help?", _help(outcome)),
        *_section("Health along the run", _health(seen)),
        *_section("Predicted labels", _labels(opened, outcome)),
        *_section("What the guard did", _guard(plan, seen)),
        *_section("Take it home", _home(opened, outcome)),
        *_section("Files that could not be read", _unreadable(outcome)),
        *_section("Remarks", _list(outcome.remarks)),
        *_section("Settings", _settings(plan, opened, adapter)),
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src"
        " 'unsafe-inline'\">"
        f"<title>{e(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def _section(title: str, content: str) -> list[str]:
    return [f"<section><h2>{e(title)}</h2>{content}</section>"] if content else []


def _lead(plan: Plan, outcome: Outcome) -> str:
    t = outcome.tally
    state = "" if outcome.complete else " The run was interrupted; --resume goes on."
    return (
        f"{t.images:,} images from {plan.data if plan.data != '-' else 'the standard input'} in"
        f" {t.batches:,} batches of {plan.batch_size}.{state}"
    )


def percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def points(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:+.1f}"  # + 0.0: never -0.0


FEW = 32  # images compared, below which no estimate is printed


def verdict(outcome: Outcome) -> str:
    """One sentence without labels: does adapting help?"""
    found = outcome.estimate
    if found is None or found["samples"] == 0:
        return ""
    if found["samples"] < FEW:
        return (
            f"estimated without labels: too few images were compared ({found['samples']});"
            " --compare-source takes all"
        )
    word = {True: "adapting helps", False: "adapting hurts", None: "cannot tell"}[found["helps"]]
    return (
        f"estimated without labels: {points(found['change'])} points of accuracy"
        f" ({points(found['low'])} to {points(found['high'])}): {word}"
    )


def _tiles(outcome: Outcome, seen: Watched) -> str:
    t = outcome.tally
    tiles = [("images", f"{t.images:,}")]
    if outcome.accuracy is not None:
        tiles.append(("accuracy before", percent(outcome.source_accuracy)))
        tiles.append(("accuracy after", percent(outcome.accuracy)))
    changed = percent(t.changed / t.compared if t.compared else None)
    tiles.append((f"predictions changed, of {t.compared:,} compared", changed))
    if outcome.exported is not None:
        tiles.append(("same label from the written weights", percent(outcome.exported.agreement)))
    tiles.append(
        ("batches the guard acted on", f"{sum(seen.actions.values()):,} / {seen.batches:,}")
    )
    if t.unreadable:
        tiles.append(("unreadable", f"{t.unreadable:,}"))
    cells = (f"<div><b>{e(value)}</b><span>{e(name)}</span></div>" for name, value in tiles)
    return f"<div class='tiles'>{''.join(cells)}</div>"


def _help(outcome: Outcome) -> str:
    t, parts = outcome.tally, []
    if outcome.accuracy is not None and outcome.source_accuracy is not None:
        change = outcome.accuracy - outcome.source_accuracy
        parts.append(
            f"Measured on {t.labelled:,} images whose folders name their classes:"
            f" {percent(outcome.source_accuracy)} before, {percent(outcome.accuracy)} after"
            f" ({points(change)} points)."
        )
    if verdict(outcome):
        parts.append(
            verdict(outcome)[:1].upper()
            + verdict(outcome)[1:]
            + f". From {t.compared:,} images that the source model saw too; an estimate, not a"
            " measurement: label a few hundred images if much depends on it."
        )
    return "".join(f"<p>{e(part)}</p>" for part in parts)


def _health(seen: Watched) -> str:
    figures = []
    for name, (caption, unit) in CURVES.items():
        if name not in seen.curves:
            continue
        curves = [seen.curves[name]]
        if name == "marginal_entropy" and "reference_marginal" in seen.curves:
            curves.append(seen.curves["reference_marginal"])
        if unit.startswith("%"):
            curves = [[None if v is None else 100 * v for v in curve] for curve in curves]
        values = [v for v in curves[0] if v is not None]
        drawn = picture(curves, seen.marks, caption, unit, seen.batches)
        figures.append(
            f"<figure>{drawn}<figcaption>{e(caption)}<br>"
            f"<small>first {short(values[0])} · last {short(values[-1])} · lowest"
            f" {short(min(values))} · highest {short(max(values))}</small></figcaption></figure>"
        )
    note = "<p>Red lines: the guard acted.</p>" if seen.marks else ""
    return f"{note}<div class='figures'>{''.join(figures)}</div>" if figures else ""


def _labels(opened: Opened, outcome: Outcome) -> str:
    t, names = outcome.tally, opened.labels.names
    found = sorted(t.adapted.keys() | t.source.keys())
    shares = [
        (c, t.source.get(c, 0) / max(1, t.compared), t.adapted.get(c, 0) / t.images) for c in found
    ]
    shares = sorted(shares, key=lambda row: (-max(row[1:]), row[0]))[:CLASSES]
    top = max(max(before, after) for _, before, after in shares)
    rows = [
        f"<tr><td>{e(names[c])}</td>{_bar(before, top, 'before')}{_bar(after, top, 'after')}</tr>"
        for c, before, after in shares
    ]
    rest = len(found) - len(shares)
    some = "" if t.compared == t.images else f" (of {t.compared:,} sampled images)"
    note = f"<p>{rest:,} more classes were predicted less often.</p>" if rest > 0 else ""
    return (
        f"<p>Labels: {e(opened.labels.origin)}.</p><table><thead><tr><th>label</th>"
        f"<th>source model{some}</th><th>adapted</th></tr></thead><tbody>{''.join(rows)}</tbody>"
        f"</table>{note}"
    )


def _bar(share: float, top: float, kind: str) -> str:
    width = 100 * share / top if top else 0.0
    return (
        f"<td><div class='bar'><i class='{kind}' style='width:{0.7 * width:.1f}%'></i>"
        f"{percent(share)}</div></td>"
    )


def _guard(plan: Plan, seen: Watched) -> str:
    if plan.guard == "none":
        return "<p>No guard was asked for.</p>"
    if not seen.events:
        return f"<p>Policy {e(plan.guard)}: nothing to do in {seen.batches:,} batches.</p>"
    rows = [[str(batch), action, reason] for batch, action, reason in seen.events]
    more = sum(seen.actions.values()) - len(rows)
    note = f"<p>{more:,} more are in {HEALTH}.</p>" if more > 0 else ""
    return f"<p>Policy {e(plan.guard)}.</p>{_table(['batch', 'action', 'reason'], rows)}{note}"


def _home(opened: Opened, outcome: Outcome) -> str:
    done = outcome.exported
    if done is None:
        return ""
    code = (
        "from safetensors.torch import load_file\n\n"
        "model = ...  # your network, built as always\n"
        f'model.load_state_dict(load_file("{WEIGHTS}"))\n'
        "model.eval()"
    )
    text = (
        f"{WEIGHTS} has the names of your model's own weights. Batch norms, if the method uses"
        f" batch statistics, got running statistics from the last {done.images:,} images, so that"
        f" the model works on single images. The written weights {done.text()}, spread over the"
        f" run. {done.advice(outcome.tally.images)}"
    )
    files = f"Prediction of every image: {PREDICTIONS}. Health of every batch: {HEALTH}."
    files += f" Images: {opened.preprocessing.text()}."
    return f"<p>{e(text)}</p><pre>{e(code)}</pre><p>{e(files)}</p>"


def _unreadable(outcome: Outcome) -> str:
    t = outcome.tally
    if not t.unreadable:
        return ""
    rows = [[shown(name), why] for name, why in t.first_unreadable]
    more = t.unreadable - len(rows)
    note = f"<p>{more:,} more are in {PREDICTIONS}.</p>" if more > 0 else ""
    return _table(["file", "why"], rows) + note


def _settings(plan: Plan, opened: Opened, adapter: Adapter) -> str:
    rows = [
        ["model", opened.spec],
        ["weights", f"{plan.weights or plan.model} (SHA-256 {opened.digest or 'none'})"],
        ["method", plan.method],
        ["hyper-parameters", json.dumps(adapter.hyperparameters)],
        ["images", opened.preprocessing.text()],
        ["order", f"shuffled, seed {plan.seed}" if opened.shuffled else "as listed"],
        ["batch size", str(plan.batch_size)],
        ["guard", plan.guard],
        ["device", str(opened.device)],
    ]
    return _table(["setting", "value"], rows)


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    top = "".join(f"<th>{e(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{e(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _list(items: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{e(i)}</li>" for i in items) + "</ul>" if items else ""
