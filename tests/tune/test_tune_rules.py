"""What each rule looks at, and which values are tried."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fretta.data import EXTRA_CORRUPTIONS
from fretta.errors import ConfigError, SuiteError
from fretta.experiment.suite import CaseEntry, MethodEntry, Suite
from fretta.experiment.tune import GRIDS, Rule, label_free, make_space, parse_grid
from fretta.experiment.tune.rules import judged_on

CIFAR = "airplane automobile bird cat deer dog frog horse ship truck"


class Row(dict[str, Any]):
    """Fails where anything is read that needs labels."""

    def __init__(self, classes: float, entropy: float | None) -> None:
        super().__init__(predicted_classes=classes, entropy=entropy, accuracy=0, collapsed=True)

    def __getitem__(self, key: str) -> Any:
        assert key in ("entropy", "predicted_classes")
        return super().__getitem__(key)


def one_case(data: dict[str, Any], **protocol: Any) -> Suite:
    settings = {"order": "continual", "batch_size": 8, "seeds": [0], **protocol}
    case = CaseEntry("case", data, {"source": "digits"}, settings)
    return Suite("mine", "mine", (case,), (MethodEntry("tent"),))


def test_label_free_score() -> None:
    """One class, all sure of it, is as good as entropy can be, and still last."""
    assert label_free([Row(10.0, 0.2), Row(5.0, 1.0)]) == pytest.approx(2 * math.log(50) - 0.6)
    assert label_free([Row(9.0, 0.1), Row(1.0, None)]) is None  # diverged
    better = [Row(9.9, 0.1), Row(8.0, 0.9), Row(6.0, 2.2), Row(3.0, 0.0)]
    scores = [label_free([r]) or -1.0 for r in better]
    assert min(scores) > (label_free([Row(1.0, 0.0)]) or 0.0)
    assert scores[0] == max(scores)
    late = label_free([Row(9.9, 0.1), Row(1.0, 0.0)])  # in half of the stream
    assert late is not None
    assert (label_free([Row(8.0, 0.9), Row(8.0, 0.9)]) or -1.0) > late


@pytest.mark.parametrize(
    ("data", "protocol", "first"),
    [
        ({}, {}, ["gaussian_noise"]),
        ({}, {"domains": ["fog", "snow"]}, ["fog"]),
        (
            {"corruption": ["fog", "snow"], "severity": [1, 2, 3]},
            {"order": "gradual"},
            ["fog/1", "fog/2", "fog/3"],
        ),
    ],
)
def test_first_domain(data: dict[str, Any], protocol: dict[str, Any], first: list[str]) -> None:
    suite = one_case({"name": "digits", **data}, **protocol)
    visible, text = judged_on(suite, Rule.FIRST_DOMAIN, None)
    assert visible.cases[0].protocol["domains"] == first
    assert text == (f"case: {', '.join(first)}",)


def test_first_domain_of_cases_with_one_domain_each() -> None:
    cases = tuple(
        CaseEntry(domain, {"name": "digits", "corruption": domain}, {}, {"order": "continual"})
        for domain in ("fog", "snow")
    )
    visible, text = judged_on(
        Suite("dg", "dg", cases, (MethodEntry("tent"),)), Rule.FIRST_DOMAIN, None
    )
    assert (visible.cases, text) == (cases[:1], ("fog: fog",))
    with pytest.raises(SuiteError, match="one domain only, fog"):  # it would be the oracle
        judged_on(one_case({"name": "digits"}, domains=["fog"]), Rule.FIRST_DOMAIN, None)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"corruption": ["fog", "spatter"]}, "not held out"),
        ({"split": "train"}, "not corrupted"),
        ({"split": "tset"}, "case 'case'.*tset"),
    ],
)
def test_extra_corruptions(data: dict[str, Any], message: str) -> None:
    digits = {"name": "digits", "split": "test"}
    suite = one_case(digits, domains=["fog"], limit=8)
    case = judged_on(suite, Rule.EXTRA_CORRUPTIONS, None)[0].cases[0]
    assert case.data == {**digits, "corruption": "extra"}
    assert "domains" not in case.protocol
    assert case.protocol["limit"] == 8
    with pytest.raises(SuiteError, match=message):
        judged_on(one_case({**digits, **data}), Rule.EXTRA_CORRUPTIONS, None)


def test_extra_corruptions_of_cifar_c(tmp_path: Path) -> None:
    """From its files where they are, else from the clean set beside them, else an error."""
    folder, clean = tmp_path / "CIFAR-10-C", tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    images = np.full((50, 32, 32, 3), 100, dtype=np.uint8)
    np.save(folder / "labels.npy", np.tile(np.arange(10), 5))
    np.save(folder / "fog.npy", images)
    options = {"severity": 3, "verify": "off"}
    suite = one_case({"name": "cifar10c", "domains": ["fog"], **options})
    with pytest.raises(SuiteError, match=r"speckle_noise\.npy is missing.*CIFAR-10"):
        judged_on(suite, Rule.EXTRA_CORRUPTIONS, tmp_path)

    clean.mkdir()
    batch = {b"data": images[:10].reshape(10, -1), b"labels": list(range(10))}
    (clean / "test_batch").write_bytes(pickle.dumps(batch))
    (clean / "batches.meta").write_bytes(pickle.dumps({b"label_names": CIFAR.split()}))
    visible, _ = judged_on(suite, Rule.EXTRA_CORRUPTIONS, tmp_path)
    assert visible.cases[0].data == {"name": "cifar10", "corruption": "extra", **options}

    for name in EXTRA_CORRUPTIONS:
        np.save(folder / f"{name}.npy", images)
    visible, _ = judged_on(suite, Rule.EXTRA_CORRUPTIONS, tmp_path)
    domains = list(EXTRA_CORRUPTIONS)
    assert visible.cases[0].data == {"name": "cifar10c", "domains": domains, **options}


def test_grids() -> None:
    """The paper's, one's own, and as typed on a command line."""
    assert (len(GRIDS["lr"]), GRIDS["lr"][:3], GRIDS["lr"][-1]) == (12, [1e-7, 5e-7, 1e-6], 5e-2)
    assert GRIDS["lam"] == [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0]
    assert list(make_space("g-fret", {})) == ["lr", "lam", "k1", "k2"]
    assert list(make_space("tsd", {})) == ["lr", "k1"]
    grid = {"variant": ["paper", "released"], "lam": [1.0, 1.0, 2.0], "lr": [1e-4]}
    space = make_space("g-fret", {}, grid)
    assert list(space) == ["lr", "lam", "variant"]
    assert space["lam"] == [1.0, 2.0]
    typed = ["lr=1e-4, 1e-3", "k1=5,10", "variant=paper,released", "l_r_a=true,false"]
    assert parse_grid(typed) == {
        "lr": [1e-4, 1e-3],
        "k1": [5, 10],
        "variant": ["paper", "released"],
        "l_r_a": [True, False],
    }
    for wrong in (["lr"], ["lr="], ["=1"], ["lr=1", "lr=2"]):
        with pytest.raises(ConfigError, match="NAME=VALUE"):
            parse_grid(wrong)


@pytest.mark.parametrize(
    ("method", "grid", "message"),
    [
        ("bn", None, "its own hyper-parameters: alpha"),
        ("tend", None, "did you mean 'tent'"),
        ("tent", {}, "the grid is empty"),
        ("tent", {"lam": [1.0]}, "has no hyper-parameter 'lam'"),
        ("tent", {"lr": []}, "at least one value"),
        ("tent", {"lr": "1e-3"}, "a list of at least one value"),
        ("tent", {"lr": [float("nan")]}, "finite numbers"),
        ("tent", {"lr": [1e-3, -1.0]}, "lr"),
        ("tent", {"lr": [[1e-3]]}, "numbers, text"),
    ],
)
def test_grids_that_cannot_work(method: str, grid: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_space(method, {}, grid)
