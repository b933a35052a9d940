"""One model, one folder, the same flags: every command sees the same pixels."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from typer.testing import CliRunner

import fretta
from fretta.cli import app
from fretta.compat import import_timm
from fretta.data.images import decode
from fretta.errors import ConfigError, FrettaError
from fretta.experiment.run import case_of
from fretta.experiment.store import Store
from fretta.experiment.suite import load_suite
from fretta.models import Card, load, load_source, write_card
from fretta.models.cards import sha256
from fretta.models.preprocessing import Preprocessing, find_preprocessing

CLASSES = ["owl", "cat", "dog"]  # not sorted, as in a model trained elsewhere
PREPROCESSING = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.3], "size": 24}


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Images of 48 × 20; some have a turn in their EXIF tag, some are transparent."""
    random = np.random.RandomState(0)
    for number in range(15):
        place = tmp_path / "images" / CLASSES[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.kron(random.randint(0, 256, (5, 12, 4)), np.ones((4, 4, 1))).astype(np.uint8)
        if number % 5 == 4:
            Image.fromarray(pixels).save(place / f"{number}.png")
        else:
            tags = Image.Exif()
            tags[0x0112] = 6 if number % 5 == 3 else 1
            Image.fromarray(pixels[:, :, :3]).save(place / f"{number}.png", exif=tags)
    return tmp_path / "images"


def save(path: Path, spec: str, **facts: Any) -> Path:
    """Weights of a network that was never trained; with a card if `facts` are given."""
    from safetensors.torch import save_file

    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = load(spec, num_classes=3)
        for name, value in net.named_buffers():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2)
    save_file(net.state_dict(), path)
    if facts:
        card = Card(spec, 3, CLASSES, {"name": "wide"}, facts, {}, 0, sha256=sha256(path))
        write_card(path, card)
    return path


@pytest.fixture
def pixels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hashes of what becomes input, image by image."""
    seen: list[str] = []
    apply = Preprocessing.apply

    def watched(self: Preprocessing, x: Tensor, *more: Any) -> Tensor:
        seen.extend(hashlib.sha256(one.contiguous().numpy().tobytes()).hexdigest() for one in x)
        return apply(self, x, *more)

    monkeypatch.setattr(Preprocessing, "apply", watched)
    return seen


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "300"})
    if isinstance(done.exception, FrettaError):
        raise done.exception
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.output.splitlines() if line.startswith("images  ")]
    return line


GRAY = {  # images that only tell how many classes there are
    hashlib.sha256(np.full((3, s, s), 127, np.uint8).tobytes()).hexdigest() for s in (24, 32, 160)
}


def everywhere(
    folder: Path, out: Path, seen: list[str], *options: object, labels: Path | None = None
) -> str:
    """The line that all commands print; accuracies and pixels must agree as well."""
    named = () if labels is None else ("--labels", labels)
    commands: dict[str, tuple[object, ...]] = {
        "adapt": ("--out", out / "a", "--method", "bn", *named),
        "compare": ("--out", out / "c", "--methods", "source", *named),
        "evaluate": ("--store", out / "e", "--method", "source"),
        "analyze": ("mechanism", "--store", out / "m", "--method", "source"),
    }
    lines, sights = set(), set()
    for name, command in commands.items():
        seen.clear()
        lines.add(run(name, *command, "--data", folder, "--batch-size", 15, *options))
        sights.add(",".join(sorted(set(seen) - GRAY)))
    adapted = json.loads((out / "a/settings.json").read_text())["result"]["source_accuracy"]
    compared = json.loads((out / "c/compare.json").read_text())["methods"][0]["accuracy"]
    evaluated = next(iter(Store(out / "e").records())).overall["accuracy"]
    assert adapted == compared == evaluated
    assert len(lines) == len(sights) == 1
    assert len(sights.pop().split(",")) == 15
    return lines.pop()


@pytest.mark.parametrize(
    ("fit", "options", "facts"),
    [
        pytest.param("squash", (), ["squash"], marks=pytest.mark.slow),
        pytest.param("crop", (), ["crop"], marks=pytest.mark.slow),
        (
            "squash",
            ("--fit", "crop", "--size", 32, "--std", "0.5,0.5,0.5"),
            [
                "resize 37, center crop 32×32",
                "(size, fit, std: as given; interpolation: default; mean: the card)",
            ],
        ),
    ],
)
def test_the_card_or_the_options_decide_for_all_commands(
    wide: Path, tmp_path: Path, pixels: list[str], fit: str, options: Any, facts: list[str]
) -> None:
    weights = save(tmp_path / "w.safetensors", "digits:resnet8", **PREPROCESSING, fit=fit)
    line = everywhere(wide, tmp_path, pixels, "--model", weights, *options)
    assert all(fact in line for fact in facts)
    assert run("check", "--model", weights, *options).split() == line.split()


def test_the_library_decides_for_all_commands(
    wide: Path, tmp_path: Path, pixels: list[str]
) -> None:
    weights = save(tmp_path / "w.safetensors", "timm:test_resnet")
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\ndog\nowl\n")  # in the order of the folders: evaluate has no names
    options = ("--model", "timm:test_resnet", "--weights", weights, "--num-classes", 3)
    line = everywhere(wide, tmp_path, pixels, *options, labels=labels)
    assert "center crop" in line
    assert line.endswith("(timm's configuration of the model)")


def test_gaps_of_a_card_are_filled_by_the_library() -> None:
    net = load("timm:test_resnet", num_classes=3)
    net.fretta_card = Card("timm:test_resnet", 3, [], {}, PREPROCESSING, {}, 0)  # type: ignore[assignment]
    found = find_preprocessing(net, "timm:test_resnet", fit=None)
    assert (found.size, found.mean) == (24, (0.5, 0.4, 0.3))
    assert found.decoding().short_side == int(24 / net.pretrained_cfg["crop_pct"])  # type: ignore[index, union-attr]
    assert found.origin.startswith("size, mean, std: the card; fit, interpolation: timm")
    assert "crop_ratio" not in find_preprocessing(net, "timm:test_resnet", fit="squash").to_json()


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "test_resnet"])
def test_pixels_are_those_of_timm(wide: Path, name: str) -> None:
    """Exactly: files that need no turn and are not transparent, through timm's own transform."""
    net = load(f"timm:{name}")
    found = find_preprocessing(net, f"timm:{name}")
    data = import_timm().data
    theirs = data.create_transform(**data.resolve_data_config({}, model=net))
    for file in sorted(wide.glob("*/*[0-2].png")):
        with Image.open(file) as image:
            expected = theirs(image.convert("RGB"))
        ours = found.apply(
            torch.from_numpy(decode(str(file), found.decoding())).permute(2, 0, 1)[None]
        )
        assert torch.allclose(ours[0], expected, atol=1e-6)


