"""The shape of the package: its public names, the direction of its imports, its weight."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fretta

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "fretta"

# Each part may import the parts left of it in this list, and itself. docs/architecture.md draws it.
LAYERS = [
    ["errors", "memory"],
    ["_util", "compat", "corruptions", "parts"],
    ["models", "method"],
    ["data", "methods", "prepare", "state"],
    ["learner", "streams"],
    ["guard", "export"],
    ["adapter"],
    ["api", "describe", "inspection"],
    ["experiment"],
    ["estimate", "report"],
    ["deploy"],
    ["diagnosis"],
    ["serve"],
    ["cli"],
    ["__main__"],
]


def test_imports_point_one_way() -> None:
    level = {name: depth for depth, names in enumerate(LAYERS) for name in names}
    backward = []
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        if parts == ("__init__",):
            continue
        assert parts[0] in level, f"{parts[0]} has no place in LAYERS"
        for node in ast.walk(ast.parse(file.read_text())):
            targets = []
            if isinstance(node, ast.ImportFrom):
                package = ("fretta", *parts[:-1])
                base = package[: len(package) - node.level + 1] if node.level else ()
                path = (*base, *(node.module or "").split(".")) if node.module else base
                if path[:1] == ("fretta",):
                    targets = [path[1]] if len(path) > 1 else [alias.name for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name.split(".") for alias in node.names]
                targets = [n[1] for n in names if n[0] == "fretta" and len(n) > 1]
            for target in targets:
                same = target == parts[0] or target not in level
                if not same and level[target] >= level[parts[0]]:
                    backward.append(f"{'/'.join(parts)} imports {target}")
    assert not backward


def test_public_names_are_all() -> None:
    assert dir(fretta) == sorted(fretta.__all__)
    assert all(getattr(fretta, name) is not None for name in fretta.__all__)
    with pytest.raises(AttributeError, match="no attribute 'adapter_'"):
        _ = fretta.adapter_
    assert fretta.list_methods() == [
        *(
            "auto",
            "bn",
            "cmf",
            "cotta",
            "delta",
            "deyo",
            "eata",
            "eta",
            "foa-shift",
            "g-fret",
            "lame",
        ),
        *("memo", "note", "rdumb", "roid", "rotta", "s-fret", "sar", "shot-im", "source", "stein"),
        *("t3a", "tea", "tent", "tipi", "tsd"),
    ]


def loaded_by(statement: str, modules: str) -> str:
    code = f"{statement}; import sys; print([m for m in {modules.split()} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return out.stdout.strip()


def test_import_needs_only_torch_numpy_and_safetensors() -> None:
    heavy = (
        "timm torchvision transformers sklearn scipy PIL typer rich matplotlib ray optuna pandas"
    )
    assert loaded_by("import fretta; fretta.adapt, fretta.models.load", heavy) == "[]"


def test_reading_results_loads_no_torch() -> None:
    modules = "fretta.experiment.results, fretta.experiment.store, fretta.cli"
    assert loaded_by(f"import {modules}", "torch") == "[]"


def test_a_plain_import_loads_nothing_heavy() -> None:
    assert loaded_by("import fretta; dir(fretta)", "torch numpy safetensors") == "[]"


@pytest.mark.slow
def test_what_the_pages_write_is_there_after_a_plain_import() -> None:
    """`fretta.guard.Guard(...)`, `from fretta.data import ...`: in README, docs, docstrings."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *SOURCE.rglob("*.py")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    imports = set(re.findall(r"^\s*(from fretta[\w.]* import [\w, ]+)", text, re.M))
    spoken = r"(?<!from )(?<!import )\bfretta(?:\.[A-Za-z]\w+)+(?![\w./-]|:\w)"
    names = {name for name in re.findall(spoken, text) if not name.endswith((".yml", ".toml"))}
    assert len(imports) > 20
    assert "fretta.guard.Guard" in names
    first = ["import fretta", "fretta.corruptions.corrupt", "fretta.streams.make_stream"]
    code = "\n".join([*first, *sorted(names), *sorted(imports)])
    subprocess.run([sys.executable, "-c", code], check=True)


def test_words_are_those_of_the_field() -> None:
    """American spelling, as in torch, and no names that only we know."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *SOURCE.rglob("*.py")]
    pages += [p for name in ("evidence", "website") for p in (ROOT / name).glob("*.*")]
    pages = [p for p in pages if p.suffix not in (".jsonl", ".gz")]
    pages += [p for p in (ROOT / "examples").iterdir() if p.is_file()]
    assert ROOT / "examples" / "quickstart.ipynb" in pages
    private = r"keeper|tally|first day|take home|decisive|arriving|mean_of\b|descent"
    verbs = "emphas initial general minim maxim normal optim organ random recogn regular serial"
    verbs = f"{verbs} standard summar util visual"
    british = rf"({verbs.replace(' ', '|')})is(e|ing|ation)|analyse\b|\bcentre|\bgrey\b|licence"
    british += r"|(behavi|col|fav|hon|neighb)our|artefact|catalogue|(label|model|cancel)l(ed|ing)\b"
    kept = r"cpu_utilisation|`centres`"  # a key of committed records, a name that was
    for page in pages:
        text = re.sub(kept, "", page.read_text(encoding="utf-8"))
        found = re.search(f"{private}|{british}", text, re.I)
        assert found is None, f"{page.name}: {found[0]!r}"


def test_changelog_names_the_version() -> None:
    headings = re.findall(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == fretta.__version__
    assert f"version: {fretta.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_ci_runs_every_test() -> None:
    """Whatever markers a test carries, a target of .ci/run selects it."""
    rules = dict(
        re.findall(r"^(test[\w-]*):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    )
    targets = re.findall(r"^\s*(?:\S+=.*)?make ([\w-]+)", (ROOT / ".ci" / "run").read_text(), re.M)
    chosen = [
        expression
        for target in targets
        for expression in re.findall(r'pytest .*-m "?([^"\n]+)"?$', rules.get(target, ""), re.M)
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = project["tool"]["pytest"]["ini_options"]["markers"]
    markers = [line.partition(":")[0] for line in lines]
    for marks in itertools.product([False, True], repeat=len(markers)):
        names = dict(zip(markers, marks, strict=True))
        assert any(eval(expression, {}, names) for expression in chosen), names


@pytest.mark.slow
def test_adding_a_method_is_one_file_and_one_line(tmp_path: Path) -> None:
    """What the README says about adding a method, done in a copy of the package."""
    import shutil

    package = tmp_path / "fretta"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    readme = (ROOT / "README.md").read_text()
    recipe = re.search(r"```python\n# pseudo\.py\n(.*?)```", readme, re.S)
    assert recipe
    (package / "methods" / "pseudo.py").write_text(recipe[1])
    catalog = package / "methods" / "__init__.py"
    catalog.write_text(
        catalog.read_text().replace("from .sar", "from .pseudo import Pseudo\nfrom .sar")
    )
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT / 'tests'}", "PATH": ""}

    def run(*arguments: str) -> str:
        out = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
        )
        assert out.returncode == 0, out.stdout + out.stderr
        return out.stdout

    assert str(tmp_path) in run("-c", "import fretta; print(fretta.__file__)")
    assert "pseudo" in run("-m", "fretta.cli", "list")
    conformance = str(ROOT / "tests" / "test_conformance.py")
    report = run(
        *("-m", "pytest", conformance, "-q", "-p", "no:cacheprovider", "--no-header"),
        *("-k", "pseudo", "-c", str(ROOT / "pyproject.toml")),
    )
    assert int(re.search(r"(\d+) passed", report)[1]) >= 12  # type: ignore[index]
