"""The service on a local Ray Serve: the same numbers, under load, killed, restarted, attacked."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
from hostile import attacks

from commands import fretta
from fretta.serve.host import StreamHost
from fretta.serve.local import deploy, here, serving
from fretta.serve.settings import Settings

ROOT = Path(__file__).parent.parent.parent
TOKEN = "a secret"
pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # those of Ray are not ours
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def cameras() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        import cameras

        yield cameras


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    store = tmp_path_factory.mktemp("streams")
    return Settings(
        "digits",
        method="tent",
        device="cpu",
        store=str(store),
        checkpoint_every=2,
        port=free_port(),
        max_body=1 << 20,
        max_images=64,
    )


def attack(client: Any, settings: Settings) -> None:
    """Some of the hostile requests, over a real connection."""
    supply = attacks(1, settings.max_body, settings.max_images, TOKEN)
    for each in islice(supply, 50):
        headers = {**each.arguments.pop("headers", {}), **each.headers}
        try:
            answer = client.request(each.method, each.path, headers=headers, **each.arguments)
        except httpx2.TransportError:  # refused before all of it was sent
            assert each.kind.startswith("huge"), each.kind
        else:
            assert answer.status_code in each.status, (each.kind, answer.text)


def test_the_service_from_start_to_end(cameras: Any, settings: Settings) -> None:
    """One service for all, since it takes long to start."""
    torch.set_num_threads(1)
    pool = cameras.Pool(64)
    quiet = {"num_cpus": 2, "object_store_memory": 100_000_000, "log_to_driver": False}
    with serving(settings, **quiet) as address:
        # load: every image is answered, in batches of a request each
        streams = pool.cameras(5, 300, 12)
        cameras.run(settings.port, pool, streams)

        # two deaths under load
        for stream, more in zip(streams, pool.cameras(5, 300, 12, seed=1), strict=True):
            stream.rows = more.rows
        killer = cameras.Killer([6, 18])
        cameras.run(settings.port, pool, streams, on_answer=killer)
        assert len(killer.killed) == 2

        # a rolling restart, with a token from now on
        before = cameras.replica()
        deploy(replace(settings, token=TOKEN))
        assert cameras.replica() != before
        own = {"authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(base_url=address, headers=own, timeout=120) as client:
            rows = client.get("/streams").json()
            assert [row["name"] for row in rows] == [f"cam-{i:03d}" for i in range(5)]
            attack(client, settings)
            assert client.get("/streams").json() == rows  # nobody loaded one, nothing changed
    found = cameras.check(settings.open_case(), settings, pool, streams)
    assert (found.answers, found.wrong) == (600, 0)
    assert found.compare(StreamHost(here(settings))) == 5
    assert max(found.lost, default=0) <= settings.checkpoint_every


def test_the_command_keeps_all_streams_when_it_is_stopped(cameras: Any, tmp_path: Path) -> None:
    port, pool = free_port(), cameras.Pool(16)
    line = f"serve --model digits --method tent --device cpu --port {port} --store store"
    command = [sys.executable, "-m", "fretta", *line.split()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        assert any(line.startswith("serving http://127.0.0.1:") for line in process.stdout)
        cameras.run(port, pool, pool.cameras(2, 32, 16))
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "every stream gets its checkpoint" in output
    settings = Settings("digits", method="tent", device="cpu", store=str(tmp_path / "store"))
    assert StreamHost(settings).names() == ["cam-000", "cam-001"]


def test_the_yaml_is_one_that_serve_takes(tmp_path: Path) -> None:
    import yaml
    from ray.serve.schema import ServeDeploySchema

    from fretta.errors import ConfigError
    from fretta.serve.deployment import build

    line = "serve --model digits --set lr=0.01 --method tent --shards 3 --store s3://b/streams"
    result = fretta(*line.split(), "--write-config", tmp_path / "serve.yaml")
    assert result.returncode == 0, result.stderr
    found = ServeDeploySchema.model_validate(yaml.safe_load((tmp_path / "serve.yaml").read_text()))
    (application,) = found.applications
    assert application.import_path == "fretta.serve.deployment:build"
    assert found.http_options.host == "127.0.0.1"
    assert Settings.from_dict(application.args) == Settings(
        "digits",
        method="tent",
        hyperparameters={"lr": 0.01},
        shards=3,
        store="s3://b/streams",
    )
    assert type(build(application.args)).__name__ == "Application"
    with pytest.raises(ConfigError, match="'modle' is no setting"):
        build({"modle": "digits"})