def test_suites_say_what_they_do(wide: Path, tmp_path: Path) -> None:
    """What a suite states stays; the line tells what happens to the files."""
    save(tmp_path / "w.safetensors", "digits:resnet8", **PREPROCESSING, fit="squash")
    suite = tmp_path / "mine.toml"
    data = '{ name = "folder", path = "images", size = 24, fit = "crop" }'
    suite.write_text(
        f'[[cases]]\ndata = {data}\nmodel = {{ source = "w.safetensors" }}\n'
        '[[methods]]\nname = "source"\n'
    )
    line = run("run", suite, "--data", tmp_path, "--store", tmp_path / "s")
    assert "resize 27, center crop 24×24" in line
    assert "size, fit, interpolation: the data" in line


def test_runs_keep_their_names() -> None:
    """Records are named by a hash of the run: nothing new in what suites say."""
    job = load_suite("digits-all").restricted(["tipi"], [0]).jobs()[0]
    assert job.run.data == {"name": "digits"}
    assert sorted(job.run.model["preprocessing"]) == ["fit", "interpolation", "mean", "size", "std"]
    assert job.run.key == "f5b887a2c5b092b47984"  # in evidence/records


def test_tipi_knows_how_its_input_was_made() -> None:
    """Whoever finds the preprocessing, or states it, need not pass it on."""
    net, card = load_source("digits")
    job = load_suite("digits").restricted(["tipi"]).jobs()[0]
    ours = replace(job.run, model={**job.run.model, "preprocessing": {**PREPROCESSING, "size": 32}})
    case = case_of(replace(job, run=ours))
    find_preprocessing(net, card.model, std=(0.2, 0.25, 0.3))
    for model in (net, case.net):
        adapter = fretta.adapt(model, "tipi")
        adapter(case.preprocessing.apply(torch.zeros(4, 3, 32, 32, dtype=torch.uint8)))
        assert adapter.method.size.flatten().mul(255).tolist() == pytest.approx(  # type: ignore[attr-defined]
            [2 / 0.2, 2 / 0.25, 2 / 0.3]
        )


def test_a_bad_fit_is_refused(wide: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fit='stretch'"):
        run("evaluate", "--model", "digits", "--data", wide, "--method", "bn", "--fit", "stretch")
