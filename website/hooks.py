"""Hooks of MkDocs: pages that are no file of docs/, and links that hold here and on GitHub."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from website import api, methods, notebook  # noqa: E402

# Files outside docs/ that the site has: path in the repository -> path on the site.
BESIDE = {
    "README.md": "index.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE")},
    "evidence/README.md": "records.md",
    "evidence/run.sh": "evidence/run.sh",
    "examples/quickstart.ipynb": "examples/quickstart.ipynb",
    **{f"website/{name}": name for name in ("extra.css", "worker.js")},
}
SHIM = "https://unpkg.com/iframe-worker/shim"  # what Material loads for search on file://
NAME = re.compile(r"\[(?:docs/)?([\w-]+)\.md\]\(")  # a file name as the text of a link
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]+)(#[^)\s]*)?\)")
COMMENT = re.compile(r"^<!-- .*? -->\n", re.M)  # for tests and for evidence.build; not for readers
CELL = re.compile(r"^\| ([^|\n]+) (?=\|)", re.M)  # the first of a row
ABOUT_METHODS = [f"{page}.md" for page in ("index", "methods", "auto", "evidence", "comparison")]
WORSE = re.compile(r"(?<=\| )([^|\n]+ ▼) \|")  # a cell that is worse than the source
CARDS = """
<div class="grid cards" markdown>

- [**Quick start**](quickstart.md)

    Wrap a model, adapt, see whether it helps.

- [**Your images**](tutorial.md)

    From a drop in production to adapted weights.

- [**Which method?**](methods.md#when-to-use-which)

    Every method: what it does, when to use it, results.

- [**Can I believe it?**](evidence.md)

    Every number from a committed record and a command.

</div>

## Install
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Generated pages get their places."""
    sections: dict[str, Any] = {
        key: value for entry in config.nav or [] for key, value in entry.items()
    }
    sections["Methods"] += [{name: f"methods/{name}.md"} for name in methods.names()]
    sections["API"] += [{title: uri} for uri, title in api.titles().items()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, uri in BESIDE.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text("utf-8")))
    path = "examples/quickstart.ipynb"
    written = {"quickstart.md": linked(notebook.page(ROOT / path), path, "quickstart.md")}
    for uri, text in {**written, **methods.pages(ROOT), **api.pages(ROOT)}.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    markdown = WORSE.sub(r'<span class="worse">\1</span> |', markdown)
    origin = {there: here for here, there in BESIDE.items()}.get(uri)
    if origin is None and page.file.generated_by is not None:
        return markdown
    markdown = NAME.sub(r"[\1](", COMMENT.sub("\n", markdown))
    markdown = linked(markdown, origin or f"docs/{uri}", uri)
    if uri in ABOUT_METHODS:
        markdown = CELL.sub(to_methods, markdown)
    if uri == "records.md":  # another page has the title of this file
        markdown = markdown.replace("# Evidence\n", "# The records\n", 1)
    return markdown.replace("\n## Install\n", CARDS, 1) if uri == "index.md" else markdown


def to_methods(cell: re.Match[str]) -> str:
    """A cell of nothing but names of methods: links to their pages."""
    named = {shown: shown.strip("`") for shown in cell[1].split(", ")}
    if not set(named.values()) <= set(methods.names()):
        return cell[0]
    links = (f"[{shown}](methods/{name}.md)" for shown, name in named.items())
    return f"| {', '.join(links)} "


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    return output.replace(SHIM, posixpath.relpath("worker.js", posixpath.dirname(page.url) or "."))


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    return output_content.replace(SHIM, "/worker.js")


def linked(markdown: str, origin: str, uri: str) -> str:
    """Links relative to a file of the repository, made relative to its page."""

    def there(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), match[1]))
        target = BESIDE.get(path, path.removeprefix("docs/"))
        relative = posixpath.relpath(target, posixpath.dirname(uri) or ".")
        return f"]({relative}{match[2] or ''})"

    return LINK.sub(there, markdown)
