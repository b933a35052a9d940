"""Fixtures shared by all tests, and the loud note about skipped `data` tests."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

# Before torch starts its threads: those that wait must not keep a busy machine busier.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from fretta.data.cifar_pickle import read_batches

# What a shell starts with & ignores Ctrl-C, which tests press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

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


@pytest.fixture(scope="session")
def build() -> Iterator[ModuleType]:
    """evidence/build.py, which fills the pages from the records."""
    root = str(Path(__file__).parent.parent)
    sys.path.insert(0, root)
    try:
        yield importlib.import_module("evidence.build")
    finally:
        sys.path.remove(root)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    names = ("chromium", "chromium-browser", "google-chrome")
    chrome, driver = (
        next(filter(None, map(shutil.which, names)), None),
        shutil.which("chromedriver"),
    )
    if chrome is None or driver is None:
        pytest.skip("no Chromium and chromedriver here: pages are NOT tested")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chrome
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--window-size=1280,900"),
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """Of ordinary size, with an empty console; afterwards no page asks a server that is gone."""
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    chromium.get_log("browser")
    yield chromium
    chromium.get("about:blank")


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
