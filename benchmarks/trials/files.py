"""Hostile and broken files in every place that reads one."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import shutil
import signal
import struct
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save as to_safetensors

from fretta.data import open_dataset
from fretta.deploy import adapt_images
from fretta.errors import FrettaError
from fretta.experiment.execute import Options, run_jobs
from fretta.experiment.store import Store
from fretta.experiment.suite import load_suite, parse_suite
from fretta.experiment.train import TrainConfig, train_source
from fretta.models import load
from fretta.models.cards import read_card
from fretta.models.labels import read_labels
from fretta.models.weights import read_weights

from .tally import Tally, hold
from .tiny import adapt_options, classifier, save_pictures, write_weights

CODE = "a pickle that runs code is refused, or costs only time, and runs nothing"
TENSORS = "a damaged or lying weights file: WeightsError, or tensors; no crash"
PICTURES = (
    "broken pictures, bombs, pipes and loops are named and left out; the others are predicted"
)
NAMES = "hostile file names and labels: whole rows, inert pages, no escapes on the terminal"
TEXTS = "absurd cards, label files and suites: a FrettaError, or they are taken"
REMOTE = "an hf: folder that wants remote code or files elsewhere is refused and runs nothing"
SECONDS = 120


@contextmanager
def in_time(seconds: int = SECONDS) -> Iterator[None]:
    """What hangs is a failure."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not through in {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def workshop() -> Iterator[Path]:
    """A folder with twelve pictures and weights."""
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    save_pictures(folder / "pictures", 12)
    write_weights(folder / "tiny.safetensors")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- code ----------------------------------------------------------------------------------------


