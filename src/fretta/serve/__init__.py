"""`fretta serve`: a service that adapts, many streams at once. It needs fretta[serve].

settings.py, host.py and store.py know neither Ray nor HTTP.
"""

from __future__ import annotations

from .settings import Settings

__all__ = ["Settings"]
