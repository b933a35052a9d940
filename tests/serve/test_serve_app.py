"""The HTTP app in front of streams, without Ray."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hostile import attacks
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from serve_nets import a_host, pixels, same, state_of
from starlette.testclient import TestClient

from fretta.errors import BusyError
from fretta.serve.app import make_app
from fretta.serve.protect import Protected
from fretta.serve.shard import Shard

TOKEN = "a secret"
OWN = {"authorization": f"Bearer {TOKEN}"}
pytestmark = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")


@pytest.fixture
def shard(request: pytest.FixtureRequest) -> Shard:
    given = {"batch_size": 4, "max_body": 1 << 20, "max_images": 8, "token": TOKEN, "guard": "none"}
    host = a_host(**{**given, **getattr(request, "param", {})})
    return Shard(host.settings, host=host)


@pytest.fixture
def client(shard: Shard) -> Iterator[TestClient]:
    app: Any = make_app([shard], shard.host.settings)
    address = "http://127.0.0.1:8000"
    with TestClient(app, address, raise_server_exceptions=False, headers=OWN) as client:
        yield client


def as_files(images: list[Any]) -> list[Any]:
    found = []
    for image in images:
        out = io.BytesIO()
        Image.fromarray(image).save(out, "PNG")
        found.append(("images", ("a.png", out.getvalue())))
    return found


def test_form_and_json_give_what_the_host_gives(client: TestClient) -> None:
    host, stream = a_host(batch_size=4, guard="none"), pixels(4, 4)
    form, text = as_files(stream[0]), as_files(stream[1])
    ids = list("abcd")
    said = [client.post("/predict", files=form, data={"stream": "cam", "ids": ids}).json()]
    coded = [base64.b64encode(data).decode() for _, (_, data) in text]
    sent = {"stream": "cam", "images": coded, "ids": list("efgh")}
    said.append(client.post("/predict", json=sent).json())
    for images, names, answer in zip(stream, ("abcd", "efgh"), said, strict=True):
        wanted = [one.to_json() for one in host.predict("cam", images, list(names))]
        health = [one.pop("health") for one in wanted][-1]
        assert answer["answers"] == wanted
        assert answer["health"] | {"time": 0} == health | {"time": 0}
    assert client.get("/streams").json()[0]["images"] == 8
    assert [row["batch"] for row in client.get("/streams/cam").json()["history"]] == [0, 1]


def test_requests_become_batches_in_their_order(client: TestClient, shard: Shard) -> None:
    (images,) = pixels(8)
    answers = client.post("/predict", files=as_files(images[:6]), data={"stream": "a"}).json()
    assert places(answers) == [*((0, i) for i in range(4)), (1, 0), (1, 1)]


def test_a_request_sent_again_is_not_learned_twice(client: TestClient, shard: Shard) -> None:
    (images,) = pixels(4)
    sent = {"stream": "cam", "ids": list("abcd")}
    first = client.post("/predict", files=as_files(images), data=sent).json()
    state = state_of(shard.host, "cam")
    sent["retry"] = "true"
    again = client.post("/predict", files=as_files(images), data=sent).json()
    assert again["answers"] == first["answers"]
    assert same(state_of(shard.host, "cam"), state)
    turned = as_files([*images[2:], *images[:2]])
    more = client.post("/predict", files=turned, data={**sent, "ids": list("cdef")}).json()
    assert places(more) == [(0, 2), (0, 3), (1, 0), (1, 1)]
    other = client.post("/predict", files=turned, data=sent).json()  # not what these ids were
    assert places(other) == [(2, i) for i in range(4)]


def places(said: dict[str, Any]) -> list[tuple[int, int]]:
    return [(one["batch"], one["position"]) for one in said["answers"]]


def test_controls_and_late_labels(client: TestClient, shard: Shard) -> None:
    (images,) = pixels(4)
    sent = {"stream": "cam", "ids": list("abcd")}
    answers = client.post("/predict", files=as_files(images), data=sent).json()["answers"]
    assert client.post("/streams/cam/freeze").json()["frozen"] is True
    state = state_of(shard.host, "cam")["adapter"]
    client.post("/predict", files=as_files(images), data={"stream": "cam"})
    assert same(state_of(shard.host, "cam")["adapter"], state)
    assert client.post("/streams/cam/resume").json()["frozen"] is False
    labels = {one["id"]: one["label"] for one in answers}
    measured = client.post("/feedback", json={"stream": "cam", "labels": labels}).json()
    assert (measured["taken"], measured["accuracy"]) == (4, 1.0)
    assert client.post("/streams/cam/reset").status_code == 200


def test_prometheus_can_read_the_numbers(client: TestClient) -> None:
    (images,) = pixels(6)
    client.post("/predict", files=as_files(images), data={"stream": "cam"})
    page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    samples = {
        (sample.name, sample.labels.get("le")): sample
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }
    assert samples["fretta_images_total", None].labels == {"stream": "cam"}
    assert samples["fretta_images_total", None].value == 6
    assert samples["fretta_batches_total", None].value == 2
    assert samples["fretta_latency_seconds_bucket", "+Inf"].value == 6
    assert samples["fretta_streams_in_memory", None].labels == {"shard": "0"}
    assert {"fretta_entropy", "fretta_drift"} <= {name for name, _ in samples}


def test_openapi_names_every_path(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        *("/predict", "/streams", "/streams/{name}", "/feedback", "/healthz", "/metrics"),
        *(f"/streams/{{name}}/{verb}" for verb in ("reset", "freeze", "resume")),
    }
    assert client.get("/docs").status_code == 200


@pytest.mark.parametrize("count", [168, pytest.param(1000, marks=pytest.mark.slow)])
def test_hostile_requests_change_nothing(client: TestClient, shard: Shard, count: int) -> None:
    (images,) = pixels(4)
    client.post("/predict", files=as_files(images), data={"stream": "cam"})
    before, rows = state_of(shard.host, "cam"), shard.host.overview()
    settings = shard.host.settings
    supply = attacks(0, settings.max_body, settings.max_images, TOKEN)
    for attack in islice(supply, count):
        headers = {**attack.arguments.pop("headers", {}), **attack.headers}
        answer = client.request(attack.method, attack.path, headers=headers, **attack.arguments)
        assert answer.status_code in attack.status, (attack.kind, answer.status_code, answer.text)
        assert answer.json()["detail"], attack.kind
    assert same(state_of(shard.host, "cam"), before)
    assert shard.host.overview() == rows
    assert client.post("/predict", files=as_files(images), data={"stream": "cam"}).is_success


@pytest.mark.parametrize("shard", [{"token": None}], indirect=True)
def test_a_local_service_answers_under_local_names_only(client: TestClient) -> None:
    """A page whose name was turned to 127.0.0.1 (DNS rebinding) gets nothing."""
    assert client.get("/streams").json() == []
    assert client.get("/streams", headers={"host": "evil.example:8000"}).status_code == 403
    assert client.get("/streams", headers={"host": "localhost:8000"}).status_code == 200
    same = {"origin": "http://127.0.0.1:8000"}
    assert client.get("/streams", headers=same).status_code == 200
    assert client.get("/streams", headers={"origin": "null"}).status_code == 403


def test_only_health_and_the_page_are_open(client: TestClient) -> None:
    none = {"authorization": ""}
    assert client.get("/healthz", headers=none).json() == {"status": "ok"}
    for path in ("/streams", "/streams/cam", "/metrics", "/docs", "/openapi.json"):
        answer = client.get(path, headers=none)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"


class Dead:
    """A shard that does not answer."""

    def __getattr__(self, name: str) -> Any:
        async def call(*_: Any) -> None:
            raise BusyError("the process that holds this stream died")

        return call


def test_a_dead_shard_is_a_503_that_says_when_to_come_back() -> None:
    settings = a_host().settings
    with TestClient(make_app([Dead()], settings), "http://127.0.0.1") as client:
        for answer in (client.get("/streams"), client.get("/healthz"), client.get("/metrics")):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_many_large_bodies_at_once_do_not_fill_the_memory() -> None:
    settings = a_host(max_body=1000).settings
    wait = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await wait.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(app: Protected) -> int:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": bytes(900)}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "path": "/", "headers": [(b"host", b"localhost")]}
        await app(scope, receive, send)
        return int(sent[0]["status"])

    async def main() -> list[int]:
        app = Protected(slow, settings)
        tasks = [asyncio.create_task(ask(app)) for _ in range(10)]
        await asyncio.sleep(0.01)
        wait.set()
        found = await asyncio.gather(*tasks)
        assert app.held == 0
        return found

    assert asyncio.run(main()) == [200] * 8 + [503] * 2


def test_a_body_that_does_not_come_and_an_answer_that_does_not_end() -> None:
    settings = a_host(timeout=0.1).settings

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await asyncio.sleep(60)

    async def ask(more: bool) -> int:
        sent: list[Any] = []
        parts = [{"type": "http.request", "body": b"x", "more_body": more}]

        async def receive() -> Any:
            if parts:
                return parts.pop()
            return await asyncio.sleep(60)

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1")]
        scope = {"type": "http", "path": "/predict", "headers": headers}
        await Protected(slow, settings)(scope, receive, send)
        return int(sent[0]["status"])

    assert asyncio.run(ask(more=True)) == 408
    assert asyncio.run(ask(more=False)) == 503
