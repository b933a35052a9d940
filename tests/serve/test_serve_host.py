"""Many streams in one process: each as if it were alone, and cheap."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from serve_nets import a_case, a_host, adapted, as_input, pixels, same, shares, state_of
from torch import Tensor, nn

import fretta
from fretta.data import make_stream, open_dataset
from fretta.errors import InputError, StoreError, UnknownStreamError
from fretta.parts.norm import norm_layers
from fretta.parts.tensors import copy_tensors
from fretta.serve.host import StreamHost
from fretta.serve.settings import Settings
from fretta.serve.sharing import digest_of, own_bytes, storages, tensors_of
from nets import CLASSES, build, grid

quiet = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
TOLD = [("auto", "rollback"), ("stein", "none"), ("tent", "rollback"), ("g-fret", "none")]
ALONE = [m for m in fretta.list_methods() if m not in ("eata", "foa-shift")]  # no source images
ALL = [(method, guard) for method in ALONE for guard in ("none", "rollback")]


@quiet
@pytest.mark.parametrize(("method", "guard"), grid(ALL, lambda pair: pair in TOLD))
def test_predictions_are_those_of_adapt_and_the_model_stays(method: str, guard: str) -> None:
    net = build("resnet-like")
    stream = pixels(8, 8, 3, 8)
    wanted = adapted(net, stream, method, guard=guard)
    host = a_host(method=method, guard=guard)
    before = digest_of(host.source)
    for images, expected in zip(stream, wanted, strict=True):
        answers = host.predict("cam", images)
        assert torch.equal(shares(answers), expected)
        best = [(a.index, a.label, a.confidence) for a in answers]
        top = zip(*expected.max(1), strict=True)
        assert best == [(int(i), str(int(i)), float(p)) for p, i in top]
    assert digest_of(host.source) == before
    assert [(a.batch, a.position) for a in answers] == [(3, i) for i in range(8)]


@quiet
def test_streams_do_not_touch_each_other() -> None:
    host = a_host(method="auto")
    streams = {f"cam{i}": pixels(8, 8, 8, seed=i) for i in range(3)}
    found: dict[str, list[Tensor]] = {name: [] for name in streams}
    for number in range(3):
        for name, stream in streams.items():
            found[name].append(shares(host.predict(name, stream[number])))
    for name, stream in streams.items():
        wanted = adapted(build("resnet-like"), stream, "auto", guard="rollback")
        assert all(map(torch.equal, found[name], wanted))


@pytest.mark.slow
@quiet
def test_threads_may_call_at_once() -> None:
    host = a_host()
    streams = {f"cam{i}": pixels(8, 8, 8, seed=i) for i in range(4)}

    def run(name: str) -> list[Tensor]:
        return [shares(host.predict(name, images)) for images in streams[name]]

    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(streams, pool.map(run, streams), strict=True))
    for name, stream in streams.items():
        wanted = adapted(build("resnet-like"), stream, "tent", guard="rollback")
        assert all(map(torch.equal, found[name], wanted))


@quiet
@pytest.mark.parametrize(
    ("method", "count"),
    grid([("tent", 30), ("tent", 100), ("auto", 100)], lambda case: case[1] == 30),
)
def test_many_streams_cost_one_model_and_what_they_adapt(method: str, count: int) -> None:
    torch.manual_seed(0)
    parts = (nn.Conv2d(3, 32, 5, 4), nn.BatchNorm2d(32), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net = nn.Sequential(*parts, nn.Linear(32, CLASSES)).eval()
    host = a_host(a_case(net), method=method, guard="none")
    norms = [f"{name}." for name in norm_layers(host.source)]
    learned = {n: p for n, p in host.source.named_parameters() if n.startswith(tuple(norms))}
    frozen = {p.data_ptr() for n, p in host.source.named_parameters() if n not in learned}
    for images in pixels(2, 2):
        for number in range(count):
            host.predict(f"cam{number}", images)
    streams = list(host._streams.values())
    assert len(streams) == count
    for stream in streams:  # the frozen weights of all are one memory
        parameters = dict(stream.adapter.net.named_parameters())
        assert {p.data_ptr() for n, p in parameters.items() if n not in learned} == frozen
        assert not {parameters[n].data_ptr() for n in learned} & frozen
    model = sum(storages(tensors_of(host.source)).values())
    together = sum(storages(tensors_of([host.source, host._pool, streams])).values())
    alone = own_bytes(streams[0], storages(tensors_of([host.source, host._pool])))
    pool = sum(storages(tensors_of(host._pool)).values())
    assert together <= model + pool + count * alone
    # parameters, their gradients and Adam's two moments, a step count for each
    size = sum(p.nbytes for p in learned.values())
    if method == "tent":
        assert alone <= 4 * size + 4 * len(learned) + 2048
    assert host.detail("cam0")["memory_bytes"] == alone
    assert pool < model


@quiet
def test_images_with_one_id_have_answers_of_their_own() -> None:
    """Two clients may both call their image 1."""
    images = pixels(8)[0]
    wanted = adapted(build("resnet-like"), [images], "tent", guard="rollback")[0]
    host = a_host()
    answers = host.predict("cam", images, ["1"] * 8)
    assert torch.equal(shares(answers), wanted)
    assert [a.position for a in answers] == list(range(8))
    assert host.feedback("cam", {"1": 0})["taken"] == 1


# ---- what goes wrong -----------------------------------------------------------------------------


@quiet
def test_a_bad_batch_changes_nothing() -> None:
    host = a_host()
    good = pixels(8, 8)
    host.predict("cam", good[0])
    before, row = state_of(host, "cam"), host.overview()
    small = [np.zeros((8, 8, 3), np.uint8)]
    bad: list[tuple[Any, Any]] = [
        ([], None),
        (small, None),
        ([*good[0], *small], None),
        ([np.zeros((32, 32), np.uint8)], None),
        ([np.zeros((32, 32, 3), np.float32)], None),
        (torch.full((2, 3, 32, 32), torch.nan), None),
        (torch.zeros(2, 4, 32, 32), None),
        (torch.zeros(2, 3, 32, 32, dtype=torch.float64), None),
        (good[0], ["a"]),
        (good[0], ["x" * 200] * 8),
        (good[0], [1] * 8),
    ]
    for images, ids in bad:
        for name in ("cam", "new"):
            with pytest.raises(InputError):
                host.predict(name, images, ids)
    assert same(state_of(host, "cam"), before)
    assert host.overview() == row
    wanted = adapted(build("resnet-like"), good, "tent", guard="rollback")
    assert torch.equal(shares(host.predict("cam", good[1])), wanted[1])


@quiet
@pytest.mark.parametrize("guard", ["none", "rollback"])
def test_a_failure_after_the_update_is_undone(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host = a_host(guard=guard)
    good = pixels(8, 8, 8)
    for images in good[:2]:
        host.predict("cam", images)
    before = state_of(host, "cam")
    method = host._streams["cam"].adapter.method
    real = method.step

    def fails(model: Any, x: Tensor) -> Tensor:
        real(model, x)
        raise MemoryError

    monkeypatch.setattr(type(method), "step", lambda self, model, x: fails(model, x))
    with pytest.raises(MemoryError):
        host.predict("cam", good[2])
    monkeypatch.undo()
    assert same(state_of(host, "cam"), before)
    wanted = adapted(build("resnet-like"), good, "tent", guard=guard)
    assert torch.equal(shares(host.predict("cam", good[2])), wanted[2])


@quiet
def test_what_is_adapted_is_copied_once_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    host = a_host(guard="none")
    host.predict("cam", pixels(8)[0])
    copies: list[Any] = []

    def counted(tensors: Any) -> Any:
        copies.append(tensors)
        return copy_tensors(tensors)

    monkeypatch.setattr("fretta.state.copy_tensors", counted)
    host.predict("cam", pixels(8)[0])
    assert len(copies) == 1  # by the adapter, which undoes what fails


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", "/etc", "a\0", "a\n", "é", "-a", "x" * 65, 3]
)
def test_names_that_could_be_paths_are_refused(name: Any, host: StreamHost) -> None:
    with pytest.raises(InputError, match="name of a stream"):
        host.predict(name, pixels(2)[0])
    with pytest.raises(InputError, match="name of a stream"):
        host.reset(name)
    assert host.overview() == []


def test_what_is_not_there_is_said(host: StreamHost) -> None:
    for call in (host.detail, host.reset, host.freeze, host.resume):
        with pytest.raises(UnknownStreamError, match="'none'"):
            call("none")
    with pytest.raises(UnknownStreamError):
        host.feedback("none", {})
    host.close()
    with pytest.raises(StoreError, match="stopping"):
        host.predict("cam", pixels(2)[0])


@pytest.fixture(scope="module")
def host() -> StreamHost:
    return a_host()


# ---- the operator --------------------------------------------------------------------------------


@quiet
def test_reset_freeze_and_resume() -> None:
    host = a_host()
    stream = pixels(8, 8, 8)
    first = [shares(host.predict("cam", images)) for images in stream]
    learned = state_of(host, "cam")["adapter"]
    assert host.freeze("cam")["frozen"]
    twice = [shares(host.predict("cam", stream[0])) for _ in range(2)]
    assert torch.equal(*twice)
    assert not torch.equal(twice[0], first[0])  # it predicts as it learned to
    assert same(state_of(host, "cam")["adapter"], learned)
    assert not host.resume("cam")["frozen"]
    host.predict("cam", stream[0])
    assert not same(state_of(host, "cam")["adapter"], learned)
    row = host.reset("cam")
    again = [shares(host.predict("cam", images)) for images in stream]
    assert all(map(torch.equal, first, again))
    detail = host.detail("cam")
    assert row["batches"] == 6
    assert [event["event"] for event in detail["events"]] == ["freeze", "resume", "reset"]
    assert [row["learned"] for row in detail["history"]] == [True] * 3 + [False] * 2 + [True] * 4
    assert (detail["batches"], detail["learned"], detail["images"]) == (9, 7, 72)


@quiet
def test_late_labels_measure_and_teach_nothing() -> None:
    case = a_case()
    host = a_host(case, compare_source=True)
    stream = pixels(16, 16)
    answers = [a for images in stream for a in host.predict("cam", images)]
    before = state_of(host, "cam")
    x = torch.cat([as_input(images) for images in stream])
    with torch.no_grad():
        source = build("resnet-like")(x).argmax(1).tolist()
    labels = {a.id: i % CLASSES for i, a in enumerate(answers)}
    found = host.feedback("cam", {key: str(label) for key, label in labels.items()} | {"no": 1})
    triples = [(a.index, s, y) for a, s, y in zip(answers, source, labels.values(), strict=True)]
    assert found["unknown"] == ["no"]
    assert found["taken"] == found["labeled"] == 32
    assert found["accuracy"] == sum(p == y for p, _, y in triples) / 32
    wanted = {
        "images": 32,
        "source_right": sum(s == y for _, s, y in triples),
        "gained": sum(p == y != s for p, s, y in triples),
        "lost": sum(s == y != p for p, s, y in triples),
    }
    assert wanted.items() <= found["measured"].items()
    assert "(measured)" in found["text"]
    # the same labels again, then others: each image counts once
    assert host.feedback("cam", labels)["measured"] == found["measured"]
    other = host.feedback("cam", {a.id: a.index for a in answers})
    assert (other["accuracy"], other["measured"]["lost"]) == (1.0, 0)
    for bad in ("x", 5, -1, True, 1.0, None):
        with pytest.raises(InputError, match="is no class"):
            host.feedback("cam", {answers[0].id: 1, answers[1].id: bad})  # type: ignore[dict-item]
    assert host.detail("cam")["measured"] == other["measured"]
    assert same(state_of(host, "cam"), before)


@quiet
def test_without_compare_source_some_labels_count_for_accuracy_alone() -> None:
    host = a_host()
    answers = host.predict("cam", pixels(16)[0])
    found = host.feedback("cam", {a.id: 0 for a in answers})
    assert (found["labeled"], found["not_compared"], found["measured"]["images"]) == (16, 14, 2)


@quiet
def test_history_and_remembered_ids_are_bounded() -> None:
    host = a_host(history=4, remember=6)
    answers = [host.predict("cam", images) for images in pixels(*[4] * 6)]
    assert [row["batch"] for row in host.detail("cam")["history"]] == [2, 3, 4, 5]
    found = host.feedback("cam", {a.id: 0 for batch in answers for a in batch})
    assert found["taken"] == 6
    assert len(found["unknown"]) == 18


# ---- which model predicts ------------------------------------------------------------------------


@pytest.mark.slow
@quiet
def test_the_answer_says_whose_it_is() -> None:
    """One class at a time does harm to the statistics of batches: the guard turns to the source
    model, and back when classes are mixed."""
    data = open_dataset("digits", corruption="glass_blur")
    host = StreamHost(Settings(model="digits", method="tent"))
    batch = next(iter(make_stream(data, batch_size=480)))
    x = host.case.preprocessing.apply(batch.x)
    predicted_by = []
    for part in torch.cat([x[batch.y.argsort(stable=True)][:96], x]).split(32):
        answers = host.predict("cam", part)
        source = host._streams["cam"].adapter.source_logits(part).softmax(1)
        predicted_by.append(answers[0].predicted_by)
        equal = torch.equal(torch.tensor([a.confidence for a in answers]), source.max(1).values)
        assert equal == (predicted_by[-1] == "source")
    assert set(predicted_by) == {"source", "adapted"}
    assert host.overview()[0]["by_source"] == 32 * predicted_by.count("source")
