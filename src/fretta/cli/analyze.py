"""`fretta analyze redundancy|mechanism|tsne|sensitivity`: measure what figures draw."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .app import Commands, console, say, table
from .asked import Asked, with_options
from .carry import carry_out
from .progress import bar
from .specs import Jobs, jobs_of, numbers, settings_of

if TYPE_CHECKING:
    from ..experiment.suite import Suite

analyze = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Measure what the figures of the report show; without options, on the embedded digits.",
)


def register(app: typer.Typer) -> None:
    app.add_typer(analyze, name="analyze")


Name = Annotated[str | None, typer.Option(help="Name in the store; default: kind and data set.")]
Severity = Annotated[float, typer.Option(min=1, max=5, help="Of --corruption.")]
METHODS = ["source", "bn", "tent", "s-fret", "g-fret"]


# ---- the analyses ------------------------------------------------------------------------------


@analyze.command()
@with_options
def redundancy(
    asked: Asked,
    severity: Annotated[
        list[float] | None,
        typer.Option(min=1, max=5, help="Severity (several times); default: 1 to 5."),
    ] = None,
    name: Name = None,
) -> None:
    """Redundancy and accuracy against severity, and the feature relation graph."""
    redundancy_of(asked, severity, name)


def redundancy_of(
    asked: Asked, severity: list[float] | None = None, name: str | None = None
) -> None:
    from ..experiment.analysis import redundancy_under_shift
    from ..experiment.analysis.redundancy import CORRUPTIONS, SEVERITIES, means

    _check(asked, name)
    with bar("redundancy") as tell:
        content = redundancy_under_shift(
            asked.setting(METHODS, 128),
            asked.corruptions or CORRUPTIONS,
            severity or SEVERITIES,
            tell,
        )
    say(f"\n{content['title']}, mean over {', '.join(content['corruptions'])}\n")
    found = means(content)
    levels = [row["severity"] for row in found[content["methods"][0]]]
    shown = table("", "method", *("clean" if s == 0 else f"severity {s:g}" for s in levels))
    for method, rows in found.items():
        shown.add_row("NRS", method, *(f"{row['nrs']:.4f}" for row in rows))
    for method, rows in found.items():
        shown.add_row("accuracy %", method, *(f"{100 * row['accuracy']:.2f}" for row in rows))
    console.print(shown)
    _keep(content, asked, name)


@analyze.command()
@with_options
def mechanism(asked: Asked, severity: Severity = 5, name: Name = None) -> None:
    """NRS, loss and accuracy of each method, step by step along a stream."""
    mechanism_of(asked, severity, name)


def mechanism_of(asked: Asked, severity: float = 5, name: str | None = None) -> None:
    from ..experiment.analysis import mechanism as measure

    _check(asked, name)
    with bar("mechanism") as tell:
        content = measure(asked.setting(METHODS, 512, severity), tell)
    say(f"\n{content['title']}: NRS in the two halves of the stream, accuracy over all of it\n")
    shown = table("method", "NRS, first half", "second half", "accuracy %")
    for method, curve in content["curves"].items():
        half = max(len(curve["nrs"]) // 2, 1)
        parts = (curve["nrs"][:half], curve["nrs"][half:])
        there = [[v for v in part if v is not None] for part in parts]
        halves = [f"{sum(v) / len(v):.4f}" if v else "–" for v in there]
        accuracy = 100 * sum(curve["right"]) / sum(content["images"])
        shown.add_row(method, *halves, f"{accuracy:.2f}")
    console.print(shown)
    _keep(content, asked, name)


@analyze.command()
@with_options
def tsne(
    asked: Asked,
    domain: Annotated[str | None, typer.Option(help="Whose images; default: the first.")] = None,
    images: Annotated[int, typer.Option(min=10, help="How many are drawn.")] = 300,
    severity: Severity = 5,
    name: Name = None,
) -> None:
    """Features on a plane, before and after adaptation by each method."""
    from ..experiment.analysis import tsne as measure

    _check(asked, name)
    with bar("tsne") as tell:
        content = measure(
            asked.setting(["source", "bn", "s-fret", "g-fret"], 128, severity), domain, images, tell
        )
    say(f"\n{content['title']}, {content['domain']}\n")
    for panel in content["panels"]:
        shown = "–" if panel["silhouette"] is None else f"{panel['silhouette']:.3f}"
        say(
            f"{panel['method']:8} silhouette of the classes {shown}, NRS {panel['nrs']:.4f},"
            f" accuracy {panel['accuracy']:.2%}"
        )
    _keep(content, asked, name)


@analyze.command()
@with_options
def sensitivity(
    asked: Asked,
    lam: Annotated[str, typer.Option(help="Values of λ.")] = "1e-4,1e-2,1,100",
    lr: Annotated[str, typer.Option(help="Learning rates.")] = "1e-5,1e-4,1e-3,1e-2",
    k1: Annotated[str, typer.Option(help="Supports per class.")] = "1,10,100",
    k2: Annotated[str, typer.Option(help="Shares of the batch.")] = "0.5,0.8,1",
    domain: Annotated[
        list[str] | None, typer.Option(help="Only this domain (several times).")
    ] = None,
    severity: Severity = 5,
    jobs: Jobs = 1,
) -> None:
    """G-FRET over λ × lr and K1 × K2. Its runs are records: what the store has is skipped.

    The paper's grids on its data are the suite of the same name: fretta run sensitivity.
    """
    from ..experiment.execute import Options

    if asked.method not in (None, ["g-fret"]):
        given = ", ".join(asked.method)
        raise ConfigError(f"--method {given}: λ, K1 and K2 belong to g-fret; leave it out")
    few = ["gaussian_noise", "defocus_blur", "fog", "contrast"]  # enough for a first look
    default = few if (asked.data, asked.corruption) == ("digits", None) else None
    fixed = settings_of(asked.set_ or [])
    suite = _grids(
        asked,
        severity,
        domain or default,
        [
            {"matrix": {"lam": numbers(lam, "--lam"), "lr": numbers(lr, "--lr")}, **fixed},
            {"matrix": {"k1": _whole(k1, "--k1"), "k2": numbers(k2, "--k2")}, **fixed},
        ],
    )
    options = Options(asked.threads, asked.device)
    carry_out(suite.title, jobs_of(suite, asked.base), asked.store, jobs, None, False, options)


def _whole(text: str, option: str) -> list[int]:
    found = numbers(text, option)
    if not all(v.is_integer() for v in found):
        raise ConfigError(f"{option} {text!r} has fractions; write whole numbers such as 1,10,100")
    return [int(v) for v in found]


def _grids(
    asked: Asked, severity: float, domains: list[str] | None, grids: list[dict[str, Any]]
) -> Suite:
    """Source and every combination of each grid, as in the suite `sensitivity`."""
    from ..experiment.suite import one_off

    limit = asked.images(128)
    protocol: dict[str, Any] = {
        "order": asked.order,
        "batch_size": asked.batch_size,
        "seeds": [asked.seed],
        **({"limit": limit} if limit else {}),
        **({"domains": domains} if domains else {}),
    }
    wanted: list[dict[str, dict[str, Any]]] = [{"source": {}}, *({"g-fret": g} for g in grids)]
    parts = [
        one_off(asked.model_of(), asked.data_of(severity), methods, protocol) for methods in wanted
    ]
    entries = tuple(entry for part in parts for entry in part.methods)
    title = f"Sensitivity of g-fret on {asked.data}"
    # not the suite of the paper, whose name stands for its data
    name = f"sensitivity-{_slug(asked.data)}"
    return replace(parts[0], name=name, title=title, methods=entries)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-") or "data"


def _check(asked: Asked, name: str | None) -> None:
    """A name or a store that cannot be used shows now, not after the work."""
    from ..experiment.store import Store, check_analysis_name

    if name is not None:
        check_analysis_name(name)
    Store(asked.store).check()


def _keep(content: dict[str, Any], asked: Asked, name: str | None) -> None:
    from ..experiment.store import Store

    chosen = name or f"{content['kind']}-{_slug(content['data']['name'])}"
    Store(asked.store).put_analysis(chosen, content)
    say(f"\nkept as {chosen!r} in {asked.store}; draw it: fretta report {asked.store}")
