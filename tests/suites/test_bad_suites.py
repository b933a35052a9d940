"""Suites that cannot work fail before any work, with one message that says what would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fretta.cli import app
from fretta.errors import SuiteError
from fretta.experiment.suite import load_suite, parse_suite

GOOD = """
title = "Good"
[protocol]
batch_size = 32
seeds = [0]
limit = 32
domains = ["fog"]
[[cases]]
name = "digits"
data = { name = "digits" }
model = { source = "digits" }
[[methods]]
name = "bn"
"""


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


RESNET20 = '{ spec = "cifar:resnet20", mean = [0.5, 0.5, 0.5], std = [0.5, 0.5, 0.5] }'
MODEL, DATA = '{ source = "digits" }', '{ name = "digits" }'
SOURCE = 'source = {%s}\n[[methods]]\nname = "eata"'

# (the change, what the message says)
READING = [
    ("[[cases]]", "[[cases]", "is not TOML"),
    ("title =", "titel =", "unknown 'titel'; valid are title, about"),
    ("limit =", "limits =", "[protocol]: unknown 'limits'; valid are"),
    ("model =", "net =", "case 'digits': unknown 'net'; valid are"),
    (MODEL, '{ source = "digits", dropout = 1 }', "model: unknown 'dropout'; valid are source"),
    ("[[cases]]", "[cases]", "write [[cases]]"),
    ("[[methods]]", "[methods]", "write [[methods]]"),
    ('[[methods]]\nname = "bn"', "", "needs at least one [[cases]] and one [[methods]]"),
    ("seeds = [0]", "seeds = 0", "seeds = 0; a list is expected"),
    ("seeds = [0]", "seeds = []", "at least one"),
    ("seeds = [0]", "seeds = [-1]", "whole numbers from 0"),
    ("seeds = [0]", "seeds = [1, 1]", "none twice"),
    ("= 32\nseeds", '= "32"\nseeds', "a whole number is expected"),
    (DATA, '"digits"', "data = 'digits'; a table is expected"),
    (DATA, "{ size = 32 }", "needs data = { name ="),
    ('model = { source = "digits" }\n', "", "needs data = { name = ... } and model"),
    ('"bn"', '"tents"', "did you mean 'tent'?"),
    ('name = "bn"', 'name = "bn"\nlr = 1', "bn has no hyper-parameter 'lr'; it has alpha"),
    ('"bn"', '"tent"\nlr = -1.0', "lr=-1.0 cannot work"),
    ('"bn"', '"tent"\nlr = "high"', "method 'tent'"),
    ('"bn"', '"g-fret"\nvariant = "mine"', "choose from paper, released"),
    ('"bn"', '"g-fret"\nmatrix = { lam = 1.0 }', "lists of values"),
    ('"bn"', '"g-fret"\nmatrix = { lam = [] }', "lists of values"),
    ('"bn"', '"g-fret"\nmatrix = { k2 = [0.5, 2] }', "k2=2"),
    ('"bn"', '"bn"\n[[methods]]\nname = "bn"\nalpha = 0.5', "'bn' stands for several"),
    (
        "[[methods]]",
        '[[cases]]\ndata = {name = "digits"}\nmodel = {source="a"}\n[[methods]]',
        "'digits' stands for several; give each its own name",
    ),
    ("[[methods]]", 'adapter = { predict = "later" }\n[[methods]]', "'before' or 'after'"),
    ("[[methods]]", 'adapter = { guard = "often" }\n[[methods]]', "policy='often' is unknown"),
    ("[[methods]]", 'adapter = { precision = "half" }\n[[methods]]', "precision='half' is unknown"),
    ("[[methods]]", "adapter = { steps = 0 }\n[[methods]]", "at least 1"),
]
OPENING = [
    (DATA, '{ name = "digitz" }', "unknown data set 'digitz'"),
    (DATA, '{ name = "digits", color = 1 }', "digits has no option 'color'; it has split"),
    (DATA, '{ name = "pacs" }', "FRETTA_DATA"),
    (MODEL, '{ source = "gone.safetensors" }', "no weights file 'gone.safetensors'; looked for"),
    (MODEL, "{ num_classes = 10 }", "give source= (weights with a card) or spec="),
    (MODEL, '{ source = "digits", size = 32 }', "source= brings its own ['size']"),
    (MODEL, '{ spec = "cifar:resnet20" }', "preprocessed for 'cifar:resnet20' is not known"),
    (MODEL, RESNET20[:-1] + ", num_classes = 7 }", "the model has 7 classes and digits 10"),
    (MODEL, RESNET20[:-1] + ", size = 64 }", "takes 64×64 pixels and digits gives 32×32"),
    ("batch_size = 32", "batch_size = 0", "batch_size=0; an integer from 1"),
    ("limit = 32", "limit = 0", "limit=0"),
    ("seeds", 'order = "random"\nseeds', "unknown order 'random'"),
    ('["fog"]', '["mist"]', "digits has no domain 'mist'"),
    ("seeds", "imbalance = 10\nseeds", "no effect without"),
    ('"bn"', '"eata"', "eata needs source images; give source="),
    ('[[methods]]\nname = "bn"', SOURCE % 'name = "pacs"', "FRETTA_DATA"),
    ('[[methods]]\nname = "bn"', SOURCE % 'split = "a"', "does not say which data set"),
    ('[[methods]]\nname = "bn"', SOURCE % 'name = "digits", root = "a"', "where the data lies"),
]


@pytest.mark.parametrize(("old", "new", "message"), READING)
def test_what_reading_finds(old: str, new: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        parse_suite(changed(old, new), "bad")
    assert str(caught.value).startswith("suite 'bad'")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("old", "new", "message"), OPENING)
def test_what_opening_data_and_model_finds(old: str, new: str, message: str) -> None:
    suite = parse_suite(changed(old, new), "bad")
    with pytest.raises(SuiteError) as caught:
        suite.jobs()
    assert str(caught.value).startswith("suite 'bad', case 'digits'")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_errors(tmp_path: Path) -> None:
    suite = parse_suite(changed(DATA, '{ name = "pacs" }'), "bad")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: parse_suite('methods = ["bn"]', "bad"), "a list of tables is expected"),
        (lambda: suite.jobs(tmp_path), r"PACS was not found: .* was looked for in"),
        (lambda: load_suite("pcas"), "neither a file nor one of ablation, cifar100c"),
        (lambda: load_suite("smoke").restricted(methods=["tents"]), "no method 'tents'; it has"),
        (lambda: load_suite("smoke").restricted(cases=["pacs"]), "no case 'pacs'; it has"),
        (lambda: load_suite(binary), "is not TOML"),
    ]
    for call, message in calls:
        with pytest.raises(SuiteError, match=message):
            call()


def test_the_command_stops_before_any_work(tmp_path: Path) -> None:
    (job,) = parse_suite(GOOD, "good").jobs()
    assert job.run.order_options == {"limit": 32, "domains": ["fog"]}
    suite, store = tmp_path / "mine.toml", tmp_path / "results"
    suite.write_text(changed('"bn"', '"eata"'))
    result = CliRunner().invoke(app, ["run", str(suite), "--store", str(store)])
    assert isinstance(result.exception, SuiteError)
    assert not store.exists()
