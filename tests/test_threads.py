"""With two threads a stream repeats bit for bit, as it does with one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import fretta
from fretta.parts.replay import ReplayBuffer
from nets import batches, build, same

pytestmark = pytest.mark.usefixtures("two_threads")


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_last_sample_of_a_row_stays() -> None:
    generator = torch.Generator().manual_seed(0)
    for x in batches(*[64] * 5):
        buffer = ReplayBuffer(4, reinit=0.0)
        index, _ = buffer.draw(x, generator)
        before = buffer.snapshot()
        buffer.store(index, x)
        last = dict(zip(index, x, strict=True))
        state = buffer.state_dict()
        assert state["index"] == sorted(last)
        for row, sample in zip(state["index"], state["samples"], strict=True):
            assert torch.equal(sample, last[row])
        assert before.state_dict()["index"] == []


def test_tea_replays_and_resumes_when_rows_repeat() -> None:
    """Every batch draws each of four rows several times."""
    stream = batches(*[48] * 4)
    values = {"sgld_steps": 1, "buffer_size": 4, "lr": 1e-2}
    a, b = (fretta.adapt(build("group-norm"), "tea", **values) for _ in range(2))
    logits = []
    for step, x in enumerate(stream):
        logits.append(a(x))
        if step == 1:
            middle = a.state_dict()
    state = a.state_dict()
    a.reset()
    assert all(torch.equal(a(x), out) for x, out in zip(stream, logits, strict=True))
    assert same(a.state_dict(), state)
    b.load_state_dict(middle)
    assert all(torch.equal(b(x), out) for x, out in zip(stream[2:], logits[2:], strict=True))
    assert same(b.state_dict(), state)


@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")  # of a batch of one
def test_batches_of_one_repeat() -> None:
    """The backward of a wide convolution over one image is a product MKL divides among threads."""
    a = fretta.adapt(build("timm-resnet18"), "tent", optimizer="sgd", lr=1.0)
    for image in batches(1, 1, 1):
        seen = set()
        for _ in range(8):
            a(image)
            seen.add(b"".join(p.detach().numpy().tobytes() for p in a.model.adapted.values()))
            a.reset()
        assert len(seen) == 1
