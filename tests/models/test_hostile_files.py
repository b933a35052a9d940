"""Files that lie, want code to run, or are cut: an error of ours, and nothing happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fretta.errors import ConfigError, SuiteError, WeightsError
from fretta.experiment.suite import parse_suite
from fretta.models import load
from fretta.models.cards import find_card, read_card
from fretta.models.labels import read_labels
from fretta.models.preprocessing import find_preprocessing
from fretta.models.weights import read_weights


@pytest.mark.parametrize(
    "config",
    [
        {"auto_map": {"AutoConfig": "evil.Config", "AutoModelForImageClassification": "evil.M"}},
        {"auto_map": {"AutoConfig": "someone/repository--evil.Config"}},  # asked on the terminal
        {"model_type": "evil"},
        {"model_type": ["vit"]},
        {},
    ],
)
def test_a_folder_that_wants_remote_code(
    tmp_path: Path, config: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()")
    with pytest.raises(ConfigError, match="code that comes with a model is never run"):
        load(f"hf:{tmp_path}", num_classes=3)
    assert not trace.exists()
    assert "[y/N]" not in capfd.readouterr().out


def test_a_torch_file_cut_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "weights.pt"
    torch.save(nn.Linear(3, 2).state_dict(), file)
    content = file.read_bytes()
    for size in range(0, len(content) - 1, 37):
        file.write_bytes(content[:size])
        with pytest.raises(WeightsError, match=r"cannot be read|was refused"):
            read_weights(file)


def test_json_without_an_end(tmp_path: Path) -> None:
    deep = "[" * 100_000
    for name in ("w.json", "preprocessor_config.json", "config.json"):
        (tmp_path / name).write_text(deep)
    (tmp_path / "w.safetensors").touch()
    with pytest.raises(WeightsError, match="cannot be read"):
        read_card(tmp_path / "w.json")
    assert find_card(tmp_path / "w.safetensors") is None
    with pytest.raises(ConfigError, match="mean"):
        find_preprocessing(nn.Linear(3, 2), f"hf:{tmp_path}")
    (tmp_path / "preprocessor_config.json").write_text("[1]")
    with pytest.raises(ConfigError, match="mean"):
        find_preprocessing(nn.Linear(3, 2), f"hf:{tmp_path}")


def test_a_label_of_spaces(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text('["ant", " ", "bee"]')
    with pytest.raises(ConfigError, match="line 2 has no name"):
        read_labels(tmp_path / "labels.json")


def test_a_data_set_without_a_name() -> None:
    text = '[[cases]]\ndata = {name = 7}\nmodel = {source = "digits"}\n[[methods]]\nname = "bn"\n'
    with pytest.raises(SuiteError, match="unknown data set 7"):
        parse_suite(text, "absurd").jobs(None)
