"""`fretta analyze redundancy|mechanism|tsne|sensitivity`: measure what figures draw."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from . import options as opt
from .app import print_line, print_table
from .progress import progress_bar
from .run import open_case, run_jobs

if TYPE_CHECKING:
    from ..experiment.analysis import Setting

MODEL = opt.ModelOptions(model="digits")
DATA = opt.DataOptions(data="digits")
METHODS = opt.MethodOptions(method=["source", "bn", "tent", "s-fret", "g-fret"])


@dataclass(frozen=True)
class AnalysisOptions(opt.StoreOptions):
    source: opt.Source = None
    name: Annotated[
        str | None, typer.Option(help="Name in the store; default: kind and data set.")
    ] = None


ANALYSIS = AnalysisOptions()


def redundancy(
    model: opt.ModelOptions = MODEL,
    data: opt.DataOptions = DATA,
    methods: opt.MethodOptions = METHODS,
    stream: opt.StreamOptions = opt.StreamOptions(limit=128),
    severity: Annotated[
        list[float] | None,
        typer.Option(min=1, max=5, help="Severity (several times); default: 1 to 5."),
    ] = None,
    run: AnalysisOptions = ANALYSIS,
) -> None:
    """Redundancy and accuracy against severity, and the feature relation graph."""
    from ..experiment.analysis import redundancy_under_shift
    from ..experiment.analysis.redundancy import CORRUPTIONS, SEVERITIES, means

    _check(run)
    with progress_bar("redundancy") as advance:
        content = redundancy_under_shift(
            _setting(model, data, methods, stream, run, {}),
            stream.corruptions() or CORRUPTIONS,
            severity or SEVERITIES,
            advance,
        )
    print_line(f"\n{content['title']}, mean over {', '.join(content['corruptions'])}\n")
    found = means(content)
    levels = [row["severity"] for row in found[content["methods"][0]]]
    columns = ["", "method", *("clean" if s == 0 else f"severity {s:g}" for s in levels)]
    rows = [["NRS", m, *(_mean([r["nrs"]]) for r in found[m])] for m in found]
    rows += [["accuracy %", m, *(f"{100 * r['accuracy']:.2f}" for r in found[m])] for m in found]
    print_table(columns, rows)
    _save(content, run)


def mechanism(
    model: opt.ModelOptions = MODEL,
    data: opt.DataOptions = DATA,
    methods: opt.MethodOptions = METHODS,
    stream: opt.StreamOptions = opt.StreamOptions(limit=512),
    severity: opt.Severity = None,
    run: AnalysisOptions = ANALYSIS,
) -> None:
    """NRS, loss and accuracy of each method, step by step along a stream."""
    from ..experiment.analysis import mechanism as measure

    _check(run)
    with progress_bar("mechanism") as advance:
        content = measure(
            _setting(model, data, methods, stream, run, stream.shift(severity)), advance
        )
    print_line(
        f"\n{content['title']}: NRS in the two halves of the stream, accuracy over all of it\n"
    )
    rows = []
    for method, curve in content["curves"].items():
        half, nrs = max(len(curve["nrs"]) // 2, 1), curve["nrs"]
        accuracy = 100 * sum(curve["right"]) / sum(content["images"])
        rows.append([method, _mean(nrs[:half]), _mean(nrs[half:]), f"{accuracy:.2f}"])
    print_table(["method", "NRS, first half", "second half", "accuracy %"], rows)
    _save(content, run)


def _mean(values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    return f"{sum(known) / len(known):.4f}" if known else "–"


def tsne(
    model: opt.ModelOptions = MODEL,
    data: opt.DataOptions = DATA,
    methods: opt.MethodOptions = opt.MethodOptions(method=["source", "bn", "s-fret", "g-fret"]),
    stream: opt.StreamOptions = opt.StreamOptions(limit=128),
    domain: Annotated[str | None, typer.Option(help="Whose images; default: the first.")] = None,
    images: Annotated[int, typer.Option(min=10, help="How many are drawn.")] = 300,
    severity: opt.Severity = None,
    run: AnalysisOptions = ANALYSIS,
) -> None:
    """Features on a plane, before and after adaptation by each method."""
    from ..experiment.analysis import tsne as measure

    _check(run)
    with progress_bar("tsne") as advance:
        setting = _setting(model, data, methods, stream, run, stream.shift(severity))
        content = measure(setting, domain, images, advance)
    print_line(f"\n{content['title']}, {content['domain']}\n")
    for panel in content["panels"]:
        silhouette = "–" if panel["silhouette"] is None else f"{panel['silhouette']:.3f}"
        print_line(
            f"{panel['method']:8} silhouette of the classes {silhouette}, NRS {panel['nrs']:.4f},"
            f" accuracy {panel['accuracy']:.2%}"
        )
    _save(content, run)


def sensitivity(
    model: opt.ModelOptions = MODEL,
    data: opt.DataOptions = DATA,
    methods: opt.MethodOptions = opt.MethodOptions(method=["g-fret"]),
    stream: opt.StreamOptions = opt.StreamOptions(limit=128),
    lam: Annotated[str, typer.Option(help="Values of λ.")] = "1e-4,1e-2,1,100",
    lr: Annotated[str, typer.Option(help="Learning rates.")] = "1e-5,1e-4,1e-3,1e-2",
    k1: Annotated[str, typer.Option(help="Supports per class.")] = "1,10,100",
    k2: Annotated[str, typer.Option(help="Shares of the batch.")] = "0.5,0.8,1",
    domain: opt.Domains = None,
    severity: opt.Severity = None,
    run: opt.RunOptions = opt.RunOptions(),
) -> None:
    """G-FRET over λ × lr and K1 × K2. Its runs are records: what the store has is skipped.

    The paper's grids on its data are the suite of the same name: fretta run sensitivity.
    """
    from ..experiment.suite import jobs_on

    if methods.method != ["g-fret"]:
        given = ", ".join(methods.method)
        raise ConfigError(f"--method {given}: λ, K1 and K2 belong to g-fret; leave it out")
    supports = opt.numbers(k1, "--k1")
    if not all(v.is_integer() for v in supports):
        raise ConfigError(f"--k1 {k1!r} has fractions; write whole numbers such as 1,10,100")
    grids: list[dict[str, list[Any]]] = [
        {"lam": [*opt.numbers(lam, "--lam")], "lr": [*opt.numbers(lr, "--lr")]},
        {"k1": [int(v) for v in supports], "k2": [*opt.numbers(k2, "--k2")]},
    ]
    if (data.data, stream.corruption, domain) == ("digits", None, None):
        domain = ["gaussian_noise", "defocus_blur", "fog", "contrast"]  # enough for a first look
    fixed = opt.hyperparameters(methods.set_)
    case = open_case(model, data, None, **stream.shift(severity))
    entries: list[dict[str, dict[str, Any]]] = [{"source": {}}]
    entries += [{"g-fret": {"matrix": grid, **fixed}} for grid in grids]
    title = f"Sensitivity of g-fret on {data.data}"
    # `sensitivity` is the suite of the paper, with its data
    tags = {"suite": f"sensitivity-{_slug(data.data)}", "title": title}
    jobs = [
        replace(job, tags={**job.tags, **tags})
        for entry in entries
        for job in jobs_on(case, entry, **stream.protocol(domain))
    ]
    run_jobs(title, jobs, run)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "data"


def _setting(
    model: opt.ModelOptions,
    data: opt.DataOptions,
    methods: opt.MethodOptions,
    stream: opt.StreamOptions,
    run: AnalysisOptions,
    shift: dict[str, Any],
) -> Setting:
    import torch

    from ..experiment.analysis import Setting
    from ..parts.compute import find_device

    if run.threads is not None:
        torch.set_num_threads(run.threads)
    opt.check_methods(methods.method)
    case = open_case(model, data, run.source, **shift)
    if isinstance(case.source, str):
        raise ConfigError(f"--source {run.source}: an analysis needs a data set, not a folder")
    facts = {"spec": case.spec, "weights": case.weights, "num_classes": case.num_classes}
    return Setting(
        data={"name": case.data.name, **case.data.options},
        model={
            **{name: value for name, value in facts.items() if value is not None},
            **({"head": model.head} if model.head else {}),
            "preprocessing": case.preprocessing,
        },
        methods=methods.method,
        hyperparameters=opt.hyperparameters(methods.set_),
        root=case.root,
        folder=case.folder,
        source=case.source,
        order=stream.order,
        batch_size=stream.batch_size,
        seed=stream.seed,
        limit=stream.limit or None,
        device=str(find_device(run.device)),
    )


def _check(run: AnalysisOptions) -> None:
    """Refuse a name or a store that cannot be used before the work."""
    from ..experiment.store import Store, check_analysis_name

    if run.name is not None:
        check_analysis_name(run.name)
    Store(run.store).check()


def _save(content: dict[str, Any], run: AnalysisOptions) -> None:
    from ..experiment.store import Store

    chosen = run.name or f"{content['kind']}-{_slug(str(content['data']['name']))}"
    Store(run.store).put_analysis(chosen, content)
    print_line(f"\nkept as {chosen!r} in {run.store}; draw it: fretta report {run.store}")
