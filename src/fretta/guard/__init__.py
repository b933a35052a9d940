"""Health of a running adapter, without labels, and the guard that acts on it."""

from .guard import Guard
from .health import Health, html_table
from .monitor import flat, measure
from .supervisor import Mode, Supervisor
from .writers import JsonlWriter, TensorBoardWriter

__all__ = [
    "Guard",
    "Health",
    "JsonlWriter",
    "Mode",
    "Supervisor",
    "TensorBoardWriter",
    "flat",
    "html_table",
    "measure",
]
