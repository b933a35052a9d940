"""Augmentation: operations on numbers worked out by hand and against torchvision; pixel space."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fretta.compat import import_torchvision
from fretta.errors import ConfigError, FrettaWarning, InputError
from fretta.parts import augmix, pixels
from fretta.parts.augment import TRANSFORMS, augmented, find_scale, find_transform
from fretta.parts.random import seeded

CPU = torch.device("cpu")
random = pytest.mark.parametrize("name", ["cotta", "roid", "augmix"])


def strength(value: float) -> Tensor:
    return torch.full((1, 1, 1, 1), value).double()


def images(n: int = 4, size: int = 16, channels: int = 3) -> Tensor:
    return torch.rand(n, channels, size, size, generator=seeded(0, CPU)).double()


def test_color_by_hand() -> None:
    p = torch.tensor([0.5, 0.25, 0.0]).double().view(1, 3, 1, 1)
    luma = 0.2989 * 0.5 + 0.587 * 0.25
    flat = {
        "brightness": (pixels.brightness(p, strength(3.0)), [1.0, 0.75, 0.0]),
        "gamma": (pixels.gamma(p, strength(2.0)), [0.25, 0.0625, 0.0]),
        "gray": (pixels.saturation(p, strength(0.0)), [luma] * 3),
        "contrast": (pixels.contrast(p, strength(0.0)), [luma] * 3),
        "a third of the wheel": (pixels.hue(p, strength(1 / 3)), [0.0, 0.5, 0.25]),
        "solarize": (augmix.solarize(p, strength(-0.5)), [0.5, 0.25, 0.0]),
        "solarize all": (augmix.solarize(p, strength(0.75)), [0.5, 0.75, 0.0]),
        "posterize": (augmix.posterize(p, strength(0.1)), [128 / 255, 64 / 255, 0.0]),
    }
    for name, (found, expected) in flat.items():
        assert found.flatten().tolist() == pytest.approx(expected, abs=1e-6), name


def test_sampling_by_hand() -> None:
    p = torch.arange(9.0).double().view(1, 1, 3, 3)
    eye, right = torch.eye(2).double()[None], torch.tensor([[1.0, 0.0]]).double()
    rows = {"zeros": [1, 2, 0], "border": [1, 2, 2], "reflection": [1, 2, 1]}
    for outside, first in rows.items():
        assert pixels.sample(p, eye, right, outside)[0, 0, 0].tolist() == pytest.approx(first)
    wide = pixels.sample(p, eye, 0 * right, "border", margin=1)[0, 0]
    assert wide[0].tolist() == pytest.approx([0, 0, 1, 2, 2])
    turned = pixels.sample(p, pixels.rotation(strength(90.0)), 0 * right)[0, 0]
    torch.testing.assert_close(turned, p[0, 0].rot90(-1))  # clockwise, as y points down
    larger = pixels.sample(p, pixels.rotation(strength(0.0), strength(2.0)), 0 * right)[0, 0]
    assert larger[1].tolist() == pytest.approx([3.5, 4, 4.5])
    spot = torch.zeros(1, 1, 5, 5).double()
    spot[0, 0, 2, 2] = 1.0
    assert float(pixels.blur(spot, strength(1e-3))) == pytest.approx(1.0)
    side = 2.718281828**-0.5
    center = 1 / (1 + 2 * side + 2 * side**4)
    assert float(pixels.blur(spot, strength(1.0))) == pytest.approx(center**2)


def test_operations_are_torchvisions() -> None:
    import_torchvision()
    from torchvision.transforms import functional as tv

    p = images()
    bilinear = tv.InterpolationMode.BILINEAR
    turn, size, shift = 12.5, 1.07, [3, -2]
    wide = tv.affine(tv.pad(p, 8, padding_mode="edge"), turn, shift, size, [0, 0], bilinear)
    matrix = pixels.rotation(strength(turn), strength(size))
    moved = pixels.sample(p, matrix, -(matrix @ torch.tensor(shift).double()), "border", 2)
    levels = (p * 255).round()
    pairs = {
        "hue": (pixels.hue(p, strength(-0.06)), tv.adjust_hue(p, -0.06)),
        "saturation": (pixels.saturation(p, strength(1.4)), tv.adjust_saturation(p, 1.4)),
        "contrast": (pixels.contrast(p, strength(1.2)), tv.adjust_contrast(p, 1.2)),
        "moved": (
            pixels.blur(moved, strength(0.4)),
            tv.center_crop(tv.gaussian_blur(wide, [5, 5], [0.4, 0.4]), [16, 16]),
        ),
        "equalize": (
            augmix.equalize(levels / 255, strength(0.1)) * 255,
            tv.equalize(levels.to(torch.uint8)).double(),
        ),
        "autocontrast": (augmix.autocontrast(p, strength(0.1)), tv.autocontrast(p)),
    }
    for name, (ours, theirs) in pairs.items():
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0, msg=name)


@random
@pytest.mark.parametrize("channels", [1, 3])
def test_random_transforms_stay_pixels_and_repeat(name: str, channels: int) -> None:
    p, transform = images(size=20, channels=channels), TRANSFORMS[name]
    generator = seeded(3, CPU)
    first, second = transform(p, generator), transform(p, generator)
    assert first.shape == p.shape
    assert bool((first >= 0).all() & (first <= 1).all())
    assert not torch.equal(first, second)
    assert torch.equal(first, transform(p, seeded(3, CPU)))
    # single precision and double draw the same numbers
    assert (transform(p.float(), seeded(3, CPU)) - first).abs().max() < 1 / 64


def test_augmix_draws_for_every_image() -> None:
    same = images(1, size=72).expand(6, -1, -1, -1)  # large enough for a resized crop
    assert len(augmix.augmix(same, seeded(0, CPU)).flatten(1).unique(dim=0)) == 6


@random
def test_pixel_space(name: str) -> None:
    """Normalized input gives the normalized augmentation of the pixels, in its memory layout."""
    p, transform = images(), find_transform(name)
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]
    m, s = (torch.tensor(v).double().view(3, 1, 1) for v in (mean, std))
    x = ((p - m) / s).to(memory_format=torch.channels_last)
    out = augmented(x, transform, (mean, std), seeded(1, CPU))
    torch.testing.assert_close(out * s + m, transform(p, seeded(1, CPU)))
    assert out.is_contiguous(memory_format=torch.channels_last)
    half = augmented(x.bfloat16(), transform, (mean, std), seeded(1, CPU))
    assert half.dtype is torch.bfloat16
    with pytest.raises(InputError, match=r"takes images"):
        augmented(x.flatten(1), transform, (mean, std), seeded(1, CPU))


def test_a_function_of_the_users_own() -> None:
    seen: list[Tensor] = []

    def own(p: Tensor) -> Tensor:
        seen.append(p)
        return p + torch.rand(())

    x = 2 * images() - 1
    state = torch.get_rng_state()
    out = augmented(x, find_transform(own), ([0.5], [0.5]), generator := seeded(2, CPU))
    assert torch.equal(torch.get_rng_state(), state)  # the adapter's random numbers, not ours
    torch.testing.assert_close(seen[0], images())
    torch.testing.assert_close(out, x + 2 * torch.rand((), generator=seeded(2, CPU)).double())
    assert not torch.equal(generator.get_state(), seeded(2, CPU).get_state())
    with pytest.raises(InputError, match=r"as many images"):
        find_transform(lambda p: p[:1])(x, generator)
    with pytest.raises(ConfigError, match=r"choose from none, flip"):
        find_transform("mixup")


def test_where_mean_and_std_come_from(recwarn: pytest.WarningsRecorder) -> None:
    p = images()
    known = ((0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    assert find_scale(None, None, known, p) == ([0.1, 0.2, 0.3], [1.0, 2.0, 3.0])
    assert find_scale(0.5, [1, 1, 2], known, p) == ([0.5], [1, 1, 2])
    assert find_scale(None, None, None, p) == ([0.0], [1.0])  # pixels
    assert not recwarn.list
    with pytest.warns(FrettaWarning, match=r"give mean="):
        assert find_scale(None, None, None, 2 * p - 1) == ([0.5], [0.25])
    bad: list[tuple[Any, str]] = [((1.0, 0.0, 1.0), "above 0"), ((1.0, 1.0), "3 channels")]
    for std, message in bad:
        with pytest.raises(ConfigError, match=message):
            find_scale(0.0, std, None, p)
