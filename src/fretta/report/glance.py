"""The answer at a glance: does adapting help, on this stream, with this model?"""

from __future__ import annotations

from dataclasses import dataclass

from .setups import Setup
from .significance import Test, basis, compare

VERDICTS = {
    "helps": "adapting helps",
    "hurts": "adapting hurts",
    "noise": "inside the noise",
    "untested": "too few numbers to test",
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
        compared = self.verdict not in ("open", "failed")
        return f"{self.claim}: {VERDICTS[self.verdict]}" if compared else self.claim


def headline(setup: Setup) -> Headline:
    place = (setup.heading, setup.title)
    scores = setup.scores(setup.domains)
    means = 100 * scores["value"].groupby(["row", "seed"]).mean().groupby("row").mean()
    if means.empty:
        runs = f"{len(setup.runs)} runs" if len(setup.runs) > 1 else "one run"
        return Headline(*place, "failed", f"None of {runs} has a result yet.")
    adapting = means[setup.rows["method"].loc[means.index] != "source"]
    source = setup.source
    top = int((means if adapting.empty else adapting).idxmax())
    best, value = str(setup.rows["label"][top]), float(means[top])
    if source not in means.index or adapting.empty:
        missing = "other methods" if adapting.empty else "source"
        claim = f"{best} {value:.1f} %. There is no run of {missing}."
        return Headline(*place, "open", claim, "", best, value)
    base = scores.loc[source]
    tests = {row: compare(scores.loc[row], base) for row in adapting.index}
    verdicts = [_verdict(test) for test in tests.values()]
    claim = f"{best} {value:.1f} % against {means[source]:.1f} % for source"
    detail = _detail(tests[top], verdicts)
    return Headline(*place, _verdict(tests[top]), claim, detail, best, value, float(means[source]))


def _verdict(test: Test | None) -> str:
    if test is None or test.p is None:
        return "untested"
    if not test.distinct:
        return "noise"
    return "helps" if test.difference > 0 else "hurts"


def _detail(test: Test | None, verdicts: list[str]) -> str:
    parts = []
    if test is not None:
        p = "" if test.p is None else "p < 0.001" if test.p < 0.001 else f"p = {test.p:.2g}"
        stated = ", ".join(filter(None, [p, basis([test])])) or "one number each: no test"
        parts.append(f"{100 * test.difference:+.1f} points ({stated})")
    if len(verdicts) > 1:
        words = {"helps": "help", "noise": "inside the noise", "hurts": "hurt"}
        words["untested"] = "not tested"
        each = [f"{n} {words[v]}" for v in words if (n := verdicts.count(v))]
        everyone = verdicts.count("helps") == len(verdicts)
        methods = f"{len(verdicts)} methods"
        parts.append(f"all {methods} help" if everyone else f"of {methods}, {', '.join(each)}")
    return "; ".join(parts)
