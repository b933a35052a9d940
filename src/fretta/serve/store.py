"""Checkpoints of streams: one file each, replaced at once, in a folder or at any fsspec URL.

A file is in the safetensors format, so nothing is unpickled. Its tensors are those of the state;
everything around them is JSON in the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ..errors import CheckpointError, StoreError
from ..experiment.store import open_files
from .settings import NAME, check_name

FORMAT = "fretta-stream/1"
FOLDER, SUFFIX = "streams", ".safetensors"
State = dict[str, Any]  # nested, of tensors and plain values


class StreamStore:
    """The checkpoints of all streams of one model and method.

    identity   what a checkpoint must share to be loaded: plain values
    """

    def __init__(self, where: str, identity: Mapping[str, Any]) -> None:
        self.where, self.identity = where, dict(identity)
        self._files = open_files(where)

    def names(self) -> list[str]:
        with self._errors("listed"):
            found = [file.removesuffix(SUFFIX) for file in self._files.names(FOLDER)]
        return sorted(name for name in found if NAME.fullmatch(name))

    def save(self, name: str, values: State, state: State) -> None:
        """All or nothing: until the new checkpoint is complete the old one is there."""
        tensors: dict[str, Tensor] = {}
        facts = {"format": FORMAT, "name": name, "identity": self.identity, "values": values}
        text = json.dumps({**facts, "state": _flatten(state, tensors)})
        with self._errors("written"):
            self._files.write(_file(name), save(tensors, {"stream": text}))

    def load(self, name: str) -> tuple[State, State] | None:
        """(values, state); None where the stream has no checkpoint."""
        with self._errors("read"):
            content = self._files.read(_file(name))
        if content is None:
            return None
        try:
            tensors = load(content)
            size = int.from_bytes(content[:8], "little")
            found = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["stream"])
            version, owner, identity = found["format"], found["name"], found["identity"]
            if version == FORMAT and owner == name and identity == self.identity:
                return found["values"], _nested(found["state"], tensors)
        except (SafetensorError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"the checkpoint of stream {name!r} in {self.where!r} is damaged ({error}); reset"
                " the stream to begin again"
            ) from error
        before = {"format": version, "stream": owner, **identity}
        now = {"format": FORMAT, "stream": name, **self.identity}
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        changed = "; ".join(f"{k}: {before.get(k)!r}, here {now.get(k)!r}" for k in keys)
        raise CheckpointError(
            f"the checkpoint of stream {name!r} in {self.where!r} is of another service"
            f" ({changed}); serve as before, give another store, or reset the stream"
        )

    def delete(self, name: str) -> None:
        with self._errors("removed"):
            self._files.remove(_file(name))

    @contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # whatever the library behind a URL raises
            text = f"{type(error).__name__}: {error}"
            raise StoreError(
                f"checkpoints in {self.where!r} cannot be {done} ({text}); is it there, and may"
                " this process use it?"
            ) from error


def _file(name: str) -> str:
    return f"{FOLDER}/{check_name(name)}{SUFFIX}"


# Tensors become {"tensor": key}, mappings {"map": [[key, value], ...]}: keys may be numbers.


def _flatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        key = str(len(tensors))
        tensors[key] = value.detach().cpu().contiguous().clone()  # no two may share memory
        return {"tensor": key}
    if isinstance(value, Mapping):
        return {"map": [[key, _flatten(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_flatten(item, tensors) for item in value]
    return value


def _nested(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_nested(item, tensors) for item in value]
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _nested(item, tensors) for key, item in value["map"]}
    return value
