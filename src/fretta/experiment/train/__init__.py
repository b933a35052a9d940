"""Source models: ERM on CIFAR and digits, or on all domains of a set but one.

card = train_source(TrainConfig(data="digits", out="digits.safetensors"))
"""

from __future__ import annotations

from .config import TrainConfig
from .source import Progress, train_source

__all__ = ["Progress", "TrainConfig", "train_source"]
