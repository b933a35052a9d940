"""summary.html: what a run came to, on one page."""

from __future__ import annotations

import json

from ..adapter import Adapter
from ..data.listing import shown
from ..estimate.words import how_measured
from .curves import Watched, picture, read_health, short
from .html import bullets, class_table, document, e, percent, section, share_table, table
from .opened import Opened
from .outputs import HEALTH, PREDICTIONS, WEIGHTS
from .plan import Plan
from .result import Outcome

CURVES = {  # caption, unit
    "entropy": ("mean entropy of the predictions", "nats"),
    "marginal_entropy": ("entropy of the mean prediction (dashed: its reference)", "nats"),
    "changed": ("predictions that differ from the source model's", "%"),
    "nrs": ("redundancy of the features, from 0 to 1", "NRS"),
    "drift": ("distance of the adapted weights from the original ones", "% of their norm"),
    "update_norm": ("size of each update", "L2 norm"),
    "pass_rate": ("images that passed the method's filter", "%"),
}
CLASSES = 15  # whose shares are listed


def page(plan: Plan, opened: Opened, adapter: Adapter, outcome: Outcome) -> str:
    seen = read_health(plan.out / HEALTH, [*CURVES, "reference_marginal"])
    title = f"{plan.model} adapted with {plan.method}"
    body = [
        f"<h1>{e(title)}</h1>",
        f"<p class='lead'>{e(_lead(plan, outcome))}</p>",
        _tiles(outcome, seen),
        *section("Does it help?", _help(outcome)),
        *section(
            "Accuracy by class",
            class_table(["source model", "adapted"], outcome.names, outcome.tally.by_class),
        ),
        *section("Health along the run", _health(seen, outcome)),
        *section("Predicted labels", _labels(opened, outcome)),
        *section("What the guard did", _guard(plan, seen)),
        *section("The adapted weights", _home(opened, outcome)),
        *section("Files that could not be read", _unreadable(outcome)),
        *section("Remarks", bullets(outcome.remarks)),
        *section("Settings", _settings(plan, opened, adapter)),
    ]
    return document(title, body)


def _lead(plan: Plan, outcome: Outcome) -> str:
    t = outcome.tally
    state = "" if outcome.complete else " The run was interrupted; --resume goes on."
    return (
        f"{t.images:,} images from {plan.data if plan.data != '-' else 'the standard input'} in"
        f" {t.batches:,} batches of {plan.batch_size}.{state}"
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
    """The verdict first; where labels are known it is the measured one."""
    t, lines = outcome.tally, outcome.verdict_lines()
    if not lines:
        return ""
    first, *rest = (line[:1].upper() + line[1:] + "." for line in lines)
    parts = [f"<p><b>{e(first)}</b></p>", *(f"<p>{e(line)}</p>" for line in rest)]
    if outcome.only_source:
        note = f"All of {t.compared:,} predictions that were compared are the source model's."
    elif (measured := outcome.measured) is not None:
        note = (
            f"Measured on {t.source_labeled:,} images whose folders name their classes:"
            f" right answers gained {t.gained:,}, lost {t.lost:,}. {how_measured(measured.level)}"
        )
    else:
        note = (
            f"From {t.compared:,} images that the source model saw too; an estimate, not a"
            " measurement: label a few hundred images if much depends on it."
        )
    return "".join(parts) + f"<p>{e(note)}</p>"


def _health(seen: Watched, outcome: Outcome) -> str:
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
    if outcome.why_source and seen.marks:
        note += "<p>Where the source model predicted, the curves show the adaptation set aside.</p>"
    return f"{note}<div class='figures'>{''.join(figures)}</div>" if figures else ""


def _labels(opened: Opened, outcome: Outcome) -> str:
    t = outcome.tally
    before = {c: n / max(1, t.compared) for c, n in t.source.items()}
    after = {c: n / t.images for c, n in t.adapted.items()}
    some = "" if t.compared == t.images else f" (of {t.compared:,} sampled images)"
    shares = share_table(outcome.names, before, after, (f"source model{some}", "adapted"))
    return f"<p>Labels: {e(opened.labels.origin)}.</p>{shares}"


def _guard(plan: Plan, seen: Watched) -> str:
    if plan.guard == "none":
        return "<p>No guard was asked for.</p>"
    if not seen.events:
        return f"<p>Policy {e(plan.guard)}: nothing to do in {seen.batches:,} batches.</p>"
    rows = [[str(batch), action, reason] for batch, action, reason in seen.events]
    more = sum(seen.actions.values()) - len(rows)
    note = f"<p>{more:,} more are in {HEALTH}.</p>" if more > 0 else ""
    return f"<p>Policy {e(plan.guard)}.</p>{table(['batch', 'action', 'reason'], rows)}{note}"


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
    statistics = (
        f"Batch norms that used batch statistics got running ones from the last {done.images:,}"
        " images, so that the model works on single images. "
        if done.images
        else "They are the original ones. "
        if outcome.why_source
        else ""
    )
    text = (
        f"{WEIGHTS} has the names of your model's own weights. {statistics}The written weights"
        f" {done.text()}, spread over the run. {done.advice(outcome.tally.images)}"
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
    return table(["file", "why"], rows) + note


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
        *([["class shares", _shares(opened, opened.prior)]] if opened.prior is not None else []),
        ["device", str(opened.device)],
    ]
    return table(["setting", "value"], rows)


def _shares(opened: Opened, prior: list[float]) -> str:
    largest = sorted(zip(prior, opened.labels.names, strict=True), key=lambda pair: -pair[0])
    listed = ", ".join(f"{name} {percent(share)}" for share, name in largest[:CLASSES])
    return listed + (", ..." if len(largest) > CLASSES else "")
