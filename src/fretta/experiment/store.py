"""One JSON file per run, named by the run's hash, written atomically.

    STORE/records/<key>.json       the record: small, everything a table needs
    STORE/details/<key>.json       what figures need; written first, so a record is always complete
    STORE/checkpoints/<key>.pt     of runs in flight or failed; gone when the run is finished
    STORE/analyses/<name>.json     what `fretta analyze` measured; figures draw it

A store that is kept for good can be packed (`pack`): all records as lines of `records.jsonl`, what
figures need as lines of `details.jsonl.gz`. Packed and single files are read alike.

A store is a folder, or any fsspec URL (`s3://bucket/results`) for workers on several machines.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import uuid
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .._util import replace_file
from ..errors import MissingExtraError, StoreError
from .records import Record, canonical

RECORDS, DETAILS = "records.jsonl", "details.jsonl.gz"  # of a packed store


def _lines(path: Path) -> list[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return [line.rstrip(b"\n") for line in file]
    except FileNotFoundError:
        return []
    except (OSError, EOFError, zlib.error) as error:
        raise StoreError(f"{str(path)!r} cannot be read: {error}") from error


def _entries(path: Path, *keys: str) -> list[tuple[bytes, dict[str, Any]]]:
    """The lines of a packed file, and what they say."""
    found = []
    for number, line in enumerate(_lines(path), 1):
        try:
            entry = json.loads(line)
            _ = [entry[key] for key in keys]
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise StoreError(
                f"line {number} of {str(path)!r} is damaged ({error}); delete it, and its run will"
                " be repeated"
            ) from error
        found.append((line, entry))
    return found


class _Folder:
    """A folder on this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.packs: dict[str, dict[str, bytes]] = {}

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            folder, _, file = name.partition("/")
            return self._packed(folder).get(file.removesuffix(".json"))

    def _packed(self, folder: str) -> dict[str, bytes]:
        """{key: content} of what is packed, read once."""
        if folder == "records" and folder not in self.packs:
            found = _entries(self.root / RECORDS, "key")
            self.packs[folder] = {entry["key"]: line for line, entry in found}
        elif folder == "details" and folder not in self.packs:
            found = _entries(self.root / DETAILS, "key", "details")
            self.packs[folder] = {d["key"]: json.dumps(d["details"]).encode() for _, d in found}
        return self.packs.get(folder, {})

    def write(self, name: str, content: bytes) -> None:
        """The file takes its place at once, complete and on disk, or not at all."""
        path = self.root / name
        try:
            replace_file(path, content)
        except OSError as error:
            raise StoreError(f"cannot write {str(path)!r}: {error.strerror or error}") from error

    def names(self, folder: str) -> list[str]:
        try:
            with os.scandir(self.root / folder) as entries:
                names = {e.name for e in entries if not e.name.startswith(".")}
        except FileNotFoundError:
            names = set()
        except NotADirectoryError as error:
            raise StoreError(f"{str(self.root)!r} is a file; a store is a folder") from error
        return sorted(names | {f"{key}.json" for key in self._packed(folder)})

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)


