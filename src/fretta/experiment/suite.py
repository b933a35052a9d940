"""Benchmarks as data: a suite is a TOML file that expands to runs.

    title = "Digits under 15 corruptions"

    [protocol]                     # for all cases; a case may override
    order = "continual"            # any order of fretta.data
    batch_size = 64
    seeds = [0, 1, 2]

    [[cases]]                      # what is adapted to what
    name = "digits"
    data = { name = "digits" }     # name and options of open_dataset
    model = { source = "digits" }  # a source model with a card; or spec, weights, mean, std, size
    source = { name = "digits", split = "train" }   # images for methods that need some

    [[methods]]                    # only what differs from the defaults
    name = "g-fret"
    lr = 1e-3
    matrix = { lam = [0.01, 1.0] } # every combination becomes a method of its own

Runs are cases × methods × seeds.
"""

from __future__ import annotations

import itertools
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from ..api import build_method
from ..data import Dataset
from ..errors import ConfigError, FrettaError, SuiteError
from ..guard import Guard
from ..methods import Source
from ..parts.compute import Compute
from .case import Case, open_case, open_data
from .records import Job

OnCase = Callable[[str, str], None]  # (name of the case, how images are preprocessed)
PROTOCOL = {"order": "continual", "batch_size": 128, "seeds": [0]}
ORDER_OPTIONS = ("limit", "domains", "concentration", "imbalance", "dominant", "share")
KINDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
    (list, str): "a list or a text",
}
KEYS: dict[str, dict[Any, str]] = {  # the keys of each table, by the type of their values
    "suite": {str: "title about paper", dict: "protocol", list: "cases methods"},
    "protocol": {
        str: "order",
        int: "batch_size limit dominant",
        float: "concentration imbalance share",
        list: "seeds",
        (list, str): "domains",
    },
    "case": {str: "name", dict: "data model source protocol adapter"},
    "model": {str: "source spec weights head", int: "num_classes size", list: "mean std"},
    "adapter": {int: "steps reset_every", bool: "episodic", str: "predict guard precision"},
}


@dataclass(frozen=True)
class MethodEntry:
    """One method of a suite, its differences from the defaults, and what the tables call it."""

    name: str
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    label: str = ""

    @property
    def title(self) -> str:
        return self.label or self.name


@dataclass(frozen=True)
class CaseEntry:
    """A data set and the model that is adapted to it."""

    name: str
    data: dict[str, Any]
    model: dict[str, Any]
    protocol: dict[str, Any]
    source: dict[str, Any] | None = None
    adapter: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    name: str
    title: str
    cases: tuple[CaseEntry, ...]
    methods: tuple[MethodEntry, ...]
    about: str = ""
    paper: str = ""  # the table of the paper that this one stands beside

    def restricted(
        self,
        methods: Iterable[str] | None = None,
        seeds: Iterable[int] | None = None,
        limit: int | None = None,
        cases: Iterable[str] | None = None,
    ) -> Suite:
        """The same suite with fewer methods, cases, seeds or images. Unknown names are errors."""
        names = {m.name for m in self.methods} | {m.title for m in self.methods}
        changes: dict[str, Any] = {} if limit is None else {"limit": limit}
        if seeds is not None:
            changes["seeds"] = list(seeds)
            check_seeds(changes["seeds"], f"suite {self.name!r}")
        wanted = self._known(methods, names, "method")
        kept = self._known(cases, {c.name for c in self.cases}, "case")
        return replace(
            self,
            cases=tuple(
                replace(c, protocol={**c.protocol, **changes}) for c in self.cases if c.name in kept
            ),
            methods=tuple(m for m in self.methods if {m.name, m.title} & wanted),
        )

    def _known(self, wanted: Iterable[str] | None, there: set[str], kind: str) -> set[str]:
        unknown = sorted(set(wanted or ()) - there)
        if unknown:
            raise SuiteError(
                f"suite {self.name!r} has no {kind} {', '.join(map(repr, unknown))}; it has"
                f" {', '.join(sorted(there))}"
            )
        return there if wanted is None else set(wanted)

    def jobs(
        self,
        root: str | os.PathLike[str] | None = None,
        on_case: OnCase = lambda case, images: None,
    ) -> list[Job]:
        """All runs, with data and weights found and hashed. Raises before any work is done.

        on_case   called with the name of each case and how its images are preprocessed
        """
        datasets: dict[str, Dataset] = {}  # cases share data sets: large ones are listed once
        jobs = []
        for entry in self.cases:
            try:
                jobs += self.jobs_of(open_entry(entry, root, datasets), entry, on_case)
            except FrettaError as error:
                raise SuiteError(f"suite {self.name!r}, case {entry.name!r}: {error}") from error
        if not jobs:
            raise SuiteError(f"suite {self.name!r} has no runs: give it cases, methods and seeds")
        return jobs

    def jobs_of(
        self, case: Case, entry: CaseEntry, on_case: OnCase = lambda case, images: None
    ) -> list[Job]:
        """The runs of one case that is open."""
        protocol = entry.protocol
        order_options = {k: protocol[k] for k in ORDER_OPTIONS if k in protocol}
        # impossible batch sizes, unknown domains and orders show here
        case.stream(protocol["order"], batch_size=protocol["batch_size"], **order_options)
        on_case(entry.name, case.images_text())
        title = {"title": self.title} if self.title not in ("", self.name) else {}
        jobs = []
        for method, seed in itertools.product(self.methods, protocol["seeds"]):
            run = case.run(
                method.name,
                method.hyperparameters,
                order=protocol["order"],
                batch_size=protocol["batch_size"],
                seed=seed,
                order_options=order_options,
                adapter=entry.adapter,
            )
            tags = {"suite": self.name, "case": entry.name, "label": method.title, **title}
            jobs.append(Job(run, case.place, tags, case.dataset))
        return jobs


