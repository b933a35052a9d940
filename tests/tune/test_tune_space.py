"""Which values are tried."""

from __future__ import annotations

from typing import Any

import pytest

from fretta.errors import ConfigError
from fretta.experiment.tune import GRIDS, make_space, paper_space, parse_grid, size


def test_the_grids_are_the_papers() -> None:
    assert GRIDS["lr"] == [
        *(1e-7, 5e-7, 1e-6, 5e-6, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2)
    ]
    assert GRIDS["lam"] == [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0]
    assert GRIDS["k1"] == [1, 5, 10, 15, 20, 50, 100, 200, 300]
    assert GRIDS["k2"] == [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_a_method_gets_the_grids_of_its_own_fields() -> None:
    assert list(paper_space("g-fret")) == ["lr", "lam", "k1", "k2"]
    assert list(paper_space("tsd")) == ["lr", "k1"]
    assert list(paper_space("tent")) == ["lr"]


def test_a_product_is_thousands_of_runs() -> None:
    space = paper_space("g-fret")
    assert size(space, product=False) == 36
    assert size(space, product=True) == 12 * 9 * 9 * 6


def test_own_grid_in_the_order_of_the_paper_then_as_given() -> None:
    grid = {"variant": ["paper", "released"], "lam": [1.0, 1.0, 2.0], "lr": [1e-4]}
    space = make_space("g-fret", {}, grid)
    assert list(space) == ["lr", "lam", "variant"]
    assert space["lam"] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("method", "grid", "message"),
    [
        ("bn", None, "grid= over its own hyper-parameters: alpha"),
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
def test_what_cannot_be_tried(method: str, grid: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_space(method, {}, grid)


def test_a_grid_from_the_command_line() -> None:
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
