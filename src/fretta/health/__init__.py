"""Health of a running adapter, without labels: one record per batch, and writers for them."""

from .measure import FeatureTap, Numbers, measure
from .record import Health
from .writers import JsonlWriter, TensorBoardWriter

__all__ = ["FeatureTap", "Health", "JsonlWriter", "Numbers", "TensorBoardWriter", "measure"]