def open_entry(
    entry: CaseEntry,
    root: str | os.PathLike[str] | None,
    datasets: dict[str, Dataset],
    folder: str | None = None,
) -> Case:
    """The case of a suite: model source=, or spec= and weights=; the network is not loaded."""
    model = dict(entry.model)
    named = model.pop("source", None)
    given = sorted(model.keys() - {"head"})
    if named is not None and given:
        raise ConfigError(f"model: source= brings its own {given}; leave them out, or use spec=")
    if named is None and "spec" not in model:
        raise ConfigError("model: give source= (weights with a card) or spec= (and weights=)")
    key = repr(sorted(entry.data.items()))
    if key not in datasets:
        datasets[key] = open_data(entry.data, folder or root)
    name = named or model.pop("spec")
    return open_case(name, datasets[key], **model, source=entry.source, root=root, lazy=True)


# ---- reading ------------------------------------------------------------------------------------


def list_suites() -> list[str]:
    """Names of the suites in the package."""
    names = (file.name for file in (resources.files("fretta") / "suites").iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_suite(name: str | os.PathLike[str]) -> Suite:
    """A suite of the package by name, or one's own by path."""
    text, known = os.fspath(name), list_suites()
    path = Path(
        str(resources.files("fretta") / "suites" / f"{text}.toml" if text in known else text)
    )
    if not path.is_file():
        raise SuiteError(f"no suite {text!r}: it is neither a file nor one of {', '.join(known)}")
    try:
        return parse_suite(path.read_text(encoding="utf-8"), path.stem)
    except UnicodeDecodeError as error:
        raise SuiteError(f"suite {text!r} is not TOML: it is not UTF-8 text") from error


def parse_suite(content: str, name: str) -> Suite:
    where = f"suite {name!r}"
    try:
        raw = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise SuiteError(f"{where} is not TOML: {error}") from error
    listed = {key: _tables(raw.get(key, []), key, where) for key in ("cases", "methods")}
    check_keys({**raw, **listed}, "suite", where)
    protocol = {**PROTOCOL, **raw.get("protocol", {})}
    check_keys(protocol, "protocol", f"{where}, [protocol]")
    cases = tuple(_case(entry, protocol, name) for entry in listed["cases"])
    methods = tuple(m for entry in listed["methods"] for m in _methods(entry, f"{where}, "))
    if not cases or not methods:
        raise SuiteError(f"{where} needs at least one [[cases]] and one [[methods]]")
    _distinct([m.title for m in methods], f"{where}, methods", "label")
    _distinct([c.name for c in cases], f"{where}, cases", "name")
    return Suite(
        name, raw.get("title", name), cases, methods, raw.get("about", ""), raw.get("paper", "")
    )


def check_keys(table: Mapping[str, Any], table_kind: str, where: str) -> None:
    """SuiteError on a key that this kind of table does not have, or a value of another type."""
    valid = {name: kind for kind, names in KEYS[table_kind].items() for name in names.split()}
    unknown = sorted(table.keys() - valid.keys())
    if unknown:
        raise SuiteError(
            f"{where}: unknown {', '.join(map(repr, unknown))}; valid are {', '.join(valid)}"
        )
    for key, value in table.items():
        wanted = valid[key]
        right = isinstance(value, (int, float) if wanted is float else wanted)
        if not right or (isinstance(value, bool) and wanted is not bool):
            raise SuiteError(f"{where}: {key} = {value!r}; {KINDS[wanted]} is expected")


def check_seeds(seeds: Sequence[Any], where: str) -> None:
    valid = all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds)
    if not seeds or not valid or len(set(seeds)) < len(seeds):
        raise SuiteError(
            f"{where}: seeds = {list(seeds)!r}; whole numbers from 0 are expected, at least one and"
            " none twice"
        )