class Calls:
    """Pickled, it calls a function when it is read."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def payloads(trace: Path) -> dict[str, Any]:
    code = f"open({str(trace)!r}, 'w').close()"
    return {
        "os.system": Calls(os.system, f"touch {trace}"),
        "exec": Calls(exec, code),
        "eval": Calls(eval, code),
        "Path.touch": Calls(Path.touch, trace),
        "torch.load": Calls(torch.load, str(trace)),
        "in a dict": {"state_dict": Calls(exec, code)},
        "deep": [[[{"a": (Calls(exec, code),)}]]],
    }


def written(payload: Any, way: str) -> bytes:
    if way == "pickle":
        return pickle.dumps(payload)
    file = io.BytesIO()
    torch.save(payload, file, _use_new_zipfile_serialization=way == "zip")
    return file.getvalue()


def _into_weights(folder: Path, content: bytes) -> None:
    for name in ("evil.pt", "evil.pth", "evil.safetensors"):
        (folder / name).write_bytes(content)
        with suppress(FrettaError):
            adapt_images(adapt_options(folder, weights=str(folder / name), out=folder / name[5:]))
            hold(False, f"{name} was taken")


def _into_checkpoint(folder: Path, content: bytes) -> None:
    """Of a run of `fretta adapt`."""
    done: list[int] = []
    options = adapt_options(folder, checkpoint_seconds=0.0, batch_size=4)
    adapt_images(options, on_batch=done.append, stopped=lambda: len(done) >= 2)
    hold((options.out / "checkpoint.pt").exists(), "no checkpoint to replace")
    (options.out / "checkpoint.pt").write_bytes(content)
    with suppress(FrettaError):
        adapt_images(options, resume=True)
        hold(False, "the checkpoint was taken")


def _into_store(folder: Path, content: bytes) -> None:
    """The checkpoint of a run in a store."""
    store = Store(str(folder / "results"))
    (job,) = load_suite("smoke").restricted(["bn"], [0], 32).jobs(None)
    store.write_checkpoint(job.run.key, content)
    (record,) = run_jobs([job], store, options=Options(threads=1, device="cpu")).records
    hold(record.status == "done", record.error or "failed")


def _into_training(folder: Path, content: bytes) -> None:
    config = TrainConfig(data="digits", out=folder / "digits.safetensors", epochs=1, limit=64)
    (folder / "digits.ckpt").write_bytes(content)
    with suppress(FrettaError):
        train_source(config, resume=True)


def _into_cifar(folder: Path, content: bytes) -> None:
    place = folder / "cifar-10-batches-py"
    place.mkdir()
    for name in ("data_batch_1", "test_batch", "batches.meta"):
        (place / name).write_bytes(content)
    with suppress(FrettaError):
        list(open_dataset("cifar10", root=folder).domains[0].read([0]))
        hold(False, "the batch was taken")


def _into_arrays(folder: Path, content: bytes) -> None:
    """An array of objects where CIFAR-10-C has pixels."""
    place = folder / "CIFAR-10-C"
    place.mkdir()
    with (place / "fog.npy").open("wb") as file:
        np.save(file, np.array([content, pickle.loads], dtype=object), allow_pickle=True)
    (place / "labels.npy").write_bytes(content)
    with suppress(FrettaError):
        list(open_dataset("cifar10c", root=folder).domains[0].read([0]))
        hold(False, "the array was taken")


PLACES = {
    "weights": _into_weights,
    "checkpoint of adapt": _into_checkpoint,
    "checkpoint of a store": _into_store,
    "checkpoint of training": _into_training,
    "CIFAR": _into_cifar,
    "CIFAR-C": _into_arrays,
}


def code(tally: Tally, short: bool) -> None:
    for place, put in PLACES.items():
        for name in list(payloads(Path("x")))[: 1 if short else None]:
            for way in ("pickle", "zip", "legacy")[: 1 if short else None]:
                with workshop() as folder, tally.trial(CODE, f"{place}/{name}/{way}"):
                    trace = folder / "trace"
                    content = written(payloads(trace)[name], way)
                    with in_time():
                        put(folder, content)
                    hold(not trace.exists(), "code was run")


# ---- weights -------------------------------------------------------------------------------------


def _header(entry: Any, body: bytes = b"\0" * 64) -> bytes:
    text = json.dumps(entry).encode()
    return struct.pack("<Q", len(text)) + text + body


def lying_headers() -> dict[str, bytes]:
    def one(**changes: Any) -> dict[str, Any]:
        return {"0.weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16], **changes}}

    return {
        "offsets beyond the file": _header(one(data_offsets=[0, 1 << 40])),
        "negative offsets": _header(one(data_offsets=[-16, 0])),
        "offsets backwards": _header(one(data_offsets=[16, 0])),
        "a huge shape": _header(one(shape=[1 << 40, 1 << 40])),
        "a shape that overflows": _header(one(shape=[1 << 62, 4])),
        "a negative shape": _header(one(shape=[-4])),
        "another size": _header(one(shape=[5])),
        "an unknown type": _header(one(dtype="F99")),
        "no entries": _header({}),
        "a list": _header([1, 2]),
        "a word": _header("tensor"),
        "a long header": struct.pack("<Q", 1 << 60) + b"{}",
        "no header": b"",
        "seven bytes": b"\0" * 7,
        "deep": struct.pack("<Q", 200_000) + b"[" * 200_000,
        "overlap": _header({**one(), "1": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}}),
    }


def tensors(tally: Tally, chance: random.Random, rounds: int) -> None:
    good = to_safetensors(classifier().state_dict())
    file = io.BytesIO()
    torch.save(classifier().state_dict(), file)
    cases = {name: (content, ".safetensors") for name, content in lying_headers().items()}
    for number in range(rounds):
        for whole, ending in ((good, ".safetensors"), (file.getvalue(), ".pt")):
            content = bytearray(whole)
            if number % 3 == 0:
                del content[chance.randrange(len(content)) :]
            else:
                for _ in range(chance.randint(1, 8)):
                    most = 400 if number % 3 == 1 else len(content)
                    content[chance.randrange(most)] = chance.randrange(256)
            cases[f"damage {number} of {ending}"] = (bytes(content), ending)
    with workshop() as folder:
        for name, (content, ending) in cases.items():
            path = folder / f"weights{ending}"
            path.write_bytes(content)
            with tally.trial(TENSORS, name), in_time(), suppress(FrettaError):
                found = read_weights(path)
                hold(all(isinstance(v, torch.Tensor) for v in found.values()), "no tensors")
                load("trials.tiny:classifier", weights=path)
        for value in (torch.nan, torch.inf, 3e38):
            state = classifier().state_dict()
            state = {k: v.fill_(value) if v.is_floating_point() else v for k, v in state.items()}
            (folder / "bad.safetensors").write_bytes(to_safetensors(state))
            options = adapt_options(folder, weights=str(folder / "bad.safetensors"))
            with tally.trial(TENSORS, f"all {value}"), in_time():
                try:
                    adapt_images(options, force=True)
                    hold(False, "weights that are no numbers were taken")
                except FrettaError:
                    pass


# ---- pictures ------------------------------------------------------------------------------------


def bomb(width: int, height: int) -> bytes:
    """A PNG that says it is so large, with little in it."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        mark = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + mark

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\0" * 1_000_000)
    end = chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + end


