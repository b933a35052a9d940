"""Suites that cannot work fail before any work, with one message that says what would."""

from __future__ import annotations

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


def test_the_good_one_is_good() -> None:
    (job,) = parse_suite(GOOD, "good").jobs()
    assert job.run.order_options == {"limit": 32, "domains": ["fog"]}


RESNET20 = '{ spec = "cifar:resnet20", mean = [0.5, 0.5, 0.5], std = [0.5, 0.5, 0.5] }'

# what is wrong: (the change, what the message says)
READING = {
    "not TOML": (("[[cases]]", "[[cases]"), "is not TOML"),
    "unknown key": (("title =", "titel ="), "unknown 'titel'; valid are title, about"),
    "unknown protocol key": (("limit =", "limits ="), "[protocol]: unknown 'limits'; valid are"),
    "unknown case key": (("model =", "net ="), "case 'digits': unknown 'net'; valid are"),
    "unknown model key": (
        ('{ source = "digits" }', '{ source = "digits", dropout = 1 }'),
        "model: unknown 'dropout'; valid are source, spec",
    ),
    "one bracket for cases": (("[[cases]]", "[cases]"), "write [[cases]]"),
    "one bracket for methods": (("[[methods]]", "[methods]"), "write [[methods]]"),
    "no methods": (
        ('[[methods]]\nname = "bn"', ""),
        "needs at least one [[cases]] and one [[methods]]",
    ),
    "seed instead of seeds": (("seeds = [0]", "seeds = 0"), "seeds = 0; a list is expected"),
    "no seeds": (("seeds = [0]", "seeds = []"), "at least one"),
    "a negative seed": (("seeds = [0]", "seeds = [-1]"), "whole numbers from 0"),
    "a seed twice": (("seeds = [0]", "seeds = [1, 1]"), "none twice"),
    "batch size as text": (("= 32\nseeds", '= "32"\nseeds'), "a whole number is expected"),
    "data as text": (('{ name = "digits" }', '"digits"'), "data = 'digits'; a table is expected"),
    "data without a name": (('{ name = "digits" }', "{ size = 32 }"), "needs data = { name ="),
    "no model": (('model = { source = "digits" }\n', ""), "needs data = { name = ... } and model"),
    "unknown method": (('"bn"', '"tents"'), "did you mean 'tent'?"),
    "unknown hyper-parameter": (
        ('name = "bn"', 'name = "bn"\nlr = 1'),
        "bn has no hyper-parameter 'lr'; it has alpha",
    ),
    "impossible hyper-parameter": (('"bn"', '"tent"\nlr = -1.0'), "lr=-1.0 cannot work"),
    "hyper-parameter of another type": (('"bn"', '"tent"\nlr = "high"'), "method 'tent'"),
    "unknown variant": (('"bn"', '"g-fret"\nvariant = "mine"'), "choose from paper, released"),
    "a matrix that is none": (('"bn"', '"g-fret"\nmatrix = { lam = 1.0 }'), "lists of values"),
    "an empty matrix": (('"bn"', '"g-fret"\nmatrix = { lam = [] }'), "lists of values"),
    "a bad value in a matrix": (('"bn"', '"g-fret"\nmatrix = { k2 = [0.5, 2] }'), "k2=2"),
    "duplicate labels": (
        ('name = "bn"', 'name = "bn"\n[[methods]]\nname = "bn"\nalpha = 0.5'),
        "'bn' stands for several; give each its own label",
    ),
    "duplicate cases": (
        ("[[methods]]", '[[cases]]\ndata = {name = "digits"}\nmodel = {source="a"}\n[[methods]]'),
        "'digits' stands for several; give each its own name",
    ),
    "unknown prediction time": (
        ("[[methods]]", 'adapter = { predict = "later" }\n[[methods]]'),
        "'before' or 'after' is expected",
    ),
    "unknown guard": (
        ("[[methods]]", 'adapter = { guard = "often" }\n[[methods]]'),
        "policy='often' is unknown",
    ),
    "no steps": (("[[methods]]", "adapter = { steps = 0 }\n[[methods]]"), "at least 1"),
}
FINDING = {
    "unknown data set": (('name = "digits" }', 'name = "digitz" }'), "unknown data set 'digitz'"),
    "unknown data option": (
        ('name = "digits" }', 'name = "digits", color = 1 }'),
        "digits has no option 'color'; it has split",
    ),
    "missing data, no root": (('{ name = "digits" }', '{ name = "pacs" }'), "FRETTA_DATA"),
    "missing weights": (
        ('{ source = "digits" }', '{ source = "gone.safetensors" }'),
        "no weights file 'gone.safetensors'; looked for",
    ),
    "neither source nor spec": (
        ('{ source = "digits" }', "{ num_classes = 10 }"),
        "give source= (weights with a card) or spec=",
    ),
    "source and more": (
        ('{ source = "digits" }', '{ source = "digits", size = 32 }'),
        "source= brings its own ['size']",
    ),
    "preprocessing unknown": (
        ('{ source = "digits" }', '{ spec = "cifar:resnet20" }'),
        "how images are preprocessed for 'cifar:resnet20' is not known",
    ),
    "other number of classes": (
        ('{ source = "digits" }', RESNET20.replace(" }", ", num_classes = 7 }")),
        "the model has 7 classes and digits 10",
    ),
    "other image size": (
        ('{ source = "digits" }', RESNET20.replace(" }", ", size = 64 }")),
        "the model takes 64×64 pixels and digits gives 32×32; write data = { ..., size = 64 }",
    ),
    "batch size 0": (("batch_size = 32", "batch_size = 0"), "batch_size=0; an integer from 1"),
    "limit 0": (("limit = 32", "limit = 0"), "limit=0"),
    "unknown order": (("seeds", 'order = "random"\nseeds'), "unknown order 'random'"),
    "unknown domain": (('["fog"]', '["mist"]'), "digits has no domain 'mist'"),
    "option without effect": (("seeds", "imbalance = 10\nseeds"), "no effect without"),
    "no source images": (('"bn"', '"eata"'), "eata needs source images; give source="),
    "missing source images": (
        ('[[methods]]\nname = "bn"', 'source = {name = "pacs"}\n[[methods]]\nname = "eata"'),
        "FRETTA_DATA",
    ),
    "source images without a name": (
        ('[[methods]]\nname = "bn"', 'source = {split = "a"}\n[[methods]]\nname = "eata"'),
        "does not say which data set",
    ),
}


