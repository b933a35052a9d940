"""Every loss, on three classes and numbers one can work out on paper."""

from __future__ import annotations

import math

import pytest
import torch

from fretta.parts.losses import (
    cross_entropy,
    energy,
    entropy,
    kl_divergence,
    marginal_entropy,
    masked_mean,
    soft_likelihood_ratio,
    symmetric_cross_entropy,
)

LN2, LN3 = math.log(2), math.log(3)
# σ of these rows: (1/2, 1/4, 1/4) and (1/3, 1/3, 1/3)
LOGITS = torch.tensor([[LN2, 0.0, 0.0], [1.0, 1.0, 1.0]])


def test_by_hand() -> None:
    # 1/2 ln 2 + 2 · 1/4 ln 4 = 3/2 ln 2;  ln 3
    torch.testing.assert_close(entropy(LOGITS), torch.tensor([1.5 * LN2, LN3]))
    # -ln 1/4 = 2 ln 2;  -ln 1/3 = ln 3
    target = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    torch.testing.assert_close(cross_entropy(target, LOGITS), torch.tensor([2 * LN2, LN3]))
    # p = (1/2, 1/4, 1/4), q uniform: sum p ln 3p = ln 3 - H(p); and 0 for equal ones
    q = torch.zeros(2, 3)
    torch.testing.assert_close(kl_divergence(LOGITS, q), torch.tensor([LN3 - 1.5 * LN2, 0.0]))
    # q uniform first: sum 1/3 ln(1/3 / p) = -ln 3 - 1/3 (ln 1/2 + 2 ln 1/4)
    expected = -LN3 + (LN2 + 4 * LN2) / 3
    torch.testing.assert_close(kl_divergence(q, LOGITS)[0], torch.tensor(expected))
    # -ln(2 + 1 + 1);  -ln(3e)
    torch.testing.assert_close(energy(LOGITS), torch.tensor([-2 * LN2, -LN3 - 1]))
    # of the mean (5/12, 7/24, 7/24)
    mean = -(5 / 12) * math.log(5 / 12) - 2 * (7 / 24) * math.log(7 / 24)
    torch.testing.assert_close(marginal_entropy(LOGITS), torch.tensor(mean))
    # q / (1 - q) is 1, 1/3, 1/3: sum 1/4 ln 3 twice; and 1/2 three times: ln 2
    ratio = soft_likelihood_ratio(LOGITS)
    torch.testing.assert_close(ratio, torch.tensor([LN3 / 2, LN2]), atol=3e-5, rtol=0)
    # half of -ln 1/3 over p, half of -(ln 1/2 + 2 ln 1/4)/3 = 5/3 ln 2
    both = symmetric_cross_entropy(LOGITS, q)[0]
    torch.testing.assert_close(both, torch.tensor(LN3 / 2 + 5 / 6 * LN2))


def test_more_certainty_than_the_clip_is_not_rewarded() -> None:
    logits = torch.tensor([[9.0, 0.0, 0.0]], requires_grad=True)
    soft_likelihood_ratio(logits, clip=0.9).sum().backward()
    reward = logits.grad.clone()
    logits.grad = None
    soft_likelihood_ratio(logits, clip=0.9999).sum().backward()
    assert 0 <= -reward[0, 0] < -0.1 * logits.grad[0, 0]


def test_entropy_of_a_certain_prediction_is_zero_with_a_finite_gradient() -> None:
    logits = torch.tensor([[1e4, 0.0, 0.0]], requires_grad=True)
    H = entropy(logits)
    H.sum().backward()
    assert H.item() == 0
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(
    ("kept", "expected"), [([1, 1, 1], 2.0), ([1, 0, 0], 1.0), ([0, 1, 1], 2.5), ([0, 0, 0], 0.0)]
)
def test_masked_mean(kept: list[int], expected: float) -> None:
    values = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    mean = masked_mean(values, torch.tensor(kept, dtype=torch.bool))
    mean.backward()
    assert mean.item() == expected
    share = 1 / max(sum(kept), 1)
    assert values.grad.tolist() == pytest.approx([k * share for k in kept])
    values = torch.tensor([1.0, torch.inf])  # what is filtered out does not spoil the mean
    assert masked_mean(values, torch.tensor([True, False])).item() == 1


def test_a_class_that_cannot_be_counts_for_nothing() -> None:
    """Its logit is -inf: losses and gradients are those on the other classes alone."""
    p = torch.tensor([[LN2, 0.0], [0.0, 0.0]])  # σ: (2/3, 1/3), (1/2, 1/2)
    q = torch.tensor([[0.0, 0.0], [LN3, 0.0]])  # σ: (1/2, 1/2), (3/4, 1/4)
    no = torch.full((2, 1), -torch.inf)
    values, gradients = [], []
    for last in (p[:, :0], no):
        ours = torch.cat([p, last], 1).requires_grad_()
        theirs = torch.cat([q, last], 1).requires_grad_()
        found = [
            entropy(ours),
            cross_entropy(theirs.detach().softmax(1), ours),
            kl_divergence(ours, theirs),
            symmetric_cross_entropy(ours, theirs),
        ]
        torch.stack(found).sum().backward()
        values.append(torch.stack(found).detach())
        gradients.append([logits.grad[:, :2] for logits in (ours, theirs)])
        assert all(torch.isfinite(logits.grad).all() for logits in (ours, theirs))
    torch.testing.assert_close(values[1], values[0])
    torch.testing.assert_close(gradients[1], gradients[0])
    # ln 3 - 2/3 ln 2;  of the uniform target: ln 3 - 1/2 ln 2;  2/3 ln 4/3 + 1/3 ln 2/3
    by_hand = [LN3 - 2 / 3 * LN2, LN3 - LN2 / 2, 5 / 3 * LN2 - LN3]
    torch.testing.assert_close(values[1][:3, 0], torch.tensor(by_hand))
