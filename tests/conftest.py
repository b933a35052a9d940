"""Fixtures shared by all tests, and the loud note about skipped `data` tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before torch starts its threads: those that wait must not keep a busy machine busier.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from fretta.data.cifar_pickle import read_batches

# Tests run in parallel processes, so one thread each; `make test-cpu` asks for two as well.
torch.set_num_threads(int(os.environ.get("FRETTA_TEST_THREADS", "1")))


def shared_root() -> Path | None:
    """The folder that holds `data/` and `golden/`, found through FRETTA_DATA (its `data`)."""
    data = os.environ.get("FRETTA_DATA")
    return Path(data).resolve().parent if data and Path(data).is_dir() else None


@pytest.fixture(scope="session")
def shared() -> Path:
    root = shared_root()
    if root is None or not (root / "golden").is_dir():
        pytest.skip("shared data absent: set FRETTA_DATA to the folder shared/data")
    return root


@pytest.fixture(autouse=True)
def _no_data_root(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Tests of small sets must not find real ones through the environment."""
    if request.node.get_closest_marker("data") is None:  # a folder may be called data, too
        monkeypatch.delenv("FRETTA_DATA", raising=False)
    read_batches.cache_clear()
    yield
    read_batches.cache_clear()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if shared_root() is not None:
        return
    skip = pytest.mark.skip(reason="shared data absent: set FRETTA_DATA to the folder shared/data")
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [
        r for r in terminalreporter.stats.get("skipped", []) if "FRETTA_DATA" in str(r.longrepr)
    ]
    if skipped:
        terminalreporter.write_sep(
            "!", f"{len(skipped)} data tests SKIPPED: FRETTA_DATA is not set"
        )
