"""Nothing is lost: checkpoints, streams put away, services that come back."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest
import torch
from serve_nets import a_case, a_host, adapted, as_input, pixels, same, shares, state_of

import fretta
from fretta.errors import CheckpointError, FrettaWarning, StoreError
from fretta.serve.host import StreamHost
from fretta.serve.settings import Settings
from fretta.serve.store import StreamStore
from nets import build, grid

quiet = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
TOLD = [("auto", "rollback"), ("tent", "none")]
ALONE = [m for m in fretta.list_methods() if m not in ("eata", "foa-shift")]  # no source images
ALL = [*TOLD, *((method, "rollback") for method in ALONE if (method, "rollback") not in TOLD)]


@quiet
@pytest.mark.parametrize(("method", "guard"), grid(ALL, lambda pair: pair in TOLD))
def test_a_service_that_comes_back_goes_on_bit_for_bit(
    method: str, guard: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"method": method, "guard": guard, "store": str(tmp_path)}
    stream = pixels(8, 8, 8, 8)
    wanted = adapted(build("resnet-like"), stream, method, guard=guard)
    before = a_host(**options)
    answers = [a for images in stream[:2] for a in before.predict("cam", images)]
    detail, state = before.detail("cam"), state_of(before, "cam")
    before.close()
    after = a_host(**options)
    assert after.names() == ["cam"]
    again = after.detail("cam")
    for key in ("history", "events", "images", "estimate", "verdict", "actions", "seconds"):
        assert again[key] == detail[key]
    assert same(state_of(after, "cam"), state)
    found = [shares(after.predict("cam", images)) for images in stream[2:]]
    assert all(map(torch.equal, found, wanted[2:]))
    assert after.feedback("cam", {a.id: 0 for a in answers})["taken"] == 16


@quiet
def test_after_a_kill_the_last_checkpoint_counts(tmp_path: Path) -> None:
    stream = pixels(8, 8, 8, 8, 8)
    killed = a_host(store=str(tmp_path), checkpoint_every=2)
    for images in stream[:3]:
        killed.predict("cam", images)  # and no close
    after = a_host(store=str(tmp_path), checkpoint_every=2)
    found = [shares(after.predict("cam", images)) for images in stream[3:]]
    learned = [*stream[:2], *stream[3:]]
    wanted = adapted(build("resnet-like"), learned, "tent", guard="rollback")
    assert all(map(torch.equal, found, wanted[2:]))
    assert after.overview()[0]["checkpoint"] == 4


@quiet
def test_a_save_that_is_killed_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = a_host(store=str(tmp_path))
    first, second = pixels(8, 8)
    host.predict("cam", first)
    assert host.checkpoint() == 1
    assert host.checkpoint() == 0  # nothing changed
    state = state_of(host, "cam")
    host.predict("cam", second)

    def killed(draft: Path, path: Path) -> None:
        os.truncate(draft, 100)
        os.link(draft, tmp_path / "streams" / ".half.part.safetensors")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fretta._util.os.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            host.checkpoint()
    after = a_host(store=str(tmp_path))
    assert after.names() == ["cam"]
    assert after.detail("cam")["batches"] == 1
    assert same(state_of(after, "cam"), state)


@quiet
def test_streams_beyond_the_limit_are_put_away_and_come_back() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    host = a_host(store=url, max_streams=2)
    streams = {name: pixels(8, 8, seed=i) for i, name in enumerate("abc")}
    found = {name: [] for name in streams}
    for number in range(2):
        for name, stream in streams.items():
            found[name].append(shares(host.predict(name, stream[number])))
            assert len(host._streams) <= 2
    for name, stream in streams.items():
        wanted = adapted(build("resnet-like"), stream, "tent", guard="rollback")
        assert all(map(torch.equal, found[name], wanted))
    assert [row["in_memory"] for row in host.overview()] == [False, True, True]
    assert host.overview()[0] == {"name": "a", "shard": 0, "in_memory": False}
    assert host.metrics()["in_memory"] == 2


@quiet
def test_without_a_store_no_stream_is_dropped() -> None:
    host = a_host(max_streams=1)
    images = pixels(4)[0]
    host.predict("a", images)
    with pytest.raises(StoreError, match="max_streams"):
        host.predict("b", images)
    assert host.names() == ["a"]


@quiet
def test_a_store_that_fails_does_not_stop_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = pixels(4, 4, 4)
    host = a_host(store=str(tmp_path), checkpoint_every=1, max_streams=1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fretta.experiment.store.replace_file", full)
        with pytest.warns(FrettaWarning, match="'a' is not saved.*No space left"):
            host.predict("a", stream[0])
        assert "No space left" in host.overview()[0]["problem"]
        assert host.metrics()["checkpoint_failures"] == 1
        with pytest.raises(StoreError, match="cannot be put away"):
            host.predict("b", stream[0])
    host.predict("a", stream[1])
    row = host.overview()[0]
    assert (row["problem"], row["checkpoint"]) == ("", 2)
    host.predict("b", stream[2])
    assert host.names() == ["a", "b"]


@quiet
def test_a_checkpoint_of_another_service_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"store": str(tmp_path)}
    images = pixels(4)[0]
    host = a_host(**options)
    host.predict("cam", images)
    host.close()
    file = tmp_path / "streams" / "cam.safetensors"
    content = file.read_bytes()
    other = build("resnet-like")
    other.fc.weight.data += 1  # type: ignore[operator, union-attr]
    with pytest.raises(CheckpointError, match="method: 'tent', here 'bn'"):
        a_host(method="bn", **options).predict("cam", images)
    with pytest.raises(CheckpointError, match=r"hyperparameters: {}, here {'lr': 0\.01}"):
        a_host(hyperparameters={"lr": 0.01}, **options).detail("cam")
    with pytest.raises(CheckpointError, match="weights: "):
        a_host(a_case(other), **options).freeze("cam")
    with monkeypatch.context() as patch:
        patch.setattr("fretta.serve.host.__version__", "99")
        later = a_host(**options)
    with pytest.raises(CheckpointError, match=r"fretta: '.*', here '99'"):
        later.predict("cam", images)
    assert file.read_bytes() == content
    # a copy under another name, a cut file, no such file at all
    (tmp_path / "streams" / "twin.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="stream: 'cam', here 'twin'"):
        a_host(**options).predict("twin", images)
    for damaged in (content[:-10], content[:50], b"", b"\0" * 100, content[:8] + b"{}" * 99):
        file.write_bytes(damaged)
        host = a_host(**options)
        with pytest.raises(CheckpointError, match="damaged"):
            host.predict("cam", images)
    assert host.reset("cam") == {"name": "cam", "shard": 0, "in_memory": False}
    wanted = adapted(build("resnet-like"), [images], "tent", guard="rollback")
    assert torch.equal(shares(host.predict("cam", images)), wanted[0])


def test_any_state_comes_back_as_it_was(tmp_path: Path) -> None:
    state = {
        "numbers": [1, 2.5, float("inf"), None, True, "text"],
        "by number": {0: {"step": torch.tensor(3.0)}, 1: {}},
        "map": {"tensor": torch.arange(4).view(2, 2).T, "map": torch.empty(0, 3)},
        "kinds": [torch.zeros(2, dtype=d) for d in (torch.bool, torch.uint8, torch.bfloat16)],
    }
    store = StreamStore(str(tmp_path), {})
    store.save("cam", {"a": [1]}, state)
    found = store.load("cam")
    assert found is not None
    assert found[0] == {"a": [1]}
    assert same(found[1], state)
    assert store.load("none") is None
    assert (tmp_path / "streams" / "cam.safetensors").stat().st_size < 5000


def test_a_store_that_cannot_be_used_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for where in (str(tmp_path / "file"), "nothing://here"):
        with pytest.raises(StoreError, match=r"file|nothing"):
            a_host(store=where)


@quiet
def test_only_the_streams_of_a_shard_are_listed(tmp_path: Path) -> None:
    host = a_host(store=str(tmp_path))
    for number in range(4):
        host.predict(f"cam{number}", pixels(2)[0])
    host.close()
    settings = Settings("nets:ResNetLike", method="tent", store=str(tmp_path), shards=2)
    names = [StreamHost(settings, shard, case=a_case()).names() for shard in (0, 1)]
    assert sorted(names[0] + names[1]) == [f"cam{number}" for number in range(4)]


@pytest.mark.slow
@quiet
@pytest.mark.parametrize("method", ["eata", "foa-shift"])
def test_what_is_measured_on_source_images_is_measured_once(method: str, tmp_path: Path) -> None:
    given = {"method": method, "guard": "none", "source": "digits", "store": str(tmp_path)}
    settings = Settings("digits", **given)
    host = StreamHost(settings)
    images = pixels(32, 32, 32)
    adapter = settings.open_case().adapter(method, batch_size=32)
    host.predict("other", images[2])
    for number, batch in enumerate(images):
        if number == 2:
            host.close()
            host = StreamHost(settings)
        expected = adapter(as_input(batch)).softmax(1).max(1).values
        found = torch.tensor([a.confidence for a in host.predict("cam", batch)])
        assert torch.equal(found, expected)
    running = state_of(host, "cam")["adapter"]["running"]
    assert same(running, adapter.state_dict()["running"])
