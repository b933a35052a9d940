"""The page at `/`: all streams and the health of one, kept up to date by the browser.

It holds no data: its script asks for `/streams` and `/streams/NAME`, with the token if one is
needed, and puts what comes as text, never as markup.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from importlib.resources import files

from markupsafe import Markup

from ..deploy.page import BOX, render
from ..deploy.summary import CURVES

SECONDS = 2.0  # between two looks


@functools.cache
def page() -> str:
    settings = {"box": BOX, "curves": CURVES, "seconds": SECONDS}
    script = (files(__package__) / "dashboard.js").read_text(encoding="utf-8")
    script = script.replace("SETTINGS", json.dumps(settings), 1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return render(
        "dashboard.html", __package__, title="Streams", script=Markup(script), digest=digest
    )
