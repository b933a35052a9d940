"""Where runs happen: in this process, in worker processes, on a Ray cluster."""

from __future__ import annotations

from .local import run_here
from .plan import Done, Event, Options, Plan, make_plan
from .processes import run_in_processes
from .start import run_jobs

__all__ = [
    "Done",
    "Event",
    "Options",
    "Plan",
    "make_plan",
    "run_here",
    "run_in_processes",
    "run_jobs",
]
