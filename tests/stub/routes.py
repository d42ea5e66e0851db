"""The routes of the stub engine: what each says and does when nothing goes wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from tests.stub.faults import Answer, data, lines, refusal
from tests.stub.wire import Request, Wire, frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.stub.engine import StubEngine
    from tests.stub.world import Box, Call, Program

DENIED = (
    "pull access denied for {0}, repository does not exist or may require 'docker login': "
    "denied: requested access to the resource is denied"
)


def _ping(stub: StubEngine, wire: Wire, request: Request) -> Answer:
    return Answer(body=b"OK", kind="text/plain", headers=(("Api-Version", stub.api),))


def _version(stub: StubEngine, wire: Wire, request: Request) -> Answer:
    return data({"Version": "0.0-stub", "ApiVersion": stub.api, "MinAPIVersion": stub.least})


def _info(stub: StubEngine, wire: Wire, request: Request) -> Answer:
    caps = dict.fromkeys(("MemoryLimit", "SwapLimit", "PidsLimit", "CpuCfsQuota"), True)
    runtimes = {"runc": {"path": "runc"}}
    return data({"Runtimes": runtimes, "DefaultRuntime": "runc", "CgroupVersion": "2", **caps})


def _image(stub: StubEngine, wire: Wire, request: Request, name: str) -> Answer:
    found = stub.world.images.get(name)
    return refusal(404, f"No such image: {name}") if found is None else data(found)


def _pull(stub: StubEngine, wire: Wire, request: Request) -> Answer:
    name = f"{request.query['fromImage']}:{request.query['tag']}"
    progress = stub.world.pulls.get(name)
    if progress is None:
        return refusal(404, DENIED.format(request.query["fromImage"]))
    stub.world.images.update({name: next(iter(stub.world.images.values()))})
    return lines(*progress)


def _create(stub: StubEngine, wire: Wire, request: Request) -> Answer:
    config = cast("dict[str, Any]", json.loads(request.body))
    known = {str(found["Id"]) for found in stub.world.images.values()}
    if config["Image"] not in known:
        return refusal(404, f"No such image: {config['Image']}")
    return data({"Id": stub.world.add_box(request.query["name"], config).id, "Warnings": []}, 201)


def _listing(stub: StubEngine, wire: Wire, request: Request) -> Answer:
    filters = json.loads(request.query.get("filters", "{}"))
    wanted = [str(label).partition("=") for label in filters.get("label", [])]
    return data(
        [
            {
                "Id": box.id,
                "Names": [f"/{box.name}"],
                "Labels": box.labels,
                "State": box.status,
                "Created": 1,
            }
            for box in stub.world.boxes
            if all(box.labels.get(name) == value for name, _, value in wanted)
        ]
    )


def _describe(stub: StubEngine, wire: Wire, request: Request, box: Box) -> Answer:
    return data(stub.world.description(box))


def _attach(stub: StubEngine, wire: Wire, request: Request, box: Box) -> None:
    wire.upgrade()
    stub.world.wait(wire, lambda: box.started or box.gone)
    if box.started:
        _say(wire, stub.world.begins(box))
    stub.world.wait(wire, lambda: not box.running)
    wire.end_stream()


def _start(stub: StubEngine, wire: Wire, request: Request, box: Box) -> Answer:
    stub.world.start(box)
    return Answer(204)


def _remove(stub: StubEngine, wire: Wire, request: Request, box: Box) -> Answer:
    stub.world.remove(box)
    return Answer(204)


def _done(stub: StubEngine, wire: Wire, request: Request, box: Box) -> Answer:
    return data({"Warnings": []})


def _top(stub: StubEngine, wire: Wire, request: Request, box: Box) -> Answer:
    return data(stub.world.processes(box))


def _stat(stub: StubEngine, wire: Wire, request: Request, box: Box) -> Answer:
    found = stub.world.stat(request.query["path"])
    if found is None:
        return Answer(404)
    return Answer(headers=(("X-Docker-Container-Path-Stat", found),))


def _get(stub: StubEngine, wire: Wire, request: Request, box: Box) -> Answer:
    path = request.query["path"]
    header = ("X-Docker-Container-Path-Stat", stub.world.stat(path) or "")
    return Answer(
        body=stub.world.archive(path), kind="application/x-tar", headers=(header,), chunked=False
    )


def _put(stub: StubEngine, wire: Wire, request: Request, box: Box) -> Answer:
    box.archives.append(request.body)
    return Answer()


def _exec_create(stub: StubEngine, wire: Wire, request: Request, box: Box) -> Answer:
    return data({"Id": stub.world.add_call(box, json.loads(request.body)).id}, 201)


def _exec_start(stub: StubEngine, wire: Wire, request: Request, box: Box, call: Call) -> None:
    call.started = True
    program = stub.world.program(box, call)
    wire.upgrade()
    _say(wire, program)
    if program.lasts:
        stub.world.wait(wire, lambda: not call.running)
    else:
        stub.world.end(call, program.exit_code)
    wire.end_stream()


def _exec_inspect(stub: StubEngine, wire: Wire, request: Request, box: Box, call: Call) -> Answer:
    return data(call.state)


def _events(stub: StubEngine, wire: Wire, request: Request) -> Answer:
    return lines(
        *(
            {"Action": "exec_die", "Actor": {"Attributes": {"execID": call.id}}}
            for box in stub.world.boxes
            for call in box.calls
            if call.exit_code is not None
        )
    )


def _say(wire: Wire, program: Program) -> None:
    if program.out:
        wire.raw(frame(program.stream, program.out))
    if program.err:
        wire.raw(frame(2, program.err))


def _of_box(handler: Callable[..., Answer | None]) -> Callable[..., Answer | None]:
    """Give a handler the container that the path names."""

    def answer(stub: StubEngine, wire: Wire, request: Request, name: str) -> Answer | None:
        box = stub.world.find(name)
        if box is None:
            return refusal(404, f"No such container: {name}")
        return handler(stub, wire, request, box)

    return answer


def _of_call(handler: Callable[..., Answer | None]) -> Callable[..., Answer | None]:
    """Give a handler the exec that the path names, and its container."""

    def answer(stub: StubEngine, wire: Wire, request: Request, exec_id: str) -> Answer | None:
        found = stub.world.call(exec_id)
        if found is None:
            return refusal(404, f"No such exec instance: {exec_id}")
        return handler(stub, wire, request, *found)

    return answer


ROUTES: tuple[tuple[str, Callable[..., Answer | None]], ...] = (
    (r"(?:GET|HEAD) /_ping", _ping),
    (r"GET /version", _version),
    (r"GET /info", _info),
    (r"GET /images/(.+)/json", _image),
    (r"POST /images/create", _pull),
    (r"GET /events", _events),
    (r"POST /containers/create", _create),
    (r"GET /containers/json", _listing),
    (r"GET /containers/([^/]+)/json", _of_box(_describe)),
    (r"POST /containers/([^/]+)/attach", _of_box(_attach)),
    (r"POST /containers/([^/]+)/start", _of_box(_start)),
    (r"POST /containers/([^/]+)/update", _of_box(_done)),
    (r"POST /containers/([^/]+)/exec", _of_box(_exec_create)),
    (r"GET /containers/([^/]+)/top", _of_box(_top)),
    (r"HEAD /containers/([^/]+)/archive", _of_box(_stat)),
    (r"GET /containers/([^/]+)/archive", _of_box(_get)),
    (r"PUT /containers/([^/]+)/archive", _of_box(_put)),
    (r"DELETE /containers/([^/]+)", _of_box(_remove)),
    (r"POST /exec/([^/]+)/start", _of_call(_exec_start)),
    (r"GET /exec/([^/]+)/json", _of_call(_exec_inspect)),
)
