"""The answer at a glance: does adapting help, on this stream, with this model?"""

from __future__ import annotations

from dataclasses import dataclass

from ..experiment.results import mean_and_deviation
from .members import Setup
from .significance import Series, Test, basis, compare

VERDICTS = {
    "helps": "adapting helps",
    "hurts": "adapting hurts",
    "noise": "inside the noise",
    "open": "nothing to compare with",
    "failed": "no run finished",
}


@dataclass(frozen=True)
class Headline:
    suite: str
    title: str
    verdict: str  # a key of VERDICTS
    claim: str
    detail: str = ""
    best: str = ""  # label of the best adapting method
    value: float | None = None  # its mean accuracy, in %
    source: float | None = None

    @property
    def sentence(self) -> str:
        told = self.verdict in ("helps", "hurts", "noise")
        return f"{self.claim}: {VERDICTS[self.verdict]}" if told else self.claim


def _mean(series: Series) -> float | None:
    return mean_and_deviation([s.value for s in series.values()])[0] if series else None


def headline(setup: Setup) -> Headline:
    title, where = setup.heading, setup.title
    values = {id(m): m.mean(setup.domains) for m in setup.members}
    done = [m for m in setup.members if values[id(m)]]
    adapting = [m for m in done if m.method != "source"]
    source = setup.source
    if not done:
        return Headline(title, where, "failed", f"None of {_count(setup)} has a result yet.")
    best = max(adapting, key=lambda m: _mean(values[id(m)]) or 0.0, default=None)
    if source is None or not values[id(source)] or best is None:
        top = best or done[0]
        value = 100 * (_mean(values[id(top)]) or 0.0)
        missing = "source" if best is not None else "other methods"
        return Headline(
            *(title, where, "open", f"{top.label} {value:.1f} %. There is no run of {missing}."),
            best=top.label,
            value=value,
        )
    tests = {id(m): compare(values[id(m)], values[id(source)]) for m in adapting}
    test = tests[id(best)]
    mine, base = 100 * (_mean(values[id(best)]) or 0), 100 * (_mean(values[id(source)]) or 0)
    return Headline(
        title,
        where,
        _verdict(test),
        f"{best.label} {mine:.1f} % against {base:.1f} % for source",
        _detail(test, [_verdict(t) for t in tests.values()]),
        best.label,
        mine,
        base,
    )


def _count(setup: Setup) -> str:
    runs = sum(len(m.records) for m in setup.members)
    return f"{runs} runs" if runs > 1 else "one run"


def _verdict(test: Test | None) -> str:
    if test is None or not test.distinct:
        return "noise"
    return "helps" if test.difference > 0 else "hurts"


def _detail(test: Test | None, verdicts: list[str]) -> str:
    parts = []
    if test is not None:
        p = "" if test.p is None else "p < 0.001" if test.p < 0.001 else f"p = {test.p:.2g}"
        how = ", ".join(filter(None, [p, basis([test])])) or "one number each: no test"
        parts.append(f"{100 * test.difference:+.1f} points ({how})")
    if len(verdicts) > 1:
        tally = {v: verdicts.count(v) for v in ("helps", "noise", "hurts")}
        words = {"helps": "help", "noise": "inside the noise", "hurts": "hurt"}
        if tally["helps"] == len(verdicts):
            parts.append(f"all {len(verdicts)} methods help")
        else:
            each = ", ".join(f"{n} {words[v]}" for v, n in tally.items() if n)
            parts.append(f"of {len(verdicts)} methods, {each}")
    return "; ".join(parts)
