"""The model in the package: accurate, small, hurt by the shifted stream, helped by adaptation."""

from __future__ import annotations

from pathlib import Path

import pytest

import fretta
from fretta.data import Preprocessing, Stream, make_stream, open_dataset
from fretta.models import check_card, list_sources, load_source
from fretta.models.load import ASSETS


def accuracies(adapter: fretta.Adapter, stream: Stream, how: Preprocessing) -> dict[str, float]:
    """Percent by domain."""
    right = dict.fromkeys(stream.dataset.names, 0)
    for batch in stream:
        predicted = adapter(how.apply(batch.x)).argmax(1)
        right[batch.domain] += int((predicted == batch.y).sum())
    return {d.name: 100 * right[d.name] / len(d) for d in stream.dataset.domains}


def mean(values: dict[str, float]) -> float:
    return sum(values.values()) / len(values)


def test_card_and_size() -> None:
    assert list_sources() == ["digits"]
    model, card = load_source("digits")
    assert card == fretta.models.card_of(model)
    files = [p for p in Path(ASSETS).iterdir() if p.suffix in (".json", ".safetensors")]
    assert sum(p.stat().st_size for p in files) < 2e6
    data = open_dataset("digits", split="train")
    assert card.data["fingerprint"] == data.fingerprint()  # no test image was trained on
    check_card(card, Preprocessing.from_json(card.preprocessing), data.classes)


# Where the photographs of frost are not installed, the procedural ones do, with a warning.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
def test_the_shift_hurts_and_adaptation_helps() -> None:
    model, card = load_source("digits")
    how = Preprocessing.from_json(card.preprocessing)
    clean_stream = make_stream(open_dataset("digits", corruption=None), batch_size=64)
    clean = mean(accuracies(fretta.adapt(model, "source"), clean_stream, how))
    assert clean >= 97
    assert clean == pytest.approx(100 * card.accuracy["test"], abs=0.2)

    shifted = make_stream(open_dataset("digits"), batch_size=64, seed=0)
    source, bn, tent = (
        accuracies(fretta.adapt(model, method), shifted, how) for method in ("source", "bn", "tent")
    )
    assert mean(source) <= clean - 20
    assert mean(bn) >= mean(source) + 20
    assert mean(tent) >= mean(source) + 20
    hurt = [name for name in source if source[name] < clean - 10]
    assert len(hurt) >= 10  # most corruptions hurt, not one or two
    assert all(bn[name] > source[name] for name in hurt)
