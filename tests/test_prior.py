"""--prior: shares of classes as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fretta.errors import ConfigError
from fretta.estimate.prior import class_shares, read_prior

NUMBERS = {"cat": 0, "dog": 1, "ship": 2, "frog": 3}


def shares(text: str) -> list[float]:
    return class_shares(read_prior(text), NUMBERS, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat=0.8,dog=0.2", [0.8, 0.2, 0, 0]),
        ("cat=0.7", [0.7, 0.1, 0.1, 0.1]),  # the rest is divided evenly
        (" Cat = 0.4 , SHIP=0.4", [0.4, 0.1, 0.4, 0.1]),
        ("cat=80,dog=20", [0.8, 0.2, 0, 0]),  # counts
        ("cat=0.2,dog=0.2,ship=0.2,frog=0.2", [0.25] * 4),
    ],
)
def test_on_the_command_line(text: str, expected: list[float]) -> None:
    assert shares(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '{"cat": 30, "frog": 10}'),
        ("a.csv", "class,count\ncat,30\nfrog,10\n"),
        ("b.csv", "cat,0.75\nfrog,0.25\n"),
    ],
)
def test_from_a_file(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert shares(str(tmp_path / name)) == pytest.approx([0.75, 0, 0, 0.25])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("catt=0.5", "does not have: catt .did you mean 'cat'"),
        ("cat", "neither a file nor shares"),
        ("cat=much", "'much' of 'cat' is no number"),
        ("cat=0.5,cat=0.2", "'cat' twice"),
        ("cat=0.5,Cat=0.2", "a class twice"),
        ("cat=-1,dog=2", "cat=-1"),
        ("cat=0", "nothing above 0"),
        ("cat=80", "such as cat=0.8"),
    ],
)
def test_bad_priors(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        shares(text)


@pytest.mark.parametrize(
    ("name", "content"), [("a.json", "[1]"), ("b.json", "{"), ("c.csv", "cat;0.5")]
)
def test_bad_files(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=name):
        read_prior(str(tmp_path / name))
