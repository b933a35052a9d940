"""`fretta run`, `fretta tune`, `fretta evaluate` and `fretta results`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConfigError, FrettaError
from .app import say
from .carry import carry_out
from .data import Root
from .specs import (
    Device,
    Fit,
    Jobs,
    Mean,
    Model,
    NumClasses,
    Size,
    Std,
    Threads,
    Weights,
    Where,
    check_file,
    data_spec,
    find_input,
    jobs_of,
    known_methods,
    settings_of,
    source_spec,
)
from .tables import print_rows


def register(app: typer.Typer) -> None:
    for command in (run, tune, evaluate, results):
        app.command()(command)


def run(
    suite: Annotated[str, typer.Argument(help="A suite of the package, or a TOML file.")],
    store: Where = "results",
    data: Root = None,
    jobs: Jobs = 1,
    ray: Annotated[
        str | None,
        typer.Option(help="Run on Ray: auto or an address; alone or local: start it here."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Repeat what is there.")] = False,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method or label (several times).")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only this case (several times).")] = None,
    seed: Annotated[
        list[int] | None, typer.Option(min=0, help="These seeds (several times).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Images per domain.")] = None,
    threads: Threads = None,
    device: Device = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images, per run.")] = 0,
    checkpoint: Annotated[
        float, typer.Option(min=0, help="Seconds between checkpoints of a run.")
    ] = 60.0,
) -> None:
    """Run a suite; results that are in the store are kept, and an interrupted suite goes on."""
    from ..experiment.execute import Options
    from ..experiment.suite import load_suite

    chosen = load_suite(suite).restricted(method, seed, limit, case)
    options = Options(threads, device, workers, checkpoint)
    carry_out(chosen.title, jobs_of(chosen, data), store, jobs, ray, force, options)


def tune(
    suite: Annotated[str, typer.Argument(help="A suite of the package, or a TOML file.")],
    method: Annotated[str, typer.Option(help="The method to tune.")],
    rule: Annotated[
        str,
        typer.Option(help="What decides: oracle, first-domain, extra-corruptions or label-free."),
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(help="NAME=V,V instead of the paper's grids (several times)."),
    ] = None,
    product: Annotated[
        bool, typer.Option("--product", help="Every combination; else one field after another.")
    ] = False,
    optuna: Annotated[
        int | None, typer.Option(min=1, help="Sample so many settings with Optuna.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the best settings as a suite fragment.")
    ] = None,
    store: Where = "results",
    data: Root = None,
    jobs: Jobs = 1,
    seed: Annotated[list[int] | None, typer.Option(min=0, help="Seeds (several times).")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Images per domain.")] = None,
    threads: Threads = None,
    device: Device = None,
) -> None:
    """Choose hyper-parameters by a stated rule; an interrupted search goes on."""
    from ..experiment.execute import Options
    from ..experiment.store import Store
    from ..experiment.suite import load_suite
    from ..experiment.tune import fragment, parse_grid, write_fragment
    from ..experiment.tune import tune as search

    if product and optuna is not None:
        raise ConfigError("--product and --optuna are two searches; give one of them")
    check_file(out, "--out")
    result = search(
        load_suite(suite).restricted(limit=limit),
        method,
        Store(store),
        rule=rule,
        grid=parse_grid(grid) if grid else None,
        product=product,
        optuna_trials=optuna,
        root=data,
        seeds=tuple(seed or [0]),
        parallel=jobs,
        options=Options(threads, device),
        on_trial=lambda trial: say(
            f"trial {trial.number}: {trial.text}: "
            + ("failed" if trial.score is None else f"{trial.score:.4f}")
        ),
    )
    say(f"\n{result.runs_done} runs done, {result.runs_found} were there. Best by {result.rule}:\n")
    say(fragment(result))
    if out is not None:
        say(f"wrote {write_fragment(result, out)}")


def evaluate(
    model: Model,
    data: Annotated[
        str, typer.Option(help="A data set (pacs, digits, ...) or a folder of class folders.")
    ],
    method: Annotated[list[str], typer.Option(help="Method (several times).")],
    root: Annotated[
        Path | None, typer.Option(help="Where the data set is; else FRETTA_DATA.")
    ] = None,
    weights: Weights = None,
    num_classes: NumClasses = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Hyper-parameter, as lr=1e-3 (several times).")
    ] = None,
    domain: Annotated[
        list[str] | None, typer.Option(help="Only this domain (several times).")
    ] = None,
    corruption: Annotated[
        str | None, typer.Option(help="Corrupt on the fly: all, fog, ...")
    ] = None,
    severity: Annotated[
        int | None, typer.Option(min=1, max=5, help="Of --corruption; default: 5.")
    ] = None,
    order: Annotated[str, typer.Option(help="continual, independent, mixed, ...")] = "continual",
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of the stream.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Images per domain.")] = None,
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    fit: Fit = None,
    source: Annotated[
        str | None, typer.Option(help="Data set of source images, for methods that need some.")
    ] = None,
    store: Where = "results",
    jobs: Jobs = 1,
    force: Annotated[bool, typer.Option("--force", help="Repeat what is there.")] = False,
    threads: Threads = None,
    device: Device = None,
) -> None:
    """Evaluate methods on one data set and keep the results in the store."""
    from ..experiment.execute import Options
    from ..experiment.suite import one_off
    from ..models.opening import open_model

    if severity is not None and corruption is None:
        raise ConfigError(f"--severity {severity} has no effect without --corruption; give both")
    known_methods(method)
    opened = open_model(model, weights, num_classes, root=root)
    how = find_input(opened, size, mean, std, fit)
    suite = one_off(
        model={**opened.as_case(), "preprocessing": how},
        data=data_spec(data, corruption, severity or 5, opened.net, how),
        methods={name: settings_of(set_ or []) for name in method},
        protocol={
            "order": order,
            "batch_size": batch_size,
            "seeds": [seed],
            **({"limit": limit} if limit is not None else {}),
            **({"domains": domain} if domain else {}),
        },
        source=source_spec(source, how),
    )
    base = Path(data) if Path(data).is_dir() and root is None else root
    carry_out(suite.title, jobs_of(suite, base), store, jobs, None, force, Options(threads, device))


def results(
    store: Annotated[str, typer.Argument(help="Folder or fsspec URL.")] = "results",
    suite: Annotated[str | None, typer.Option(help="Only this suite.")] = None,
    case: Annotated[str | None, typer.Option(help="Only this case.")] = None,
    method: Annotated[str | None, typer.Option(help="Only this method or label.")] = None,
    status: Annotated[str | None, typer.Option(help="done or failed.")] = None,
    level: Annotated[str, typer.Option(help="methods, runs or domains.")] = "methods",
    form: Annotated[str, typer.Option("--format", help="table, csv, json or parquet.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
) -> None:
    """List, filter and export what a store holds."""
    from ..experiment.results import FORMATS, LEVELS, export, rows_of, select
    from ..experiment.store import Store

    if out is not None and form == "table":
        form = out.suffix.removeprefix(".")  # a table is for people; a file says its format
        if form not in FORMATS:
            raise ConfigError(
                f"--out {str(out)!r} does not say a format; end it in .csv, .json or .parquet, or"
                " give --format"
            )
    for option, value, valid in (
        ("--format", form, FORMATS),
        ("--status", status or "done", ("done", "failed")),
        ("--level", level, LEVELS),
    ):
        if value not in valid:
            raise ConfigError(f"{option} {value!r} is unknown; choose from {', '.join(valid)}")
    check_file(out, "--out")
    damaged: list[str] = []
    everything = list(Store(store).records(damaged))
    records = select(everything, suite, case, method, status)
    if not records and not damaged:
        raise FrettaError(_nothing(store, everything, suite, case, method, status))
    rows = rows_of(records, level)
    if form == "table":
        print_rows(rows, level)
    else:
        text = export(rows, form, out)
        if text is not None:
            typer.echo(text, nl=False)
    for line in damaged:
        say(f"damaged, will be redone by `fretta run`: {line}")


def _nothing(store: str, records: list[Any], *wanted: str | None) -> str:
    """Why nothing is listed, and what there is."""
    if not records:
        return f"{store!r} has no records; `fretta run digits --store {store}` makes some"
    there = {
        "--suite": {r.tags.get("suite") for r in records},
        "--case": {r.tags.get("case") for r in records},
        "--method": {r.tags.get("label") for r in records} | {r.run["method"] for r in records},
        "--status": {r.status for r in records},
    }
    given = [(o, w) for o, w in zip(there, wanted, strict=True) if w is not None]
    for option, value in given:
        if value not in there[option]:
            found = ", ".join(sorted(map(str, there[option])))
            return f"{store!r} has no record with {option} {value!r}; it has {found}"
    return f"{store!r} has no record with " + " and ".join(f"{o} {v!r}" for o, v in given)
