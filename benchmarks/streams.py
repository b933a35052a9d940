"""Every method with its default on the streams that real use brings; one record per run.

    FRETTA_DATA=... python benchmarks/streams.py [--streams a,b] [--methods a,b] [--seeds 0,1,2]
        [--jobs 2] [--threads 1] [--again]
    python benchmarks/streams.py --table      # what the records say, as Markdown
    python benchmarks/streams.py --check      # thresholds, passed or not

Runs that are recorded are skipped, so it can be stopped and started again, and several may work on
one file. A run of the same key in evidence/records.jsonl is taken from there and marked so. What
fails is recorded with its error, tried again at the next start, and does not stop the rest. Run it
from the root of the repository: the source models of PACS cartoon and photo are in its weights/.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import warnings
from pathlib import Path

import torch
from stream_list import PLANS
from stream_runs import EVIDENCE, ROOT, Settings, Wanted, attempt, read_records

from fretta._util import end_with_parent
from fretta.errors import FrettaWarning
from fretta.methods import REGISTRY


def work(runs: list[Wanted], settings: Settings) -> None:
    """All runs that nobody else does."""
    torch.set_num_threads(settings.threads)
    warnings.simplefilter("ignore", FrettaWarning)
    end_with_parent()
    for wanted in runs:
        said = attempt(wanted, settings)
        if said:
            print(time.strftime("%H:%M:%S"), said, flush=True)


def wanted_runs(streams: list[str], methods: list[str] | None, seeds: list[int]) -> list[Wanted]:
    """Seed 0 of all streams first, method after method in each; the long stream at the very end."""
    found = []
    for seed in seeds:
        for name in streams:
            for method in methods or REGISTRY:
                if seed in PLANS[name].seeds:
                    found.append(Wanted(name, method, seed))
    return sorted(found, key=lambda wanted: wanted.stream == "cifar-long")


def show(check: bool, records: Path) -> None:
    sys.path.insert(0, os.fspath(ROOT))
    from evidence.streams import check_text, table_text

    found = read_records(records)
    titles = {name: plan.title for name, plan in PLANS.items()}
    print(check_text(found, titles) if check else table_text(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--streams", default=",".join(PLANS), help="default: %(default)s")
    parser.add_argument("--methods", help="default: every method")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--threads", type=int, default=1, help="of torch, for each process")
    parser.add_argument("--again", action="store_true", help="also what is recorded")
    parser.add_argument("--records", type=Path, default=EVIDENCE / "benchmarks" / "streams.jsonl")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "fretta")
    parser.add_argument("--table", action="store_true", help="the table, from the records")
    parser.add_argument("--check", action="store_true", help="the thresholds, from the records")
    chosen = parser.parse_args()
    if chosen.table or chosen.check:
        show(chosen.check, chosen.records)
        return
    streams = chosen.streams.split(",")
    unknown = [name for name in streams if name not in PLANS]
    if unknown:
        parser.error(f"no stream {', '.join(unknown)}; there are {', '.join(PLANS)}")
    methods = chosen.methods.split(",") if chosen.methods else None
    runs = wanted_runs(streams, methods, [int(seed) for seed in chosen.seeds.split(",")])
    again = time.time() if chosen.again else 0.0
    settings = Settings(chosen.records, chosen.cache, chosen.threads, again)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, args=(runs, settings)) for _ in range(chosen.jobs)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
