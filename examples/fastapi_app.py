"""`fretta.adapt` in a FastAPI app of your own, without Ray: one process, one stream.

pip install -c constraints.txt '.[data]' fastapi uvicorn python-multipart     # in a clone of fretta
uvicorn fastapi_app:app --port 8000          # one worker: the adapted model lives in its memory
curl -F images=@a.png -F images=@b.png http://127.0.0.1:8000/predict

The images of a request are one batch. `fretta serve` adds streams, batches across requests,
checkpoints and limits.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from fastapi import FastAPI, HTTPException, UploadFile

import fretta
from fretta.data import Preprocessing
from fretta.errors import InputError
from fretta.serve.images import decode_bytes

MOST, MOST_PIXELS = 64, 50_000_000  # images of a request, pixels of an image

torch.set_num_threads(1)
model, card = fretta.models.load_source("digits")  # any torch classifier will do
preprocessing = Preprocessing.from_json(card.preprocessing)
decoding = preprocessing.decoding()
adapter = fretta.adapt(model, guard="rollback")
turn = threading.Lock()  # FastAPI calls from several threads; batches are learned one by one
app = FastAPI(title="A classifier that adapts")


@app.post("/predict")
def predict(images: list[UploadFile]) -> dict[str, Any]:
    if len(images) > MOST:
        raise HTTPException(413, f"{len(images)} images; at most {MOST} are taken")
    x = preprocessing.apply(torch.stack([decoded(image) for image in images]))
    with turn:
        probabilities = adapter(x).softmax(1)
        health = adapter.health
    best = probabilities.max(1)
    return {
        "labels": [card.classes[number] for number in best.indices.tolist()],
        "confidences": best.values.tolist(),
        "entropy": None if health is None else health.entropy,
    }


@app.post("/reset")
def reset() -> None:
    with turn:
        adapter.reset()


def decoded(file: UploadFile) -> torch.Tensor:
    """uint8 (3, H, W), of the size that the model was trained with."""
    try:
        pixels = decode_bytes(file.file.read(), decoding, MOST_PIXELS, str(file.filename))
    except InputError as error:
        raise HTTPException(400, str(error)) from None
    return torch.from_numpy(pixels).permute(2, 0, 1)