def broken_pictures(chance: random.Random, count: int) -> dict[str, bytes]:
    pixels = np.random.RandomState(0).randint(256, size=(32, 32, 3), dtype=np.uint8)
    found = {
        "bomb.png": bomb(60_000, 60_000),
        "wide.png": bomb(2_000_000_000, 1),
        "zero.png": bomb(0, 0),
        "empty.png": b"",
        "text.png": b"not a picture",
        "script.jpg": b"<script>alert(1)</script>",
    }
    formats = {"png": "PNG", "jpg": "JPEG", "gif": "GIF", "bmp": "BMP", "tif": "TIFF"}
    for number in range(count):
        ending = chance.choice(sorted(formats))
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, formats[ending])
        content = bytearray(file.getvalue())
        if number % 2:
            del content[chance.randrange(len(content)) :]
        else:
            for _ in range(chance.randint(1, 30)):
                content[chance.randrange(len(content))] = chance.randrange(256)
        found[f"{number:04d}.{ending}"] = bytes(content)
    return found


def pictures(tally: Tally, chance: random.Random, count: int) -> None:
    bad = list(broken_pictures(chance, count).items())
    for begin in range(0, len(bad), 10):
        with workshop() as folder, tally.trial(PICTURES, f"files {begin} to {begin + 9}"):
            place = folder / "pictures"
            for name, content in bad[begin : begin + 10]:
                (place / f"bad{name}").write_bytes(content)
            os.mkfifo(place / "pipe.png")
            (place / "loop.png").symlink_to("loop.png")
            (place / "around").symlink_to(".", target_is_directory=True)
            (place / "zero.jpg").symlink_to("/dev/zero")
            (place / "folder.png").mkdir()
            (place / "gone.png").symlink_to("nowhere.png")
            with in_time():
                result = adapt_images(adapt_options(folder, skip_unreadable=True))
            hold(result.complete, "not complete")
            hold(result.counts.images >= 12, f"{result.counts.images} predicted")
            rows = (folder / "out" / "predictions.csv").read_text(encoding="utf-8")
            hold(all(f"{n:03d}.png" in rows for n in range(12)), "a good picture has no row")
        for _ in bad[begin + 1 : begin + 10]:
            tally.count(PICTURES)  # a trial is a file


# ---- names ---------------------------------------------------------------------------------------

HOSTILE = (
    "line\nbreak",
    "carriage\rreturn",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "quo\"te',",
    "=HYPERLINK(1)",
    "+cmd|' 'C0",
    "@sum",
    "-flag",
    "--help",
    "\x1b[31mred\x1b]0;title\x07",
    "\x9b31m",
    "nul\u0000"[:-1] + "\u202eright",
    "{{ 7 * 7 }}{% raw %}",
    "${jndi}",
    "\udcff",
    "a" * 200,
    "../up".replace("/", "\u2215"),
    "] (javascript:alert(1))",
    "&lt;b&gt;&#x3c;",
)


