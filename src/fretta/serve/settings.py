"""The settings of a service: plain values, from the command line or from a Serve YAML."""

from __future__ import annotations

import math
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import ConfigError, InputError
from ..experiment.settings import GUARDS, ModelSettings

TOKEN = "FRETTA_TOKEN"  # of the environment
LONGEST_ID = 128  # characters of the id of an image
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Settings(ModelSettings):
    """Everything the user gives. The model and how it adapts are as in `fretta adapt`."""

    _: KW_ONLY
    # streams
    batch_size: int = 32
    wait: float = 0.01  # seconds that a batch waits to become full
    shards: int = 1  # processes that hold the streams
    max_streams: int = 256  # in the memory of a shard
    history: int = 256  # batches whose health is kept
    remember: int = 2048  # answers that late labels can be about, per stream
    store: str | None = None  # folder or fsspec URL of the checkpoints; None: nothing is kept
    checkpoint_every: int = 16  # batches
    # requests
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = field(default=None, repr=False)  # None: FRETTA_TOKEN, if it is set
    max_body: int = 1 << 26  # bytes
    max_images: int = 256
    max_pixels: int = 50_000_000  # of an image
    timeout: float = 60.0  # seconds

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            value = getattr(self, name)
            if isinstance(value, list):  # as YAML has it
                object.__setattr__(self, name, tuple(value))
        for each in fields(self):
            _check_type(each.name, str(each.type), getattr(self, each.name))
        if not self.model:
            raise ConfigError(
                "model='' names no model; give one as `fretta adapt --model` takes it"
            )
        for name, choices in {"guard": GUARDS, "alpha": ("white", "drop")}.items():
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} is unknown; one of {', '.join(choices)}"
                )
        for name, low in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name}={value!r} cannot work; {low} or more is expected")
        if self.port > 65535:
            raise ConfigError(f"port={self.port} cannot work; 65535 is the last one")
        if self.token is not None and not self.token.strip():
            raise ConfigError("token='' would let everybody in; leave it out, or give a secret")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """From plain values, as `args` of a Serve YAML."""
        known = [each.name for each in fields(cls)]
        for key in values:
            if key not in known:
                near = get_close_matches(str(key), known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
                raise ConfigError(f"{key!r} is no setting of the service{hint}")
        if "model" not in values:
            raise ConfigError("the settings name no model; give model=, such as timm:resnet50")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, as plain values. The token is never in it."""
        found = {}
        for each in fields(self):
            value = getattr(self, each.name)
            default = {} if each.default_factory is not MISSING else each.default
            if each.name != "token" and value != default:
                plain = dict(value) if isinstance(value, Mapping) else value
                plain = str(plain) if isinstance(plain, Path) else plain
                found[each.name] = list(plain) if isinstance(plain, tuple) else plain
        return found

    @property
    def bearer(self) -> str | None:
        """The token that requests must bring; None: no token is needed."""
        return self.token or os.environ.get(TOKEN, "").strip() or None


LEAST: dict[str, float] = {
    "batch_size": 1,
    "wait": 0,
    "shards": 1,
    "max_streams": 1,
    "history": 1,
    "remember": 0,
    "checkpoint_every": 1,
    "port": 1,
    "max_body": 1,
    "max_images": 1,
    "max_pixels": 1,
    "timeout": 0.1,
}
_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | Path": (str, Path),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "Mapping[str, Any]": (Mapping,),
    "Mapping[str, float]": (Mapping,),
    "tuple[float, ...]": (tuple,),
}


def _check_type(name: str, kind: str, value: Any) -> None:
    optional = kind.endswith(" | None")
    kind = kind.removesuffix(" | None")
    if value is None and optional:
        return
    kinds = _KINDS[kind]
    good = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    if not good or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{name}={value!r} cannot work; {kind} is expected")


def check_name(name: str) -> str:
    """The name of a stream, if it is one: it becomes the name of a file."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(
            f"{str(name)[:80]!r} cannot be the name of a stream; give 1 to 64 of the characters"
            " A-Z a-z 0-9 . _ -, a letter or digit first"
        )
    return name


def shard_of(name: str, shards: int) -> int:
    """Where a stream lives; the same in every process."""
    return zlib.crc32(name.encode()) % shards
