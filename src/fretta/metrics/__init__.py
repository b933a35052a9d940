"""Outcomes to rows: pure functions over arrays of samples. No torch."""

from __future__ import annotations

from .rows import Samples, calibration_error, macro_accuracy, overall, per_domain

__all__ = ["Samples", "calibration_error", "macro_accuracy", "overall", "per_domain"]
