"""`fretta analyze`, as a user types it, and what the report then finds in the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fretta.cli import app
from fretta.errors import FrettaError
from fretta.experiment.store import Store, StoreError
from fretta.report.data import ReportData
from fretta.report.figures import find_figures

SMALL = ["--limit", "32", "--batch-size", "16", "--threads", "1"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["analyze", *arguments], env={"COLUMNS": "100"})
    if isinstance(result.exception, FrettaError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def drawn(store: Path) -> list[str]:
    data = ReportData.read(Store(store))
    names = [f.name for f in find_figures(data, [])[0]]
    assert not data.damaged
    return names


def test_redundancy(tmp_path: Path) -> None:
    store = str(tmp_path)
    out = run(
        *("redundancy", "--store", store, "--method", "source", "--method", "bn", *SMALL),
        *("--corruption", "fog", "--severity", "1", "--severity", "5"),
    )
    assert "clean" in out
    assert "severity 5" in out
    assert "kept as 'redundancy-digits'" in out
    (found,) = Store(tmp_path).analyses()
    assert found["name"] == "redundancy-digits"
    assert found["provenance"]["torch"]
    assert found["limit"] == 32
    names = ["severity-methods-digits", "severity-corruptions-digits", "relation-digits"]
    assert drawn(tmp_path) == names


@pytest.mark.slow
def test_mechanism_and_tsne(tmp_path: Path) -> None:
    shift = ["--corruption", "fog", "--severity", "3", "--store", str(tmp_path), *SMALL]
    out = run("mechanism", "--method", "bn", "--method", "s-fret", "--set", "lr=1e-3", *shift)
    assert "s-fret" in out
    run("tsne", "--method", "source", "--images", "20", "--name", "mine", *shift)
    assert drawn(tmp_path) == ["mechanism-digits", "tsne-mine"]


def test_all_corruptions_by_one_word(tmp_path: Path) -> None:
    tiny = ["--limit", "8", "--batch-size", "8", "--threads", "1", "--store", str(tmp_path)]
    run("mechanism", "--method", "source", "--corruption", "all", *tiny)
    (found,) = Store(tmp_path).analyses()
    assert len(set(found["domains"])) == 15


@pytest.mark.slow
def test_sensitivity_makes_records_and_resumes(tmp_path: Path) -> None:
    grid = ["--lam", "0.01,1", "--lr", "1e-4,1e-3", "--k1", "1,10", "--k2", "0.5,1"]
    command = ["sensitivity", "--store", str(tmp_path), "--domain", "fog", *grid, *SMALL]
    assert "9 runs in" in run(*command)
    records = list(Store(tmp_path).records())
    assert {r.tags["suite"] for r in records} == {"sensitivity-digits"}
    names = [n for n in drawn(tmp_path) if n.startswith("sensitivity-")]
    assert len(names) == 2
    assert all("lam-lr" in n or "k1-k2" in n for n in names)
    assert "0 runs in" in run(*command)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sensitivity --method tent", "belong to g-fret"),
        ("redundancy --data digit", "unknown data set 'digit'"),
        ("mechanism --set lrr=1", r"none of .* has the hyper-parameter lrr"),
        ("mechanism --name Curves", "cannot be called"),
    ],
)
def test_errors_come_before_work(tmp_path: Path, arguments: str, message: str) -> None:
    with pytest.raises(FrettaError, match=message):
        run(*arguments.split(), "--store", str(tmp_path))
    assert not Store(tmp_path).analyses()


def test_analyses_in_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put_analysis("a", {"kind": "x", "n": 1})
    store.put_analysis("a", {"kind": "x", "n": 2})  # replaces the first
    assert store.analyses() == [{"kind": "x", "n": 2, "name": "a"}]
    assert [p.name for p in (tmp_path / "analyses").iterdir()] == ["a.json"]
    for name in ("../x", "A", "", "a/b", "-a"):
        with pytest.raises(StoreError, match="cannot be called"):
            store.put_analysis(name, {"kind": "x"})
