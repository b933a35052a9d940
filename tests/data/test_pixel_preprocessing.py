"""Preprocessing: the formula, its checks, its JSON form."""

from __future__ import annotations

import json

import pytest
import torch

from fretta.data import Preprocessing
from fretta.errors import ConfigError, InputError


def test_formula_by_hand() -> None:
    x = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    out = Preprocessing((0.5, 0.2, 0.0), (0.5, 0.1, 2.0)).apply(x)
    assert out.dtype == torch.float32
    # (0 − .5)/.5, (.2 − .2)/.1, (1 − 0)/2
    assert torch.allclose(out.flatten(), torch.tensor([-1.0, 0.0, 0.5]), atol=1e-6)
    assert x.flatten().tolist() == [0, 51, 255]
    double = Preprocessing((0.5,) * 3, (0.5,) * 3).apply(x, "cpu", torch.float64)
    assert double.dtype == torch.float64
    assert double[0, 2, 0, 0] == 1.0


def test_json_round_trip() -> None:
    ours = Preprocessing((0.5, 0.5, 0.5), [0.25, 0.25, 0.25], 160, "crop", "bicubic")  # type: ignore[arg-type]
    assert Preprocessing.from_json(json.loads(json.dumps(ours.to_json()))) == ours
    assert ours.options() == {"size": 160, "fit": "crop", "interpolation": "bicubic"}
    with pytest.raises(ConfigError, match=r"keys \['mean', 'sd'\]"):
        Preprocessing.from_json({"mean": [0], "sd": [1]})


def test_input_is_checked() -> None:
    ours = Preprocessing(size=32)
    with pytest.raises(InputError, match="already normalized"):
        ours.apply(torch.zeros(1, 3, 32, 32))
    with pytest.raises(InputError, match="uint8"):
        ours.apply(torch.zeros(3, 32, 32, dtype=torch.uint8))
    with pytest.raises(InputError, match="1 channels"):
        ours.apply(torch.zeros(1, 1, 32, 32, dtype=torch.uint8))
    with pytest.raises(InputError, match=r"40×32, but the weights expect 32×32.*size=32"):
        ours.apply(torch.zeros(1, 3, 32, 40, dtype=torch.uint8))


@pytest.mark.parametrize(
    "values",
    [
        {"mean": (0.5,)},
        {"std": (0.5, 0.5, 0)},
        {"std": ("a", 1, 1)},
        {"mean": (float("nan"), 0, 0)},
        {"mean": 0.5},
        {"size": 0},
        {"fit": "x"},
    ],
)
def test_bad_values(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Preprocessing(**values)  # type: ignore[arg-type]
