"""What tests of pages in Chromium share. The fixture `browser` is in conftest.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def until(check: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What `check` returns as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)
    return found


def js(browser: Any, code: str, *arguments: Any) -> Any:
    return browser.execute_script(f"return {code}", *arguments)


def set_scheme(browser: Any, scheme: str) -> None:
    """ "light" or "dark"."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def set_size(browser: Any, width: int, height: int, mobile: bool) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def check_screens(browser: Any, page: Path) -> None:
    """Wide and narrow, light and dark: nothing sticks out to the side, and the ground changes."""
    grounds = []
    for scheme in ("light", "dark"):
        set_scheme(browser, scheme)
        for width in (1280, 500):
            browser.set_window_size(width, 900)
            browser.get(page.as_uri())
            assert js(browser, "document.documentElement.scrollWidth - window.innerWidth") <= 0
        grounds.append(js(browser, "getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1]
