"""The guard: a batch that does harm leaves no trace, whatever the method, and healthy ones pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fretta
from fretta.data import Preprocessing, make_stream, open_dataset
from fretta.errors import ConfigError, FrettaWarning, InputError
from fretta.guard import Guard, Health, Mode
from fretta.guard.judge import judge_learning, judge_statistics, source_lost, trusted_again
from fretta.guard.monitor import compare
from fretta.guard.schedule import Looks
from fretta.learner import Learner
from fretta.method import Method
from fretta.methods import REGISTRY
from fretta.models import load_source
from fretta.parts.classifier import Classifier
from fretta.state import copy_value, take_snapshot
from nets import batches, build, grid, same
from test_conformance import settings

# Between them these keep all that methods keep: moments, a bank, a buffer, generators, averages.
QUICK = {"bn", "g-fret", "tea", "sar"}
every_method = pytest.mark.parametrize("key", grid(sorted(REGISTRY), QUICK.__contains__))
gradient_method = pytest.mark.parametrize(
    "key", grid([key for key, cls in sorted(REGISTRY.items()) if cls.gradient], QUICK.__contains__)
)
quiet = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
# thresholds nothing reaches but what a test does on purpose: untrained networks look ill
LAX: dict[str, Any] = {"max_cost": 99.0, "errors": 99.0, "max_drift": 50.0}


def adapter(key: str, guard: Any, net: str = "resnet-like", **more: Any) -> fretta.Adapter:
    return fretta.adapt(build(net), key, guard=guard, **settings(key, **more))


def bare(adapter: fretta.Adapter, *without: str) -> dict[str, Any]:
    """The state without what the guard itself remembers."""
    state = adapter.state_dict()
    state.pop("guard", None), state.pop("head")  # which looking at the features finds
    state.pop("batches"), state.pop("digest")  # a batch that was undone has been seen
    for name in ("kept", *without):  # `kept` is the filter's report of the last batch
        state["running"].pop(name, None)
    return state


def poison(monkeypatch: pytest.MonkeyPatch, method: Method, what: str) -> None:
    """From now on every step does what it does, and then breaks something."""
    step = type(method).step

    def broken(self: Method, model: Classifier, x: Tensor) -> Tensor:
        logits = step(self, model, x)
        if what == "error":
            raise InputError("no")
        with torch.no_grad():
            for parameter in model.parameters()[:1]:
                if what != "logits":
                    parameter.copy_(parameter * (torch.nan if what == "parameters" else 1e9))
        return logits * torch.nan if what == "logits" else logits

    monkeypatch.setattr(type(method), "step", broken)


# ---- no trace ----------------------------------------------------------------------------------


POISONED = ("logits", "parameters")
POISONS = [  # logits of a step count where they are returned, parameters where there are any
    (key, what)
    for key, cls in sorted(REGISTRY.items())
    for what, possible in (("logits", cls.timing == "before"), ("parameters", cls.gradient))
    if possible
]


@quiet
@pytest.mark.parametrize(
    ("key", "what", "policy"),
    grid(
        [*[(*p, "rollback") for p in POISONS], *[("g-fret", what, "skip") for what in POISONED]],
        lambda case: case[0] in QUICK,
    ),
)
def test_a_poisoned_batch_leaves_no_trace(
    key: str, what: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, bad, last = batches(6, 6, 6, 6)
    a = adapter(key, Guard(policy, **LAX))
    b = adapter(key, Guard(policy, **LAX))
    for x in (first, second):
        a(x), b(x)
    before = bare(a)
    expected = a.predict(bad)
    with monkeypatch.context() as patch:
        poison(patch, a.method, "error")
        with pytest.raises(InputError, match="no"):
            a(bad)
    assert same(bare(a), before)
    with monkeypatch.context() as patch:
        poison(patch, a.method, what)
        out = a(bad)
    assert a.health is not None
    assert (a.health.action, a.health.reason) == (policy, "logits or parameters are not finite")
    assert torch.equal(out, expected)  # from the state before the update
    assert same(bare(a), before)
    assert torch.equal(a(last), b(last))  # nor in what follows


@quiet
@gradient_method
def test_rollback_and_reset(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last good state, and to the initial one."""
    a = adapter(key, Guard("rollback", sample=1.0, keep=2, **LAX))
    b = adapter(key, Guard("reset", **LAX))
    stream = batches(*[32] * 5)  # two are 64 images: a snapshot at every other one
    a.predict(stream[0]), b.predict(stream[0])
    states = []
    for x in stream:
        states.append(bare(a))
        a(x), b(x)
    assert a._supervisor is not None
    ring = [snapshot["adapted"] for snapshot in a._supervisor.ring]
    kept = [next(s for s in states[1:] if same(adapted, s["adapted"])) for adapted in ring]
    assert len(kept) == 2
    with monkeypatch.context() as patch:
        poison(patch, a.method, "drift")
        for adapted in (a, b):
            adapted(batches(6, seed=5)[0])
    assert a.health is not None
    assert a.health.action == "rollback"
    assert "moved" in a.health.reason
    for name in (*a.method.lasting, "batch_norm"):  # does not come from learning
        kept[-1]["running"].pop(name, None)
    assert same(bare(a, *a.method.lasting, "batch_norm"), kept[-1])
    states[0]["running"].pop("scale", None)  # how inputs become pixels is known from then on
    assert same(bare(b, "scale"), states[0])