def _tables(value: Any, key: str, where: str) -> list[dict[str, Any]]:
    """The entries of [[key]]. One pair of brackets, a usual slip, makes a single table instead."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        given = f"[{key}] is one table" if isinstance(value, dict) else f"{key} = {value!r}"
        raise SuiteError(
            f"{where}: {given}; a list of tables is expected: write [[{key}]] for each"
        )
    return value


def _distinct(titles: list[str], where: str, key: str) -> None:
    """Label and case identify a record."""
    doubled = sorted({t for t in titles if titles.count(t) > 1})
    if doubled:
        raise SuiteError(
            f"{where}: {', '.join(map(repr, doubled))} stands for several; give each its own {key}"
        )


def _case(entry: dict[str, Any], protocol: dict[str, Any], suite: str) -> CaseEntry:
    data = entry.get("data", {})
    name: Any = entry.get("name", data.get("name", "") if isinstance(data, dict) else "")
    where = f"suite {suite!r}, case {name!r}"
    check_keys(entry, "case", where)
    for key in ("protocol", "model", "adapter"):
        check_keys(entry.get(key, {}), key, f"{where}, {key}")
    if "name" not in data or not entry.get("model"):
        raise SuiteError(f"{where}: needs data = {{ name = ... }} and model = {{ ... }}")
    full = {**protocol, **entry.get("protocol", {})}
    common = dict(entry.get("adapter", {}))
    try:
        Guard.of(common.pop("guard", None))
        Compute(precision=common.pop("precision", None))
        Source(**common).check()
    except ConfigError as error:
        raise SuiteError(f"{where}, adapter: {error}") from error
    check_seeds(full["seeds"], where)
    return CaseEntry(
        name, data, entry["model"], full, entry.get("source"), entry.get("adapter", {})
    )


def _methods(entry: dict[str, Any], where: str) -> list[MethodEntry]:
    """One entry, or one for each combination of its matrix; labeled by what differs."""
    entry = dict(entry)
    name, label = str(entry.pop("name", "")), str(entry.pop("label", ""))
    where = f"{where}method {name!r}"
    matrix = entry.pop("matrix", {})
    if not isinstance(matrix, dict) or not all(v and isinstance(v, list) for v in matrix.values()):
        raise SuiteError(
            f"{where}: matrix = {matrix!r}; lists of values by name are expected, such as"
            " { lam = [0.1, 1.0] }"
        )
    found = []
    for values in itertools.product(*matrix.values()):
        chosen = dict(zip(matrix, values, strict=True))
        hyperparameters = {**entry, **chosen}
        try:
            build_method(name, hyperparameters).check()
        except (ConfigError, TypeError) as error:  # TypeError: a text where a number belongs
            raise SuiteError(f"{where}: {error}") from error
        title = f"{label or name} {describe(chosen)}".strip()
        found.append(MethodEntry(name, hyperparameters, title))
    return found


def describe(settings: Mapping[str, Any]) -> str:
    return " ".join(
        f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in settings.items()
    )


def jobs_on(case: Case, methods: Mapping[str, Mapping[str, Any]], **protocol: Any) -> list[Job]:
    """Methods on one case that no suite describes: `fretta evaluate`.

    methods    name -> hyper-parameters; a "matrix" among them makes every combination
    protocol   order, batch_size, seeds, limit, domains, ...
    """
    entries = [
        m for name, values in methods.items() for m in _methods({"name": name, **values}, "")
    ]
    entry = CaseEntry(case.data.name, {}, {}, {**PROTOCOL, **protocol})
    return Suite("evaluate", case.data.name, (entry,), tuple(entries)).jobs_of(case, entry)