class _Elements(HTMLParser):
    """Scripts, frames, images from elsewhere and handlers of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        handlers = [name for name, _ in attributes if name.startswith("on")]
        links = [v for n, v in attributes if n in ("src", "href") and (v or "").startswith("java")]
        if tag in ("iframe", "object", "embed", "img") or handlers or links:
            self.found.append(f"<{tag} {attributes}>")


def inert(page: str, wanted: int) -> None:
    """No element that a name could have brought, and no more scripts than the page's own."""
    reader = _Elements()
    reader.feed(page)
    strange = [e for e in reader.found if "data:image" not in e]
    hold(not strange, f"the page has {strange[:2]}")
    hold(page.count("<script") == wanted, f"{page.count('<script')} scripts, not {wanted}")


def names(tally: Tally) -> None:
    import csv
    import subprocess
    import sys

    with workshop() as folder:
        adapt_images(adapt_options(folder))
        own = (folder / "out" / "summary.html").read_text(encoding="utf-8").count("<script")
    for name in HOSTILE:
        with workshop() as folder, tally.trial(NAMES, repr(name)):
            with suppress(OSError):
                shutil.copy(folder / "pictures" / "000.png", folder / "pictures" / f"{name}.png")
                (folder / "pictures" / f"{name}x.png").write_text("broken")
            label = name.encode("utf-8", "replace").decode()
            labels = folder / "labels.json"
            labels.write_text(json.dumps([label, "b", "c", "d"]), encoding="utf-8")
            words = ["adapt", "--model", "trials.tiny:classifier", "--weights", "tiny.safetensors"]
            words += ["--data", "pictures", "--out", "out", "--size", "16", "--mean", "0.5,0.5,0.5"]
            words += ["--std", "0.5,0.5,0.5", "--method", "bn", "--labels", "labels.json"]
            words += ["--skip-unreadable"]
            here = str(Path(__file__).resolve().parents[1])
            places = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
            done = subprocess.run(
                [sys.executable, "-m", "fretta", *words],
                cwd=folder,
                capture_output=True,
                env={**os.environ, "PYTHONPATH": places, "NO_COLOR": "1", "COLUMNS": "120"},
                timeout=SECONDS,
                check=False,
            )
            said = done.stdout + done.stderr
            hold(done.returncode == 0, said.decode("utf-8", "replace")[-300:])
            hold(b"\x1b" not in said and b"\x9b" not in said.replace(b"\xc2\x9b", b""), "escapes")
            with (folder / "out" / "predictions.csv").open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            hold(len(rows) in (12, 13, 14), f"{len(rows)} rows")
            cells = [row["path"] for row in rows] + [row["label"] or "" for row in rows]
            risky = [c for c in cells if c[:1] in ("=", "@", "\t", "\r")]
            hold(not risky, f"a formula: {risky[:1]}")
            inert((folder / "out" / "summary.html").read_text(encoding="utf-8"), own)


# ---- texts ---------------------------------------------------------------------------------------

ABSURD: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        10**400,
        1e308,
        "",
        " ",
        "\0",
        "<script>",
        "../../etc/passwd",
        "a" * 10**5,
    ),
    *([], {}, [[]], [None], {"": ""}, [1, "a", None], {"a": {"a": {"a": {}}}}, "os:system"),
)


def _changed(value: Any, chance: random.Random) -> Any:
    """A copy with something absurd in the place of one part."""
    value = json.loads(json.dumps(value))
    paths: list[tuple[Any, Any]] = []

    def walk(holder: Any) -> None:
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, item in list(items):
            paths.append((holder, key))
            if isinstance(item, dict | list):
                walk(item)

    walk(value)
    holder, key = chance.choice(paths)
    holder[key] = chance.choice(ABSURD)
    return value


