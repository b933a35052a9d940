"""torchvision and timm import in a script of one's own, beside a CPU build of torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fretta import compat

UNLOADED = "import sys; assert not {'torch', 'torchvision'} & set(sys.modules); "


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_after_importing_compat() -> None:
    run(f"import fretta.compat; {UNLOADED}import timm, torchvision")


@pytest.mark.slow
def test_in_an_environment_with_the_hook(tmp_path: Path) -> None:
    """What `make` writes: a file that Python reads when it starts."""
    assert compat.install(tmp_path).suffix == ".pth"
    start = f"import site; site.addsitedir({str(tmp_path)!r}); "
    run(f"{start}{UNLOADED}import torchvision, sys; assert 'fretta.compat' in sys.modules")
    # an environment that fretta has left since: no message
    gone = f"import sys; sys.modules['fretta'] = None; {start}"
    out = subprocess.run([sys.executable, "-c", gone], capture_output=True, text=True, check=True)
    assert out.stderr == ""


def test_other_errors_of_torchvision_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('something else')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import fretta.compat, torchvision"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "RuntimeError: something else" in out.stderr
    assert "During handling" not in out.stderr
