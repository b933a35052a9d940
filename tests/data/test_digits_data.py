"""The data set that needs no file."""

from __future__ import annotations

import hashlib
import sys

import numpy as np
import pytest

from fretta.data import CORRUPTIONS, digits, open_dataset
from fretta.errors import ConfigError, MissingExtraError


def test_pixels_and_splits() -> None:
    from sklearn.datasets import load_digits

    images, labels = digits.load()
    assert (images.shape, images.dtype) == ((1797, 32, 32, 3), np.uint8)
    assert (images[..., 0] == images[..., 2]).all()
    assert labels[:10].tolist() == list(range(10))
    # The corner of an enlarged image is one original pixel: v·255/16.
    assert (images[:, 0, 0, 0] == np.rint(load_digits().images[:, 0, 0] * 255 / 16)).all()
    parts = {split: digits.split_rows(split) for split in digits.SPLITS}
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(1797))
    assert [len(rows) for rows in parts.values()] == [1078, 179, 540]
    shares = np.bincount(labels[parts["test"]]) / np.bincount(labels)
    assert np.abs(shares - 0.3).max() < 0.01
    # The model in the package was trained on this split: it must never change.
    digest = hashlib.sha256(parts["train"].astype("<i8").tobytes()).hexdigest()
    assert digest[:16] == "130813c26b636e0b"


def test_the_test_split_is_shifted_and_the_others_are_clean() -> None:
    shifted = open_dataset("digits")
    assert shifted.names == list(CORRUPTIONS)
    for domain in shifted.domains:
        strength = digits.SEVERITY[domain.corruption or ""]
        expected = strength if isinstance(strength, tuple) else (strength, None)
        assert (domain.severity, domain.constants) == expected
    for options in ({"split": "train"}, {"split": "val"}, {"corruption": None}):
        clean = open_dataset("digits", **options)
        assert clean.names == ["clean"]
    assert (clean.domains[0].labels == shifted.domains[0].labels).all()
    assert (clean.domains[0].read([1]) != shifted.domain("gaussian_noise").read([1])).any()
    mild = open_dataset("digits", severity=1, corruption="fog", size=48).domains[0]
    assert (mild.severity, mild.read([0]).shape) == (1, (1, 48, 48, 3))
    with pytest.raises(ConfigError, match="split='all'"):
        open_dataset("digits", split="all")


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    digits.load.cache_clear()
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r"scikit-learn.*extra 'data'"):
        open_dataset("digits")
