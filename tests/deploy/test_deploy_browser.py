"""summary.html in headless Chromium: on a wide and a narrow screen, light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fretta.deploy import AdaptOptions, adapt_images

CHROME = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
DRIVER = shutil.which("chromedriver")


@pytest.mark.browser
@pytest.mark.skipif(not (CHROME and DRIVER), reason="no Chromium here: the page is NOT tested")
def test_the_summary_on_screens(plan: Callable[..., AdaptOptions], tmp_path: Path) -> None:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    adapt_images(plan(hyperparameters={"lr": 30.0}))
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROME)
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", f"--user-data-dir={tmp_path / 'chromium'}"),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        grounds = []
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            for width in (1280, 500):
                driver.set_window_size(width, 900)
                driver.get((tmp_path / "out" / "summary.html").as_uri())
                over = "return document.documentElement.scrollWidth - window.innerWidth"
                assert driver.execute_script(over) <= 0
            color = "return getComputedStyle(document.body).backgroundColor"
            grounds.append(driver.execute_script(color))
        assert grounds[0] != grounds[1]
        assert driver.get_log("browser") == []  # nothing was blocked, nothing is missing
        lines = driver.execute_script("return document.querySelectorAll('polyline').length")
        assert lines >= 5
    finally:
        driver.quit()
