"""The page and the files of a report, without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from synthetic import HOSTILE, corruption_records, domain_records, fill, many, record

from commands import fretta
from fretta.errors import ConfigError, StoreError
from fretta.experiment.records import Record
from fretta.experiment.store import Store
from fretta.experiment.suite import load_suite
from fretta.report.commands import command
from fretta.report.write import build, write_report


class Reader(HTMLParser):
    """Elements, attributes and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()
        self.ids = [v for k, v in self.attributes if k == "id"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(k, v or "") for k, v in attrs]
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            kind, before = self.scripts[-1]
            self.scripts[-1] = (kind, before + data)
        elif self._inside != "style":
            self.text.append(data)


def page_of(records: list[Record], tmp_path: Path, **more: Any) -> str:
    return build(fill(tmp_path / "store", records)).page(**more)


def shown(text: str) -> str:
    return " ".join(" ".join(Reader(text).text).split())


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time; what is tested here does not need it."""
    monkeypatch.setattr("fretta.report.write.find_figures", lambda *_: ([], ""))


def three() -> list[Record]:
    return [
        record(label, seed, accuracy={"fog": value + seed / 100, "snow": value})
        for label, value in (("source", 0.4), ("tent", 0.6), ("bn", 0.5))
        for seed in range(3)
    ]


# ---- stores of all kinds ----------------------------------------------------------------------


@pytest.mark.usefixtures("no_figures")
def test_stores_of_all_kinds(tmp_path: Path) -> None:
    text = shown(build(Store(tmp_path / "nothing")).page())
    assert f"fretta run smoke --store {tmp_path / 'nothing'}" in text
    failed = shown(page_of([record("tent", 0, error="ValueError: no")], tmp_path / "failed"))
    assert "no run finished" in failed
    assert "ValueError: no" in failed
    text = shown(page_of([record("tent", 0, accuracy={"fog": 0.6})], tmp_path / "single"))
    assert "1 run in 1 suite" in text
    assert "tent 60.0 %. There is no run of source." in text


@pytest.mark.usefixtures("no_figures")
def test_the_answer_comes_first_and_problems_are_named(tmp_path: Path) -> None:
    records = [*three(), record("sar", 0, error="Traceback …\nRuntimeError: out of ideas")]
    fill(tmp_path / "store", [])
    (tmp_path / "store" / "records" / "half.json").write_text("{")
    text = shown(page_of(records, tmp_path))
    answer = text.index("tent 60.5 % against 40.5 % for source")
    assert answer < text.index("Accuracy per domain") < text.index("Where the numbers come from")
    for words in ("1 failed", "1 file damaged", "RuntimeError: out of ideas", "1 of 1 runs failed"):
        assert words in text
    assert "adapting helps" in text
    assert "half.json is damaged" in text


def hostile() -> list[Record]:
    made = [
        record(
            label,
            seed,
            suite=HOSTILE,
            case=HOSTILE,
            method=method,
            accuracy={HOSTILE: 0.5 + seed / 50, "\u2028</script>": 0.5},
            data={"name": HOSTILE},
            hyperparameters={HOSTILE: HOSTILE},
        )
        for label, method in ((HOSTILE, "tent"), ("source", "source"), ("日本 \ud800 é", "bn"))
        for seed in range(2)
    ]
    made.append(record("x", 0, suite=HOSTILE, case=HOSTILE, error=f"RuntimeError: {HOSTILE}"))
    made[0].provenance["processor"] = HOSTILE
    made[0].tags["tuning"] = HOSTILE
    return made


def test_hostile_names_are_shown_and_not_run(tmp_path: Path) -> None:
    text = page_of(hostile(), tmp_path)
    read = Reader(text)
    kinds = [kind.get("type") for kind, _ in read.scripts]
    assert kinds == ["application/json", None]  # the data and the page's own script: no others
    assert HOSTILE in shown(text)
    assert "<script>alert" not in text
    assert not [k for k, _ in read.attributes if k.startswith("on")]
    data = json.loads(read.scripts[0][1])
    assert HOSTILE in {g["label"] for g in data["groups"]}
    assert not set("<>&\u2028") & set(read.scripts[0][1])
    out = write_report(Store(tmp_path / "store"), tmp_path / "out")
    assert all(re.fullmatch(r"[a-z0-9./-]+", name) for name in out.files)
    for file in (tmp_path / "out").rglob("*.svg"):
        assert "<script" not in file.read_text(encoding="utf-8")


# ---- the shape of the page --------------------------------------------------------------------


def test_nothing_is_loaded_and_only_our_script_may_run(tmp_path: Path) -> None:
    text = page_of(corruption_records(seeds=(0, 1)), tmp_path)
    read = Reader(text)
    addresses = [v for k, v in read.attributes if k in ("src", "href", "xlink:href", "action")]
    assert all(v.startswith(("#", "data:")) for v in addresses)
    assert not {"iframe", "object", "embed", "form", "base"} & set(read.tags)
    csp = next(v for k, v in read.attributes if k == "content" and "default-src" in v)
    script = read.scripts[1][1]
    style = re.search(r"<style>(.*?)</style>", text, re.S)
    assert style
    for content in (script, style[1]):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in csp
    assert "script-src 'unsafe" not in csp
    assert "default-src 'none'" in csp
    assert text.count("<style") == 1


def test_ids_are_unique_and_labels_point_somewhere(tmp_path: Path) -> None:
    store = fill(tmp_path / "s", three(), with_details=True)
    read = Reader(build(store).page())
    assert len(set(read.ids)) == len(read.ids)
    for name in ("aria-labelledby", "aria-describedby", "for"):
        for value in (v for k, v in read.attributes if k == name):
            assert set(value.split()) <= set(read.ids), (name, value)
    for value in (v for k, v in read.attributes if k == "href" and v.startswith("#")):
        assert value[1:] in read.ids


@pytest.mark.usefixtures("no_figures")
def test_the_paper_can_be_left_out_and_runs_share_what_is_equal(tmp_path: Path) -> None:
    records = domain_records(seeds=(0, 1), backbones=("resnet18",))
    assert 'class="paper"' in page_of(records, tmp_path)
    assert 'class="paper"' not in page_of(records, tmp_path, paper=False)
    text = page_of(corruption_records(), tmp_path / "more")
    data = json.loads(Reader(text).scripts[0][1])
    assert [len(data[k]) for k in ("runs", "groups", "provenance")] == [30, 10, 1]


# ---- files --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_of_a_report(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", three(), with_details=True)
    out = tmp_path / "deep" / "report"
    written = write_report(store, out)
    there = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    assert there == {*written.files, "files.json"}
    tables = {f"tables/digits-digits-{k}" for k in ("accuracy", "cost")}
    figures = {f"figures/{f.name}" for f in written.report.figures}
    assert {f"{t}{s}" for t in tables for s in (".md", ".tex", ".csv")} <= there
    assert {f"{f}{s}" for f in figures for s in (".svg", ".png", ".csv")} <= there
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    write_report(store, out)
    same = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    assert before == same  # the same records give the same bytes, and nothing is touched


@pytest.mark.usefixtures("no_figures")
def test_what_an_earlier_report_wrote_does_not_stay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_report(fill(tmp_path / "a", three()), out)
    assert (out / "tables" / "digits-digits-accuracy.md").exists()
    (out / "tables" / "mine.md").write_text("keep")
    (out / "files.json").write_text(
        json.dumps([*json.loads((out / "files.json").read_text()), "../a/records", "index.html"])
    )
    write_report(fill(tmp_path / "b", domain_records(seeds=(0,))), out)
    assert not (out / "tables" / "digits-digits-accuracy.md").exists()
    assert (out / "tables" / "mine.md").read_text() == "keep"
    assert (out / "index.html").exists()
    assert len(list((tmp_path / "a" / "records").iterdir())) == 9


@pytest.mark.usefixtures("no_figures")
def test_formats_suites_and_places(tmp_path: Path) -> None:
    store = fill(tmp_path / "s", [*three(), *corruption_records(seeds=(0,))])
    only = write_report(store, tmp_path / "one", suite="digits", formats=("md",)).files
    assert {Path(f).suffix for f in only} == {".html", ".md"}
    assert not any("cifar" in f for f in only)
    with pytest.raises(ConfigError, match="--format 'pdf' is unknown; choose from md, latex"):
        write_report(store, tmp_path / "x", formats=("pdf",))
    with pytest.raises(ConfigError, match=r"no records of suite 'nosuch'.*cifar10c, digits"):
        write_report(store, tmp_path / "x", suite="nosuch")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        write_report(store, tmp_path / "file")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "cat.jpg").write_bytes(b"a cat")
    with pytest.raises(ConfigError, match="holds other files"):
        write_report(store, tmp_path / "images")
    assert [p.name for p in (tmp_path / "images").iterdir()] == ["cat.jpg"]


@pytest.mark.slow
def test_two_thousand_records(tmp_path: Path) -> None:
    """All of them are in the page, and figures stay few; benchmarks tell how long it takes."""
    store = fill(tmp_path / "s", many())
    report = build(store)
    text = report.page()
    assert len(json.loads(Reader(text).scripts[0][1])["runs"]) == 2000
    assert len(text) < 6_000_000
    assert len(report.figures) < 60


# ---- commands -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", ["smoke", "pacs", "cifar10c", "ablation", "cifar100c-lt"])
def test_the_command_is_one_that_fretta_takes(suite: str) -> None:
    """Every label and case of a shipped suite gives words that select it."""
    loaded = load_suite(suite)
    for case in loaded.cases:
        for entry in loaded.methods:
            made = record(entry.title, 3, suite=suite, case=case.name, method=entry.name)
            words = shlex.split(command(made))
            assert words[:3] == ["fretta", "run", suite]
            options = dict(zip(words[3::2], words[4::2], strict=True))
            chosen = loaded.restricted([options["--method"]], [3], None, [options["--case"]])
            assert entry.title in {m.title for m in chosen.methods}


def test_the_command_gives_the_same_run() -> None:
    """Of a run of the suite with fewer images: its key comes out again."""
    job = load_suite("smoke").restricted(["tent"], [4], 32).jobs()[0]
    words = shlex.split(command(Record(vars(job.run), job.run.key, "done", dict(job.tags))))
    options = dict(zip(words[3::2], words[4::2], strict=True))
    chosen = [options["--method"]], [4], int(options["--limit"]), [options["--case"]]
    again = load_suite(words[2]).restricted(*chosen)
    assert job.run.key in {j.run.key for j in again.jobs()}


def test_commands_of_other_runs() -> None:
    own = command(record("a b", 0, suite="mine", case="c", order_options={"limit": 5}))
    assert own == "fretta run mine.toml --case c --method 'a b' --limit 5 --store again"
    single = command(record("tent", 0, suite="evaluate", hyperparameters={"lr": 0.01}))
    assert "fretta evaluate --model digits --data digits --method tent --set lr=0.01" in single
    trial = command(record("tent lr=1", 0, suite="digits/tune", tuning="oracle"))
    assert trial == "fretta tune digits --method tent --rule oracle --store again"
    tried = record("g-fret", 0, suite="digits/tune", tuning="oracle", hyperparameters={"lr": 0.1})
    assert "--rule oracle --grid lr=0.1" in command(tried)
    data = {"name": "digits", "corruption": ["fog", "snow"], "severity": 3}
    point = record("g-fret", 0, suite="sensitivity-digits", hyperparameters={"lam": 0.1}, data=data)
    assert "fretta evaluate --model digits" in command(point)
    assert "--corruption fog --corruption snow --severity 3" in command(point)
    assert "--method=-x" in command(record("-x", 0, suite="mine", method="tent"))


def test_as_a_user_types_it(tmp_path: Path) -> None:
    fill(tmp_path / "results", three())
    done = fretta("report", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tent 60.5 % against 40.5 % for source: adapting helps" in done.stdout
    assert (tmp_path / "report" / "index.html").is_file()
    empty = fretta("report", "nothing", "--out", "there", cwd=tmp_path)
    assert empty.returncode == 2
    assert "fretta run smoke --store nothing" in empty.stderr
    assert not (tmp_path / "there").exists()
    wrong = fretta("report", "--format", "xml", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr


def test_no_torch(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", three(), with_details=True)
    code = (
        "import sys; from pathlib import Path; from fretta.experiment.store import Store;"
        "from fretta.report.write import write_report; import fretta.report.watch;"
        f"write_report(Store({str(store.where)!r}), Path({str(tmp_path / 'out')!r}));"
        "print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_without_matplotlib_there_are_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    store = fill(tmp_path / "store", three(), with_details=True)
    report = build(store)
    assert report.figures == []
    assert "pip install '.[report]'" in report.figures_note
    assert "Figures are left out" in shown(report.page())
