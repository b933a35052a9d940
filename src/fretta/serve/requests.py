"""What a request to /predict says: multipart or JSON, read within limits."""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .settings import LONGEST_ID, Settings, check_name

if TYPE_CHECKING:
    from fastapi import Request

FORM, JSON = "multipart/form-data", "application/json"
KEYS = ("stream", "images", "ids", "retry")


@dataclass(frozen=True)
class PredictRequest:
    """Images of one stream, as they came."""

    stream: str
    images: list[bytes]
    ids: list[str]
    retry: bool  # sent before, with the same ids


async def read_predict(request: Request, settings: Settings) -> PredictRequest:
    """InputError says what is wrong with it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == FORM:
        most = settings.max_images
        async with request.form(max_files=most, max_fields=most + 8) as form:
            given = await _of_form(form.multi_items())
    elif kind == JSON:
        given = _loaded(await request.body())
    else:
        raise InputError(f"content-type {kind[:100]!r} is not read; send {FORM} or {JSON}")
    return _checked(given, settings.max_images)


async def _of_form(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """As JSON would say it."""
    given: dict[str, Any] = {"images": []}
    for key, value in items:
        if isinstance(value, str) == (key == "images"):
            raise InputError(f"{key[:40]!r}: send files as `images`, as curl -F images=@cat.jpg")
        if key == "images":
            given[key].append(await value.read())
        elif key == "ids":
            given.setdefault(key, []).append(value)
        elif key in given:
            raise InputError(f"several fields are named {key[:40]!r}; send one")
        else:
            given[key] = value
    if "retry" in given:
        given["retry"] = {"true": True, "false": False}.get(given["retry"], given["retry"])
    return given


def _loaded(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON: {str(error)[:200]}") from None
    if not isinstance(given, dict):
        raise InputError('the body is no JSON object; send {"stream": ..., "images": [...]}')
    images = given.get("images")
    if isinstance(images, list):
        given["images"] = [_decoded(number, text) for number, text in enumerate(images)]
    return given


def _decoded(number: int, text: Any) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (AttributeError, binascii.Error, ValueError):
        raise InputError(f"image {number} is not base64 text") from None


def _checked(given: dict[str, Any], max_images: int) -> PredictRequest:
    unknown = sorted(set(given) - set(KEYS))
    if unknown:
        raise InputError(f"{str(unknown[0])[:40]!r} is not known; send {', '.join(KEYS)}")
    if "stream" not in given:
        raise InputError("no stream is named; send `stream`, such as the name of the camera")
    images, ids, retry = given.get("images"), given.get("ids"), given.get("retry", False)
    if not isinstance(images, list) or not images:
        raise InputError("there are no images; send at least one as `images`")
    if len(images) > max_images:
        raise InputError(f"{len(images):,} images are more than the limit of {max_images:,}")
    if ids is None:
        ids = [uuid.uuid4().hex for _ in images]
    if not isinstance(ids, list) or not all(isinstance(i, str) and i for i in ids):
        raise InputError("`ids` is not a list of texts; send one id per image, or none at all")
    if len(ids) != len(images) or len(set(ids)) != len(ids):
        raise InputError(f"{len(set(ids))} ids for {len(images)} images; each needs its own")
    if any(len(i) > LONGEST_ID or not i.isprintable() for i in ids):
        raise InputError(f"an id is longer than {LONGEST_ID} characters or cannot be printed")
    if not isinstance(retry, bool):
        raise InputError(f"retry={str(retry)[:40]!r} is neither true nor false")
    return PredictRequest(check_name(given["stream"]), images, ids, retry)


_IDS = {"type": "array", "items": {"type": "string"}, "description": "for late labels"}
_RETRY = {"type": "boolean", "description": "sent before with these ids: do not learn twice"}


def _schema(images: dict[str, Any]) -> dict[str, Any]:
    fields = {
        "stream": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
        "images": {"type": "array", "items": images},
        "ids": _IDS,
        "retry": _RETRY,
    }
    return {"schema": {"type": "object", "required": ["stream", "images"], "properties": fields}}


OPENAPI = {  # the body of /predict, for the page at /docs
    "requestBody": {
        "required": True,
        "content": {
            FORM: _schema({"type": "string", "format": "binary"}),
            JSON: _schema({"type": "string", "format": "byte", "description": "base64"}),
        },
    }
}