@pytest.mark.parametrize("wrong", READING)
def test_what_reading_finds(wrong: str) -> None:
    change, message = READING[wrong]
    with pytest.raises(SuiteError) as caught:
        parse_suite(changed(*change), "bad")
    assert str(caught.value).startswith("suite 'bad'")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", FINDING)
def test_what_finding_data_and_weights_finds(wrong: str) -> None:
    change, message = FINDING[wrong]
    suite = parse_suite(changed(*change), "bad")
    with pytest.raises(SuiteError) as caught:
        suite.jobs()
    assert str(caught.value).startswith("suite 'bad', case 'digits'")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_where_tables_belong() -> None:
    with pytest.raises(SuiteError, match=r"methods = \['bn'\]; a list of tables is expected"):
        parse_suite('methods = ["bn"]', "bad")


def test_missing_data_below_a_root(tmp_path: Path) -> None:
    suite = parse_suite(changed('{ name = "digits" }', '{ name = "pacs" }'), "bad")
    with pytest.raises(SuiteError, match=r"PACS was not found: .* was looked for in"):
        suite.jobs(tmp_path)


def test_unknown_names_of_suites_and_restrictions(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="neither a file nor one of ablation, cifar100c"):
        load_suite("pcas")
    with pytest.raises(SuiteError, match="has no method 'tents'; it has"):
        load_suite("smoke").restricted(methods=["tents"])
    with pytest.raises(SuiteError, match="has no case 'pacs'; it has"):
        load_suite("smoke").restricted(cases=["pacs"])
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SuiteError, match="is not TOML"):
        load_suite(binary)


def test_the_command_stops_before_any_work(tmp_path: Path) -> None:
    suite = tmp_path / "mine.toml"
    suite.write_text(changed('"bn"', '"eata"'))
    store = tmp_path / "results"
    result = CliRunner().invoke(app, ["run", str(suite), "--store", str(store)])
    assert isinstance(result.exception, SuiteError)
    assert not store.exists()
