"""The code blocks of README, docs and notebooks, and how a reader runs them."""

from __future__ import annotations

import contextlib
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = "<!-- with files of your own -->\n"  # before a block that cannot run without them


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    needs_files: bool = False

    @property
    def part_of_a_file(self) -> bool:
        """A file, named in its first line, or a line to put into one: nothing to paste."""
        return bool(re.match(r"# \S+\.\w+\n|from \.", self.text))


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(rf"^({re.escape(FILES)})?```(\w*)\n(.*?)^```$", text, re.M | re.S)
    return [Block(language, code, bool(mark)) for mark, language, code in found]


def python_blocks(page: str) -> list[Block]:
    return [b for b in blocks(page) if b.language == "python" and not b.part_of_a_file]


def notebook_cells(path: str) -> list[Block]:
    """The code of a notebook, cell by cell; its outputs are not committed."""
    cells = json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    return [Block("python", "".join(cell["source"])) for cell in code]


def paste(block: Block, names: dict[str, object]) -> str:
    """Run a block after the ones before it, which left `names`; what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.text, "<a block of the page>", "exec"), names)
    return printed.getvalue()
