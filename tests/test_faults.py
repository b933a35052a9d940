"""The campaign of benchmarks/faults.py in its short form, and what docs/reliability.md says."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "evidence" / "benchmarks" / "faults.json"


@pytest.fixture(scope="module")
def reliability() -> Any:
    sys.path.insert(0, str(ROOT))
    try:
        yield importlib.import_module("evidence.reliability")
    finally:
        sys.path.remove(str(ROOT))


def test_no_failure_is_open_and_nothing_was_left_out(reliability: Any) -> None:
    areas = json.loads(RECORD.read_text(encoding="utf-8"))["areas"]
    rows = [row for area in areas.values() for row in area["rows"]]
    assert [row for row in rows if row["failed"]] == []
    assert set(areas) | {"cluster"} == set(reliability.AREAS)
    (cases,) = [r["tried"] for r in rows if r["promise"].startswith("a batch of any kind")]
    assert cases >= 5000
    assert len(areas["kills"]["rows"]) == 5
    killed = [
        row["tried"] for a in ("kills", "cluster") for row in areas.get(a, {"rows": ()})["rows"]
    ]
    assert min(killed) >= 20
    service = [r["tried"] for r in areas["service"]["rows"] if r["promise"].startswith("kill -9")]
    assert len(service) == 2
    assert sum(service) >= 20


def test_every_fix_has_its_test(reliability: Any) -> None:
    for _, _, test in reliability.FIXED:
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / "tests" / file).read_text(), re.M), test


@pytest.mark.slow
@pytest.mark.parametrize(
    "areas",
    [
        "batches,states,load",
        "models,files,live",
        "stores,kills",
        pytest.param("cluster,service", marks=pytest.mark.ray),
    ],
)
def test_the_short_campaign(areas: str) -> None:
    line = [sys.executable, str(ROOT / "benchmarks" / "faults.py"), "--short", "--only", areas]
    places = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