def texts(tally: Tally, chance: random.Random, rounds: int) -> None:
    from importlib import resources

    import fretta

    package = resources.files(fretta)
    shipped = next(Path(str(package)).rglob("digits*.json"))
    card = json.loads(shipped.read_text(encoding="utf-8"))
    suite = package.joinpath("suites", "smoke.toml").read_text(encoding="utf-8")
    plain = tomllib.loads(suite)
    raw = [
        b"",
        b"\0" * 100,
        b"\xff\xfe{}",
        b"[" * 100_000,
        b"{" * 10,
        b'{"a": 1e999}',
        b"[" + b"0,",
    ]
    with workshop() as folder:
        path = folder / "file.json"
        readers: dict[str, Callable[[Path], Any]] = {"card": read_card, "labels": read_labels}
        for kind, read in readers.items():
            start = card if kind == "card" else {"id2label": {"0": "a", "1": "b"}, "names": ["a"]}
            cases = list(raw)
            for _ in range(rounds):
                with suppress(ValueError):
                    cases.append(json.dumps(_changed(start, chance)).encode())
            for number, content in enumerate(cases):
                path.write_bytes(content)
                case = f"{kind} {number}: {content[:80]!r}"
                with tally.trial(TEXTS, case), in_time(), suppress(FrettaError):
                    read(path)
        for number in range(rounds):
            changed = _changed(plain, chance)
            with tally.trial(TEXTS, f"suite {number}"), in_time(), suppress(FrettaError):
                parse_suite(_toml(changed), "absurd").jobs(None)
        for content in raw:
            toml = folder / "suite.toml"
            toml.write_bytes(content)
            with tally.trial(TEXTS, f"suite {content[:20]!r}"), in_time(), suppress(FrettaError):
                load_suite(toml)


def _toml(value: Any) -> str:
    """Enough of TOML for a suite, written inline."""

    def inline(item: Any) -> str:
        if isinstance(item, dict):
            inner = ", ".join(f"{json.dumps(str(k))} = {inline(v)}" for k, v in item.items())
            return "{" + inner + "}"
        if isinstance(item, list):
            return "[" + ", ".join(inline(i) for i in item) + "]"
        return '"none"' if item is None else json.dumps(item)

    return "\n".join(f"{json.dumps(str(k))} = {inline(v)}" for k, v in value.items())


def remote(tally: Tally) -> None:
    configs: dict[str, dict[str, Any]] = {
        "auto_map": {"auto_map": {"AutoModelForImageClassification": "evil.Model"}},
        "auto_map and type": {
            "model_type": "vit",
            "auto_map": {"AutoConfig": "evil.Config", "AutoModelForImageClassification": "evil.M"},
        },
        "another repository": {"auto_map": {"AutoConfig": "someone/repo--evil.Config"}},
        "unknown type": {"model_type": "evil"},
        "architecture": {"architectures": ["evil.Model"], "model_type": "../evil"},
        "no dict": {"model_type": ["vit"]},
    }
    for name, config in configs.items():
        with workshop() as folder, tally.trial(REMOTE, name):
            place, trace = folder / "hf", folder / "trace"
            place.mkdir()
            (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
            (place / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\n", encoding="utf-8")
            with in_time(), suppress(FrettaError):
                load(f"hf:{place}", num_classes=4)
            hold(not trace.exists(), "code was run")


def trials(methods: list[str], seed: int, short: bool) -> Tally:
    tally, chance = Tally("files"), random.Random(f"{seed}/files")
    code(tally, short)
    tensors(tally, chance, 10 if short else 150)
    pictures(tally, chance, 20 if short else 400)
    texts(tally, chance, 10 if short else 200)
    remote(tally)
    if not short:
        names(tally)
    return tally