class _Remote:
    """Any fsspec file system. Object stores make an object visible only when it is complete."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ModuleNotFoundError as error:
            raise MissingExtraError("fsspec", "ray", f"the store {url!r}") from error
        try:
            self.fs, self.root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise StoreError(f"the store {url!r} cannot be opened: {error}") from error

    def read(self, name: str) -> bytes | None:
        try:
            content: bytes = self.fs.cat_file(f"{self.root}/{name}")
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        path = f"{self.root}/{name}"
        draft = f"{path}.{uuid.uuid4().hex}.part"
        try:
            self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self.fs.pipe_file(draft, content)
            self.fs.mv(draft, path)
        except Exception as error:  # a file system has errors of its own: credentials, networks
            raise StoreError(f"cannot write {path!r}: {error}") from error

    def names(self, folder: str) -> list[str]:
        self.fs.invalidate_cache(f"{self.root}/{folder}")  # others write here too
        try:
            found = self.fs.ls(f"{self.root}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        return [str(path).rpartition("/")[2] for path in found if not str(path).endswith(".part")]

    def remove(self, name: str) -> None:
        if self.fs.exists(f"{self.root}/{name}"):
            self.fs.rm_file(f"{self.root}/{name}")


def is_url(where: str) -> bool:
    """Whether a store is an fsspec URL, not a folder on this machine."""
    return "://" in where


def open_files(where: str) -> _Folder | _Remote:
    """Whole files of a folder or an fsspec URL."""
    return _Remote(where) if is_url(where) else _Folder(Path(where))


def check_analysis_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise StoreError(f"an analysis cannot be called {name!r}; use a-z, 0-9 and dashes")


class Store:
    """Records by key. Opening one costs nothing; `check` finds out whether it can be written."""

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self.where = os.fspath(where)
        self._files = open_files(self.where)

    @property
    def local(self) -> Path | None:
        """The folder, if the store is one on this machine."""
        return None if is_url(self.where) else Path(self.where)

    def check(self) -> None:
        """Raise now rather than after the first run if nothing can be written here."""
        probe = f"records/.probe-{uuid.uuid4().hex}"
        try:
            self._files.write(probe, b"probe")
        except StoreError as error:
            reason = getattr(error.__cause__, "strerror", None) or error
            raise StoreError(f"cannot write to the store {self.where!r}: {reason}") from error
        self._files.remove(probe)

    def keys(self) -> list[str]:
        return self._names("records")

    def _names(self, folder: str) -> list[str]:
        names = self._files.names(folder)
        return sorted(n.removesuffix(".json") for n in names if n.endswith(".json"))

    def get(self, key: str) -> Record | None:
        """The record, None if there is none; a StoreError if it is damaged."""
        content = self._files.read(f"records/{key}.json")
        if content is None:
            return None
        where = f"{self.where}/records/{key}.json"
        record = Record.from_bytes(content, where)
        if record.key != key:
            raise StoreError(f"{where} holds the record of another run, {record.key}")
        return record

    def done(self, key: str) -> bool:
        """Whether a sound record of a finished run is there; a damaged one counts as absent."""
        try:
            record = self.get(key)
        except StoreError:
            return False
        return record is not None and record.status == "done"

    def put(self, record: Record, details: dict[str, Any] | None = None) -> None:
        """Keep a record. A failed run does not take the place of a finished one."""
        if record.status != "done" and self.done(record.key):
            return
        if details is not None:
            self._files.write(f"details/{record.key}.json", json.dumps(details).encode())
        self._files.write(f"records/{record.key}.json", record.to_bytes())

    def details(self, key: str) -> dict[str, Any] | None:
        content = self._files.read(f"details/{key}.json")
        try:
            loaded: dict[str, Any] | None = (  # NaN is no number
                None if content is None else json.loads(content, parse_constant=lambda _: None)
            )
        except ValueError as error:
            raise StoreError(f"{self.where}/details/{key}.json is damaged: {error}") from error
        return loaded

    def records(self, damaged: list[str] | None = None) -> Iterator[Record]:
        """All sound records; the messages about others are appended to `damaged`."""
        for key in self.keys():
            try:
                record = self.get(key)
            except StoreError as error:
                if damaged is None:
                    raise
                damaged.append(str(error))
                continue
            if record is not None:
                yield record

    def pack(self) -> int:
        """All records of a folder as two files instead of two each; how many there are."""
        if self.local is None:
            raise StoreError(f"{self.where!r} is not a folder on this machine; only one is packed")
        folders = [self.local / name for name in ("records", "details")]
        loose = {p: p.stat().st_mtime_ns for folder in folders for p in folder.glob("*.json")}
        records = list(self.records())
        details = {record.key: self.details(record.key) for record in records}
        lines = [canonical({"key": k, "details": d}) for k, d in details.items() if d is not None]
        replace_file(self.local / RECORDS, b"".join(r.to_bytes() + b"\n" for r in records))
        if lines:
            text = "".join(f"{line}\n" for line in lines).encode()
            replace_file(self.local / DETAILS, gzip.compress(text, mtime=0))
        for path, stamp in loose.items():
            with suppress(OSError):
                if path.stat().st_mtime_ns == stamp:  # else somebody wrote it meanwhile
                    path.unlink()
        for folder in folders:
            with suppress(OSError):  # not empty
                folder.rmdir()
        self._files = _Folder(self.local)
        return len(records)

    # ---- analyses --------------------------------------------------------------------------------

    def put_analysis(self, name: str, content: dict[str, Any]) -> None:
        """Keep what an analysis measured; one of the same name is replaced."""
        check_analysis_name(name)
        self._files.write(f"analyses/{name}.json", canonical(content).encode())

    def analyses(self, damaged: list[str] | None = None) -> list[dict[str, Any]]:
        """All sound analyses by name, each with its "name"; messages about others as above."""
        found = []
        for name in self._names("analyses"):
            try:
                loaded = json.loads(self._files.read(f"analyses/{name}.json") or b"")
                if not isinstance(loaded, dict) or not isinstance(loaded.get("kind"), str):
                    raise ValueError("it does not say its kind")
            except ValueError as error:
                message = f"{self.where}/analyses/{name}.json is damaged: {error}"
                if damaged is None:
                    raise StoreError(message) from error
                damaged.append(message)
                continue
            found.append({**loaded, "name": name})
        return found

    # ---- checkpoints of unfinished runs ----------------------------------------------------------

    def read_checkpoint(self, key: str) -> bytes | None:
        return self._files.read(f"checkpoints/{key}.pt")

    def write_checkpoint(self, key: str, content: bytes) -> None:
        self._files.write(f"checkpoints/{key}.pt", content)

    def drop_checkpoint(self, key: str) -> None:
        self._files.remove(f"checkpoints/{key}.pt")
