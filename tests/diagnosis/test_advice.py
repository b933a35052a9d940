"""Recommendations, from facts made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from diagnosis_nets import facts

from fretta.diagnosis import Facts, Files, LayerShift, Outputs
from fretta.diagnosis.advice import recommend
from fretta.diagnosis.facts import largest_class

CATS = (400, 40, 36, 36)
SPREAD = [154, 120, 119, 119]  # what batch statistics leave of them


DO_NOT = ["do-not-adapt", "uneven"]


def source(confidence: float = 0.9) -> Outputs:
    return Outputs(512, [128] * 4, confidence, 0.2, 1.3, 0.5, 64)


def at(moved: float) -> list[LayerShift]:
    return [replace(facts().layers[0], mean=moved**2)]


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        (facts(0.1), ["do-not-adapt"]),
        (facts(0.25), ["measure"]),
        (facts(0.5), ["adapt"]),
        # late layers alone, where the classes do not explain it
        (facts(layers=[*at(0.05) * 3, *at(0.4)]), ["measure"]),
        (facts(0.1, CATS, layers=[*at(0.05) * 3, *at(0.4)], batch_predicted=SPREAD), DO_NOT),
        # source images that are as far move the limits
        (facts(0.5, source=source(), source_layers=at(0.4)), ["do-not-adapt"]),
        (facts(0.7, source=source(), source_layers=at(0.4)), ["measure"]),
        (facts(0.1, source=source(0.99), source_layers=at(0.1)), ["do-not-adapt"]),
        (facts(0.1, source=source(0.99 + 0.05), source_layers=at(0.1)), ["unsure"]),
        # uneven classes are those that are frequent with batch statistics, too
        (facts(0.1, CATS, batch_predicted=SPREAD), ["do-not-adapt", "uneven"]),
        (facts(0.1, CATS), ["do-not-adapt", "favors"]),
        (facts(0.5, CATS), ["adapt", "favors"]),
        (facts(0.5, CATS, batch_predicted=[230, 94, 94, 94]), ["adapt-uneven", "uneven"]),
        (facts(0.25, CATS, batch_predicted=[230, 94, 94, 94]), ["measure-uneven", "uneven"]),
        # a frequent class that batch statistics have nearly spread over the others
        (facts(0.5, CATS, batch_predicted=SPREAD), ["adapt-uneven", "uneven"]),
        (facts(0.5, CATS, prior=[0.8, 0.1, 0.05, 0.05]), ["adapt-uneven", "uneven"]),
        (facts(0.5, CATS, prior=[0.25] * 4), ["adapt", "favors"]),
        # batches
        (facts(0.5, batch_size=8), ["adapt", "small-batch"]),
        (facts(0.1, batch_size=1), ["do-not-adapt", "small-batch"]),
        # models
        (facts(batch_norms=0, layers=[], norms=3), ["cannot-tell", "no-batch-norm"]),
        (facts(0.5, (5, 5, 5, 5)), ["too-few"]),
        (facts(0.5, (1, 0, 0, 0), batch_predicted=None), ["too-few"]),
        # files
        (facts(0.1, files=Files(600, [("a", "empty")])), ["do-not-adapt", "unreadable"]),
        (facts(0.1, files=Files(600, duplicates=9)), ["do-not-adapt", "duplicates"]),
        (
            facts(0.5, files=Files(600, [("a", "empty")] * 88, duplicates=200)),
            ["first:unreadable", "first:duplicates", "adapt"],
        ),
    ],
)
def test_facts_decide(given: Facts, kinds: list[str]) -> None:
    assert [advice.kind for advice in recommend(given)] == kinds


def test_what_is_said() -> None:
    def text(given: Facts) -> str:
        return " ".join(map(str, recommend(given, ["cat", "dog", "fox", "owl"])))

    uneven = text(facts(0.1, CATS, batch_predicted=SPREAD))
    assert "78 % are predicted 'cat', where 25 % are even" in uneven
    assert "statistics=adaptive, stein or auto" in uneven
    assert "may also be the model's confusion" not in uneven
    both = text(facts(0.5, CATS, batch_predicted=[230, 94, 94, 94]))
    assert "may also be the model's confusion" in both
    told = text(facts(0.5, CATS, prior=[0.8, 0.1, 0.05, 0.05]))
    assert "The classes are uneven. You say that 80 % are 'cat'." in told
    for shifted in (both, text(facts(0.5))):  # a distance promises nothing
        assert "Shifted: try" in shifted
        assert "not whether adapting helps: fretta compare does" in shifted
    assert "The model favors 'cat'" in text(facts(0.5, CATS))
    assert "2 lie beside it by name" in text(facts(files=Files(9, duplicates=3, neighbors=2)))
    assert "most often: empty" in text(facts(files=Files(600, [("a", "empty")])))


@pytest.mark.parametrize(
    ("counts", "prior", "uneven"),
    [
        ([128] * 4, None, False),
        ([180, 110, 110, 112], None, True),
        ([8] * 64 + [0] * 936, None, False),
        ([60] + [1] * 999, None, True),
        ([400, 38, 37, 37], [0.8, 0.1, 0.05, 0.05], False),
        ([128] * 4, [0.8, 0.1, 0.05, 0.05], True),
    ],
)
def test_shares_against_what_is_expected(counts: list[int], prior: Any, uneven: bool) -> None:
    found = largest_class(counts, prior)
    assert found.uneven == uneven
    assert found.share == counts[found.number] / sum(counts)