@quiet
def test_no_rollback_to_what_a_reset_forgot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third batch begins anew: what harms it goes back to the beginning, not before it."""
    a = adapter("tent", Guard("rollback", sample=1.0, **LAX), reset_every=2)
    for x in batches(64, 64):
        a(x)
    assert a._supervisor is not None
    assert not same(a._supervisor.ring[-1]["adapted"], a.model.origin)  # a state that learned
    poison(monkeypatch, a.method, "drift")
    a(batches(6)[0])
    assert a.health is not None
    assert a.health.action == "rollback"
    assert same(dict(a.model.adapted), a.model.origin)


@quiet
def test_batches_are_counted_before_anybody_looks() -> None:
    x, seen = batches(6)[0], list[Health]()
    a, late, used = adapter("tent", None), adapter("tent", "warn"), adapter("tent", "warn")
    for _ in range(2):
        a(x)
    state = a.state_dict()
    a.on_health(seen.append)
    a(x)
    used(x)  # has a supervisor, which has seen one batch
    for guarded in (late, used):
        guarded.load_state_dict(state)
        guarded(x)
        seen.extend([guarded.health] if guarded.health else [])
    assert [health.batch for health in seen] == [2, 2, 2]


@quiet
@every_method
def test_an_interrupted_guarded_run_goes_on_bit_for_bit(
    key: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = batches(6, 6, 4, 1, 6, 5)
    guard = Guard("rollback", sample=1.0, **LAX)
    full = adapter(key, guard)
    seen: list[tuple[Tensor, Health | None]] = []
    for number, x in enumerate(stream):
        if number == 3:
            torch.save(full.state_dict(), tmp_path / "state.pt")
        seen.append((full(x), full.health))
    resumed = adapter(key, guard)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for x, (logits, health) in zip(stream[3:], seen[3:], strict=True):
        assert torch.equal(resumed(x), logits)
        assert resumed.health == health
    assert same(resumed.state_dict(), full.state_dict())
    if REGISTRY[key].gradient:  # also through a rollback to a state from before the interruption
        resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        again = adapter(key, guard)
        for x in stream[:3]:
            again(x)
        poison(monkeypatch, full.method, "drift")
        assert torch.equal(resumed(stream[3]), again(stream[3]))
        assert same(resumed.state_dict(), again.state_dict())


@quiet
@pytest.mark.parametrize(("key", "store"), [("g-fret", "bank"), ("tea", "buffer")])
def test_a_snapshot_of_a_large_store_shares_its_rows(key: str, store: str) -> None:
    """One at every batch costs no copy of what the store holds."""
    a = adapter(key, None)
    x, y = batches(6, 6)
    a(x)
    before = bare(a)
    snapshot = take_snapshot(a.model, a.method, copy_value)
    twin, rows = snapshot["running"][store], {"bank": "slots", "buffer": "rows"}[store]
    shared = [t for t in getattr(twin, rows) if t is not None]
    assert shared
    assert all(any(t is u for u in getattr(getattr(a.method, store), rows)) for t in shared)
    a(y)
    assert not same(bare(a), before)
    assert same(twin.state_dict(), before["running"][store])


# ---- what counts as harm -----------------------------------------------------------------------


def sure(classes: list[int], confidence: float) -> Tensor:
    """Logits that give each image its class with this confidence, and the rest to the others."""
    p = torch.full((len(classes), 10), (1 - confidence) / 9)
    return p.scatter(1, torch.tensor(classes)[:, None], confidence).log()


EVEN = [i % 10 for i in range(100)]
ONE = [3] * 80 + EVEN[:20]
OTHERS = [(c + 1 + i % 9) % 10 for i, c in enumerate(ONE)]


def test_a_comparison_by_hand() -> None:
    """Three images, two classes: they agree on the first."""
    p = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]])
    q = torch.tensor([[0.8, 0.2], [0.3, 0.7], [0.1, 0.9]])
    seen = compare(p.log(), q.log())
    assert seen.gain == pytest.approx((0.2 + 0.4) / 3, abs=1e-6)
    assert seen.cost == pytest.approx((0.4 + 0.8) / 3, abs=1e-6)
    assert seen.unsure == pytest.approx(1 - (0.8 + 0.7 + 0.9) / 3, abs=1e-6)
    chance = (2.2 * 1.2 + 0.8 * 1.8) / 9
    assert seen.agreement == pytest.approx((1 / 3 - chance) / (1 - chance), abs=1e-6)


@pytest.mark.parametrize(
    ("changed", "confidence", "harm"),
    [
        (0, 0.8, False),
        (10, 0.25, False),  # it changes what the other was unsure of
        (2, 0.9, False),  # two images prove nothing
        (20, 0.9, True),  # it overturns what the other was sure of
        (100, 0.5, True),  # a collapse
    ],
)
def test_verdicts_on_learning(changed: int, confidence: float, harm: bool) -> None:
    """The learned model is sure of everything, which does not count."""
    learned = sure([0 if i < changed else c for i, c in enumerate(EVEN)], 0.99)
    reference = torch.cat([sure(EVEN[:changed], confidence), sure(EVEN[changed:], 0.8)])
    found = judge_learning(compare(learned, reference), Guard())
    assert (found is not None and found.kind == "learning") == harm
    assert judge_learning(compare(learned[:8], reference[:8]), Guard()) is None  # too few


@pytest.mark.parametrize(
    ("mine", "confidence", "source", "source_confidence", "harm", "lost"),
    [
        (EVEN, 0.9, EVEN, 0.6, False, False),  # they agree
        (EVEN, 0.9, EVEN[1:] + EVEN[:1], 0.6, False, False),  # surer than the source model
        (OTHERS, 0.5, EVEN, 0.9, True, False),  # statistics of two images
        (OTHERS, 0.5, ONE, 0.9, True, False),  # one class is 82 % of the stream, rightly
        (EVEN, 0.5, [3] * 100, 0.95, False, True),  # a source model that is sure and wrong
        (EVEN[:48], 0.5, [3] * 48, 0.95, True, False),  # or one class: too few images to tell
    ],
)
def test_verdicts_on_statistics(
    mine: list[int],
    confidence: float,
    source: list[int],
    source_confidence: float,
    harm: bool,
    lost: bool,
) -> None:
    if source is ONE:  # a third of the predictions is still right
        mine = [c if i % 3 == 0 else m for i, (m, c) in enumerate(zip(mine, ONE, strict=True))]
    seen = compare(sure(mine, confidence), sure(source, source_confidence))
    found = judge_statistics(seen, Guard())
    assert (found is not None and found.kind == "statistics") == harm
    assert source_lost(seen) == lost
    assert not (harm and trusted_again(seen, Guard()))
    assert trusted_again(seen, Guard()) or harm or mine == source


def test_looks() -> None:
    """The first images in full, then a share of them, a few small batches at a time."""
    for n, expected in ((128, [0, 1, 9, 17, 25]), (16, [*range(16), 47, 48, 49, 50])):
        looks = Looks(1 / 8, 256)
        seen = [i for i in range(320) if looks.due(n, now=False)]
        assert seen[: len(expected)] == expected
        assert len(seen) * n <= 320 * n / 8 + 256 + 64
    looks = Looks(1 / 8, 0)
    assert looks.due(8, now=True)
    looks.ask(1)
    assert [looks.due(8, now=False) for _ in range(2)] == [True, False]


# ---- real streams ------------------------------------------------------------------------------


class Digits:
    def __init__(self) -> None:
        self.model, card = load_source("digits")
        preprocessing = Preprocessing.from_json(card.preprocessing)
        stream = make_stream(
            open_dataset("digits", corruption=["gaussian_noise", "glass_blur"]),
            batch_size=540,
            seed=0,
        )
        self.x, self.y = zip(*[(preprocessing.apply(b.x), b.y) for b in stream], strict=True)

    def run(
        self, a: fretta.Adapter, domain: int, size: int, count: int, by_class: bool = False
    ) -> tuple[float, float, list[Health]]:
        """(accuracy, that of the source model, health)."""
        x, y = self.x[domain], self.y[domain]
        if by_class:
            rows = y.argsort(stable=True)
            x, y = x[rows], y[rows]
        x, y = x[:count], y[:count]
        health, logits = [], []
        for part in x.split(size):
            logits.append(a(part))
            if a.health is not None:
                health.append(a.health)
        right = float((torch.cat(logits).argmax(1) == y).float().mean())
        return right, float((a.source_logits(x).argmax(1) == y).float().mean()), health


@pytest.fixture(scope="module")
def digits() -> Digits:
    return Digits()


@quiet
@pytest.mark.parametrize("key", ["tent", "s-fret"])
def test_a_rate_far_too_high_collapses_without_the_guard_only(key: str, digits: Digits) -> None:
    alone, source, _ = digits.run(fretta.adapt(digits.model, key, lr=1.0), 1, 32, 320)
    assert alone < source - 0.2
    a = fretta.adapt(digits.model, key, lr=1.0, guard="rollback")
    guarded, _, health = digits.run(a, 1, 32, 320)
    assert guarded > source
    assert {h.action for h in health} == {"", "rollback"}
    assert health[-1].update_norm == 0  # repeated trouble: it stopped learning
    a = fretta.adapt(digits.model, key, lr=1.0, guard="warn")
    warned, _, health = digits.run(a, 1, 32, 320)
    assert warned == alone
    assert "warn" in {h.action for h in health}


def test_one_class_at_a_time_is_left_to_the_source_model(digits: Digits) -> None:
    alone, source, _ = digits.run(fretta.adapt(digits.model, "tent"), 1, 16, 320, by_class=True)
    assert alone < source - 0.2
    a = fretta.adapt(digits.model, "tent", guard="rollback")
    with pytest.warns(
        FrettaWarning, match="batch statistics make predictions less certain"
    ) as shown:
        guarded, _, _ = digits.run(a, 1, 16, 320, by_class=True)
    assert len(shown) == 1  # one warning, not one per batch
    assert guarded >= source - 0.01
    assert a.safe
    x = digits.x[1][:8]
    assert torch.equal(a.predict(x), a.source_logits(x))
    with torch.no_grad():
        assert torch.equal(a.export()(x), a.predict(x))
    # and when the stream gets better, adaptation is trusted again
    digits.run(a, 0, 64, 540)
    assert not a.safe
    assert a.health is not None
    assert a.health.action == ""


def test_a_healthy_stream_is_left_alone_at_a_bounded_cost(
    digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = {"source_forward": 0, "unlearned_forward": 0}

    def counted(name: str) -> Any:
        forward = getattr(Learner, name)

        def count(self: Learner, x: Tensor) -> Tensor:
            images[name] += len(x)
            result: Tensor = forward(self, x)
            return result

        return count

    for name in images:
        monkeypatch.setattr(Learner, name, counted(name))
    guarded = fretta.adapt(digits.model, "tent", guard="rollback")
    plain = fretta.adapt(digits.model, "tent")
    for _ in range(3):
        for part in digits.x[0].split(32):
            assert torch.equal(guarded(part), plain(part))
            assert guarded.health is not None
            assert guarded.health.action == ""
    seen = 3 * len(digits.x[0])
    for name, share in (("unlearned_forward", 1 / 8), ("source_forward", 1 / 32)):
        assert images[name] <= seen * share + 256 + 3 * 64  # the first images, a doubt or two
    watched = fretta.adapt(digits.model, "tent")
    watched.on_health(lambda _: None)
    images["source_forward"] = 0
    for part in digits.x[0].split(32):
        watched(part)
    assert 0 < images["source_forward"] <= len(digits.x[0]) / 32


def test_learning_is_forgotten_and_statistics_stay(digits: Digits) -> None:
    """Harm by learning says nothing about statistics that follow the stream."""
    a = fretta.adapt(digits.model, "auto", guard="rollback", lr=1.0)
    plain = fretta.adapt(digits.model, "stein")
    with pytest.warns(FrettaWarning, match="guard"):
        guarded, source, health = digits.run(a, 1, 32, 320)
    assert guarded > source + 0.2
    assert "rollback" in {h.action for h in health}
    adapted, _, _ = digits.run(plain, 1, 32, 320)
    assert guarded > adapted - 0.05
    statistics, gate = a.model.statistics, a.method.gate  # type: ignore[attr-defined]
    assert statistics is not None
    before = statistics.used[0].clone()
    a.learner.unlearn()
    assert a.method.gate is gate  # type: ignore[attr-defined]
    assert torch.equal(statistics.used[0], before)
    assert same(dict(a.model.adapted), a.model.origin)


@pytest.mark.parametrize("key", ["stein", "auto"])
def test_methods_that_hedge_are_left_alone(key: str, digits: Digits) -> None:
    guarded = fretta.adapt(digits.model, key, guard="rollback")
    plain = fretta.adapt(digits.model, key)
    for part in torch.cat([digits.x[0][:256], digits.x[1][:256]]).split(64):
        assert torch.equal(guarded(part), plain(part))


# ---- around it ---------------------------------------------------------------------------------


@quiet
@pytest.mark.slow
@every_method
def test_hard_batches_under_guard(key: str) -> None:
    """Batches of one, several steps, episodes, identical images: finite logits and records."""
    image = batches(1)[0]
    stream = (image, image.expand(6, -1, -1, -1), torch.zeros(4, 3, 32, 32), *batches(2, 6))
    for more in ({"steps": 2}, {"episodic": True}):
        a = adapter(key, "rollback", **more)
        for x in stream:
            assert torch.isfinite(a(x)).all()
            assert a.health is not None
            assert a.health.samples == len(x)


def test_settings_that_cannot_work() -> None:
    net = nn.Module()
    for guard, match in (
        ("undo", "choose from warn, skip"),
        (3, "guard is a int"),
        ({"policy": "skip"}, "guard is a dict"),
    ):
        with pytest.raises(ConfigError, match=match):
            fretta.adapt(net, "source", guard=guard)  # type: ignore[arg-type]
    for values in ({"window": 0}, {"keep": 1.5}, {"sample": 2.0}, {"max_cost": float("nan")}):
        with pytest.raises(ConfigError, match=next(iter(values))):
            Guard(**values)  # type: ignore[arg-type]


def test_health_while_the_source_predicts_is_that_of_the_batch() -> None:
    """A resumed stream writes the same records: no features of an earlier batch are in them."""
    a, b = (adapter("tent", "rollback") for _ in range(2))
    first, second = batches(6, 6)
    a(first)
    supervisor = a._supervisor
    assert supervisor is not None
    supervisor.mode, supervisor.missing = Mode.SOURCE, 1000
    b.load_state_dict(a.state_dict())
    assert torch.equal(a(second), b(second))
    assert a.health == b.health
    assert a.health is not None
    assert a.health.nrs is None


def test_the_smallest_window() -> None:
    adapter = fretta.adapt(build("resnet-like"), "tent", guard=Guard("rollback", window=1))
    for x in batches(6, 6, 6):
        assert adapter(x).isfinite().all()
