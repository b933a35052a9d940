"""Let torchvision import beside a torch build that lacks its compiled operators.

torchvision's wheels are built against CUDA torch. Beside a CPU build their operator library does
not load and `import torchvision` stops at `operator torchvision::nms does not exist`, because fake
kernels are registered for operators nobody defined. Defining the two schemas first is enough:
classification never calls them.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

from .errors import MissingExtraError

_definitions: list[Any] = []  # a Library undoes its definitions when it is collected: keep it


def import_torchvision() -> ModuleType:
    """`import torchvision`, repaired where only its compiled operators are missing."""
    try:
        return importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        raise MissingExtraError("torchvision", "torchvision", "a torchvision model") from error
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    import torch

    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _definitions.append(library)
    return importlib.import_module("torchvision")


def import_timm() -> ModuleType:
    """`import timm`, which imports torchvision."""
    if importlib.util.find_spec("timm") is None:
        raise MissingExtraError("timm", "timm", "a timm model")
    import_torchvision()
    return importlib.import_module("timm")


def import_transformers() -> ModuleType:
    """`import transformers`, which imports torchvision where it is installed."""
    if importlib.util.find_spec("transformers") is None:
        raise MissingExtraError("transformers", "hf", "a Hugging Face model")
    if importlib.util.find_spec("torchvision") is not None:
        import_torchvision()
    return importlib.import_module("transformers")
