"""Preprocessing: the formula, its checks, its JSON form."""

from __future__ import annotations

import json

import pytest
import torch

from fretta.data import Preprocessing
from fretta.errors import ConfigError, InputError


def test_formula_and_json() -> None:
    x = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    out = Preprocessing((0.5, 0.2, 0.0), (0.5, 0.1, 2.0)).apply(x)
    # (0 − .5)/.5, (.2 − .2)/.1, (1 − 0)/2
    torch.testing.assert_close(out.flatten(), torch.tensor([-1.0, 0.0, 0.5]))
    assert x.flatten().tolist() == [0, 51, 255]
    ours = Preprocessing((0.5,) * 3, (0.25,) * 3, 160, "crop", "bicubic")
    assert Preprocessing.from_json(json.loads(json.dumps(ours.to_json()))) == ours
    assert ours.options() == {"size": 160, "fit": "crop", "interpolation": "bicubic"}
    half = Preprocessing((0.5,) * 3, (0.5,) * 3).apply(x, "cpu", torch.float64)
    assert half.dtype == torch.float64
    with pytest.raises(ConfigError, match=r"keys \['mean', 'sd'\]"):
        Preprocessing.from_json({"mean": [0], "sd": [1]})


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((1, 3, 32, 32), torch.float32, "already normalized"),
        ((3, 32, 32), torch.uint8, "uint8"),
        ((1, 1, 32, 32), torch.uint8, "1 channels"),
        ((1, 3, 32, 40), torch.uint8, r"40×32, but the weights expect 32×32.*size=32"),
    ],
)
def test_input_is_checked(shape: tuple[int, ...], dtype: torch.dtype, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Preprocessing(size=32).apply(torch.zeros(shape, dtype=dtype))


@pytest.mark.parametrize(
    "values",
    [
        *({"mean": mean} for mean in ((0.5,), 0.5, (float("nan"), 0, 0))),
        *({"std": std} for std in ((0.5, 0.5, 0), ("a", 1, 1))),
        {"size": 0},
        {"fit": "x"},
    ],
)
def test_bad_values(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Preprocessing(**values)  # type: ignore[arg-type]
