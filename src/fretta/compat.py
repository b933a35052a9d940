"""Let torchvision, and timm with it, import beside a torch build that lacks its operators.

torchvision's wheels are built against CUDA torch. Beside a CPU build their operator library does
not load and `import torchvision` stops at `operator torchvision::nms does not exist`, because fake
kernels are registered for operators nobody defined. Defining the two schemas first is enough:
classification never calls them.

    import fretta.compat        # in a script of your own, before torchvision or timm
    fretta.compat.install()     # once in an environment: no script needs it there any more

Both put a hook on the import of torchvision; nothing is loaded before that.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import MissingExtraError

_definitions: list[Any] = []  # a Library undoes its definitions when it is collected: keep it


class _Hook:
    """A finder for torchvision alone: as Python finds it, and repaired when it loads."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == "torchvision" else None
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                try:
                    load(module)
                except RuntimeError as error:
                    if "torchvision::nms" not in str(error):
                        raise
                    _define_operators()
                    load(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _define_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _definitions.append(library)


sys.meta_path.insert(0, _Hook)


def install(folder: Path | None = None) -> Path:
    """Write a .pth file that puts the hook in place whenever Python starts in this environment."""
    file = (folder or Path(sysconfig.get_path("purelib"))) / "fretta_compat.pth"
    # where fretta was uninstalled since, Python starts in silence
    code = 'exec("try:\\n import fretta.compat\\nexcept ImportError:\\n pass")'
    file.write_text(f"import sys; {code}\n", encoding="utf-8")
    return file


def import_torchvision() -> ModuleType:
    return _import("torchvision", "torchvision", "a torchvision model")


def import_timm() -> ModuleType:
    return _import("timm", "timm", "a timm model")


def import_transformers() -> ModuleType:
    return _import("transformers", "hf", "a Hugging Face model")


def _import(package: str, extra: str, purpose: str) -> ModuleType:
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(package, extra, purpose)
    return importlib.import_module(package)
