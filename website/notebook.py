"""A notebook as a page: text as it is, code as blocks. Nothing is run here; a test runs it."""

from __future__ import annotations

import json
from pathlib import Path


def page(path: Path) -> str:
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
    parts.append(f"[Download the notebook]({path.name}){{ .md-button }}")
    return "\n\n".join(parts) + "\n"
