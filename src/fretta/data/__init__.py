"""Data sets as people have them on disk, and streams of batches over them.

dataset = open_dataset("cifar10c", root)          # or FRETTA_DATA
for batch in make_stream(dataset, "continual", seed=0, batch_size=128):
    logits = adapter(preprocessing.apply(batch.x, device))
"""

from __future__ import annotations

from ..corruptions import CORRUPTIONS
from ..corruptions import EXTRA as EXTRA_CORRUPTIONS
from ..models.preprocessing import Preprocessing
from .cifar_pickle import read_batch
from .datasets import dataset_options, list_datasets, open_dataset
from .doctor import DoctorReport, Finding, doctor
from .domain import Dataset, Domain, Unreadable
from .order import Order
from .shift import with_corruptions
from .stream import Batch, Stream, load_stream, make_stream
from .write import corrupt_folder

__all__ = [
    "CORRUPTIONS",
    "EXTRA_CORRUPTIONS",
    "Batch",
    "Dataset",
    "DoctorReport",
    "Domain",
    "Finding",
    "Order",
    "Preprocessing",
    "Stream",
    "Unreadable",
    "corrupt_folder",
    "dataset_options",
    "doctor",
    "list_datasets",
    "load_stream",
    "make_stream",
    "open_dataset",
    "read_batch",
    "with_corruptions",
]
