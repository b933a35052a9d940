"""A model and a folder of images: adapt, and write everything down. `fretta adapt` is this.

from fretta.deploy import AdaptOptions, adapt_images
adapt_images(AdaptOptions("timm:resnet50", "images", Path("out"), weights="my.safetensors"))
"""

from __future__ import annotations

from .on_ray import adapt_on_ray
from .options import AdaptOptions
from .result import AdaptResult
from .run import adapt_images

__all__ = ["AdaptOptions", "AdaptResult", "adapt_images", "adapt_on_ray"]
