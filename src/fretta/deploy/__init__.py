"""A model and a folder of images: adapt, watch, write everything down. `fretta adapt` is this.

from fretta.deploy import Plan, Session
Session(Plan(model="timm:resnet50", weights="my.safetensors", data="images", out="out")).run()
"""

from __future__ import annotations

from .plan import Plan
from .session import Outcome, Session

__all__ = ["Outcome", "Plan", "Session"]
