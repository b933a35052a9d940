"""Redundancy and the two graphs: by hand, and fast forms against dense matrices with gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import fretta
from fretta.errors import InputError
from fretta.parts import redundancy as parts
from fretta.parts.redundancy import degrees, redundancy, split_representations


def features(kind: str, B: int = 40, d: int = 9) -> Tensor:
    z = torch.randn(B, d, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    if kind != "signed":
        z = z.relu()
    if kind == "zero columns":
        z[:, [2, 5]] = 0
    return z


KINDS = ["non-negative", "signed", "zero columns"]


def dense_redundancy(z: Tensor) -> Tensor:
    total = z.new_zeros(())
    B, d = z.shape
    for i in range(d):
        for j in range(d):
            if i != j and z[:, i].any() and z[:, j].any():
                dot = sum(z[b, i] * z[b, j] for b in range(B))
                total = total + (dot / (z[:, i].norm() * z[:, j].norm())).abs()
    return total


def dense_representation(z: Tensor, graph: Tensor) -> Tensor:
    """Z D^(-1/2) G D^(-1/2) with an explicit diagonal matrix, 0 for an empty row."""
    row = graph.abs().sum(1)
    D = torch.diag(torch.stack([r**-0.5 if r > 0 else r * 0 for r in row]))
    return z @ D @ graph @ D


def gradient(value: Tensor, z: Tensor) -> Tensor:
    (g,) = torch.autograd.grad(value, z, retain_graph=True)
    return g


def test_by_hand() -> None:
    # columns (1,0), (1,1)/√2, (0,1): cosines 1/√2, 0, 1/√2, each counted twice
    z = torch.tensor([[1.0, 2.0, 0.0], [0.0, 2.0, 3.0]])
    assert redundancy(z).item() == pytest.approx(4 / 2**0.5)
    assert fretta.redundancy(z, normalized=True).item() == pytest.approx(4 / 2**0.5 / 6)
    # orthogonal features share nothing, equal ones everything, opposite ones too
    assert redundancy(torch.eye(3)).item() == pytest.approx(0, abs=1e-6)
    for z in (torch.ones(4, 3), torch.tensor([[1.0, -1.0], [2.0, -2.0]])):
        assert redundancy(z, normalized=True).item() == pytest.approx(1)
    assert redundancy(torch.rand(3, 1).expand(3, 40), normalized=True) <= 1
    z = features("signed").float()
    for scale in (1e-25, 1e20):
        scaled = redundancy(z * scale, normalized=True).item()
        assert scaled == pytest.approx(redundancy(z, normalized=True).item(), rel=1e-4)
    for z in (torch.ones(3), torch.ones(2, 2, 2), torch.ones(2, 2, dtype=torch.long)):
        with pytest.raises(InputError, match=r"\(B, d\)"):
            redundancy(z)
    # |G_ij| has a kink at 0, where two features never meet; for Z >= 0 it can only grow
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    assert gradient(degrees(z).sum(), z).tolist() == [[0.0, 2.0], [2.0, 0.0]]


@pytest.mark.parametrize("kind", KINDS)
def test_score_equals_the_double_loop(kind: str) -> None:
    z = features(kind).requires_grad_()
    fast, dense = redundancy(z), dense_redundancy(z)
    torch.testing.assert_close(fast, dense, atol=1e-10, rtol=0)
    torch.testing.assert_close(gradient(fast, z), gradient(dense, z), atol=1e-10, rtol=0)


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_signed_degrees_do_not_depend_on_the_chunk(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_CHUNK", chunk)
    z = features("signed").requires_grad_()
    G = z.T @ z
    dense = (G - torch.diag(G.diagonal())).abs().sum(1)
    weight = torch.arange(1.0, 10.0, dtype=torch.float64)
    torch.testing.assert_close(degrees(z), dense, atol=1e-10, rtol=0)
    torch.testing.assert_close(
        gradient(degrees(z) @ weight, z), gradient(dense @ weight, z), atol=1e-10, rtol=0
    )
    assert torch.autograd.gradcheck(degrees, (z,))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("mask", ["none", "identity", "general"])
def test_representations_equal_the_dense_form(kind: str, unit: bool, mask: str) -> None:
    z = features(kind).requires_grad_()
    d = z.shape[1]
    noise = torch.rand(d, d, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    M = (noise + noise.T) / 2 if mask == "general" else torch.eye(d, dtype=torch.float64)
    norms = z.square().sum(0)
    scale = torch.stack([n**-0.5 if n > 0 else n * 0 for n in norms])
    columns = z * scale if unit else z
    G = columns.T @ columns
    expected = dense_representation(z, G * M), dense_representation(z, G - G * M)
    seen = split_representations(z, None if mask == "none" else M, unit)
    weight = torch.randn(z.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for ours, theirs in zip(seen, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)
        ours_g, theirs_g = gradient((ours * weight).sum(), z), gradient((theirs * weight).sum(), z)
        # A silent feature sits at the kink of every |G_ij|, and R_A is Z itself there.
        live = norms.detach() > 0
        torch.testing.assert_close(ours_g[:, live], theirs_g[:, live], atol=1e-8, rtol=0)


def test_a_feature_that_shares_nothing_has_no_redundant_part() -> None:
    """Its degree is a difference of equal numbers: float32 noise must not become a signal."""
    z = torch.zeros(64, 5)
    generator = torch.Generator().manual_seed(0)
    z[:32, 0] = torch.rand(32, generator=generator) * 7.3
    z[32:, 1:] = torch.rand(32, 4, generator=generator) * 1.7
    assert split_representations(z)[1][:, 0].abs().max() == 0


def test_one_sample_is_finite() -> None:
    for z in (features("signed", B=1), features("non-negative", B=1), torch.zeros(1, 4)):
        z = z.requires_grad_()
        loss = redundancy(z) + split_representations(z)[1].sum()
        assert torch.isfinite(loss)
        assert torch.isfinite(gradient(loss, z)).all()
    assert redundancy(torch.tensor([[1.0, -2.0, 0.5]])).item() == pytest.approx(6)
