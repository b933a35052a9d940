"""Take an exported module further: `torch.export` and ONNX, where the model allows it.

module = adapter.export(statistics=batches)
fretta.export.to_program(module, x)            # a torch.export.ExportedProgram
fretta.export.to_onnx(module, x, "model.onnx")
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ._util import atomic
from .errors import InputError, MissingExtraError, ModelError


def to_program(module: nn.Module, example: Tensor) -> Any:
    """The module as a `torch.export.ExportedProgram` for any batch size.

    example   a batch of at least two images like those it will see
    """
    _check(module, example)
    try:
        return torch.export.export(module, (example,), dynamic_shapes=_any_batch())
    except Exception as error:  # the tracer raises whatever it stumbled over
        raise ModelError(_refusal("torch.export", module, error)) from error


def to_onnx(module: nn.Module, example: Tensor, path: str | os.PathLike[str]) -> Path:
    """Write the module as one ONNX file, input `images`, output `logits`, for any batch size."""
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "onnx", "an ONNX file")
    _check(module, example)
    target = Path(path)
    with atomic(target) as draft:
        try:
            torch.onnx.export(
                module,
                (example,),
                str(draft),
                input_names=["images"],
                output_names=["logits"],
                dynamo=True,
                dynamic_shapes=_any_batch(),
                external_data=False,
                verbose=False,
            )
        except Exception as error:  # the exporter raises whatever it stumbled over
            raise ModelError(_refusal("the ONNX exporter", module, error)) from error
    return target


def _any_batch() -> Any:
    return ({0: torch.export.Dim("batch", min=1)},)


def _check(module: nn.Module, example: Tensor) -> None:
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"module is a {type(module).__name__}; give what adapter.export() returned"
        )
    if not isinstance(example, Tensor) or example.dim() < 2 or len(example) < 2:
        seen = tuple(example.shape) if isinstance(example, Tensor) else type(example).__name__
        raise InputError(
            f"example is {seen}; give a batch of at least two images, (N, C, H, W): from a single"
            " one the tracer would conclude that there is always one"
        )


def _refusal(tool: str, module: nn.Module, error: Exception) -> str:
    first = str(error).strip().splitlines()[0][:300] if str(error).strip() else "no message"
    return (
        f"{tool} cannot take {type(module).__name__}: {type(error).__name__}: {first}. The module"
        " itself works in PyTorch; models whose forward depends on the values of the images, or"
        " calls Python code the tracer does not know, stay there"
    )
