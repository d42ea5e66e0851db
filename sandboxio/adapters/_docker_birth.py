"""Making a sandbox: a container, what it begins with, and proof of what was asked for."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio

from sandboxio.adapters import _docker_container as containers
from sandboxio.adapters import _docker_image as images
from sandboxio.adapters import _docker_link as links
from sandboxio.adapters._docker_answers import ContainerDescription
from sandboxio.adapters._docker_linked import LinkedSandbox
from sandboxio.adapters._docker_sandbox import ExecSandbox
from sandboxio.adapters._docker_stream import READ_BYTES, FrameDecoder
from sandboxio.adapters._docker_watcher import ANSWERED, BEGUN, watcher_for
from sandboxio.core.errors import CreationError, LinkLost, SandboxError
from sandboxio.core.lifecycle import undone, undone_on_failure
from sandboxio.core.tiers import IsolationTier
from sandboxio.guest import probe, program

if TYPE_CHECKING:
    from sandboxio.adapters._docker_answers import ImageDescription
    from sandboxio.adapters._docker_container import FirstProcess
    from sandboxio.adapters._docker_engine import Engine
    from sandboxio.adapters._docker_image import ImageFacts, User
    from sandboxio.adapters._docker_watcher import Watcher
    from sandboxio.core.requests import CreateRequest

_CONTAINER_RUNTIMES = ("runc", "crun")
_LAST_WORDS = 2048
_BIRTH_SECONDS = 60.0
"""Seconds the engine has to answer a create call, whatever the caller's own deadline is."""
_ENDING_PAUSES = (0.05, 0.1, 0.2, 0.4)
_GATEWAY = (502, 503, 504)
"""What something between us and the engine answers; the engine may go on regardless."""
_BIRTH_PAUSE, _LATE_BIRTH_PAUSE = 0.02, 0.2


class Memory:
    """What a backend has learned of images, by their ids."""

    def __init__(self) -> None:
        self.facts: dict[str, ImageFacts] = {}
        self.unlinked: set[tuple[str, bool]] = set()
        """Images, and whether as root, in which no agent can run."""


class Maker:
    """Makes one sandbox, or leaves nothing."""

    def __init__(
        self, engine: Engine, request: CreateRequest, image: ImageDescription, memory: Memory
    ) -> None:
        self._engine = engine
        self._request = request
        self._image = image
        self._memory = memory

    async def make(self, *, link: bool) -> LinkedSandbox | ExecSandbox:
        watcher = watcher_for(self._engine.endpoint)
        await watcher.start()
        birth = _Birth(secrets.token_hex(8), watcher)
        async with undone_on_failure(
            lambda: self._undo(birth),
            backend="docker",
            name=birth.sandbox_id,
            labels=self._request.metadata,
        ):
            linked = await self._linked(birth) if link else None
            made = linked or await self._unlinked(birth)
            await watcher.settle()
            return made

    async def _undo(self, birth: _Birth) -> None:
        """Remove what provisioning made so far; a container still to come is waited for."""
        while birth.under_way:  # noqa: ASYNC110  # it ends in a thread
            await anyio.sleep(_BIRTH_PAUSE)
        while not await self._engine.remove(birth.name) and birth.unanswered:  # noqa: ASYNC110
            await anyio.sleep(_LATE_BIRTH_PAUSE)

    async def _linked(self, birth: _Birth) -> LinkedSandbox | None:
        """Make a sandbox with the agent in it; nothing where the image has no place for one."""
        known = self._memory.facts.get(self._image.id)
        if known is not None and self._is_unlinked(default_user(known, self._request.user)):
            return None
        first = containers.agent(program.source())
        container = await self._create(birth, first)
        facts = await self._facts(container)
        user = default_user(facts, self._request.user)
        hosts = self._request.network.egress == "deny"
        orders = containers.orders(facts, user, hosts=hosts)
        if orders is None:
            await self._prepare(container, facts, user)
        greeting = links.Greeting(
            links.account(user, facts.groups_of(user)), self._request.timeout, orders or []
        )
        begun = await links.begin(self._engine, container, greeting)
        if begun is None:
            self._memory.unlinked.add((self._image.id, user.uid == 0))
            await self._engine.remove(container)
            return None
        if isinstance(begun, links.Ended):
            raise await self._first_process_ended(container, begun.words)
        try:
            described = await self._checked(container, birth)
            if begun.facts.get("prepared") != "1":
                await self._prepare(container, facts, user)
            links.verify(begun, network=self._request.network.egress != "deny")
            tier = await tier_in(self._engine, described)
            return LinkedSandbox(self._engine, described, facts, user, begun, tier)
        except BaseException:
            await undone(begun.aclose)
            raise

    def _is_unlinked(self, user: User) -> bool:
        known = self._memory.unlinked
        return (self._image.id, False) in known or (self._image.id, user.uid == 0) in known

    async def _unlinked(self, birth: _Birth) -> ExecSandbox:
        first = containers.sleeper(self._request)
        container = await self._create(birth, first)
        facts = await self._facts(container)
        user = default_user(facts, self._request.user)
        if groups := facts.groups_of(user):
            await self._engine.remove(container)
            container = await self._create(birth, first, groups)
        await self._prepare(container, facts, user)
        report = await self._start(container)
        described = await self._checked(container, birth)
        probe.verify(report, network=self._request.network.egress != "deny")
        tier = await tier_in(self._engine, described)
        return ExecSandbox(self._engine, described, facts, user, report, tier)

    async def _create(
        self, birth: _Birth, first: FirstProcess, groups: tuple[int, ...] = ()
    ) -> str:
        def make(client: Any) -> str:
            with birth:
                return containers.make(
                    client, birth.sandbox_id, self._request, self._image, first, groups
                )

        return await self._engine.call(
            "create",
            make,
            at_least=_BIRTH_SECONDS,
            late=lambda: self._engine.remove_late(birth.name),
        )

    async def _facts(self, container: str) -> ImageFacts:
        return await facts_of(self._engine, container, self._image, self._memory)

    async def _prepare(self, container: str, facts: ImageFacts, user: User) -> None:
        hosts = self._request.network.egress == "deny"
        archive = containers.preparation(facts, user, hosts=hosts)
        await self._engine.call(
            "create", lambda client: client.put_archive(container, "/", archive)
        )

    async def _checked(self, container: str, birth: _Birth) -> ContainerDescription:
        described = await self._describe(container)
        containers.check_identity(described, birth.name)
        containers.check_limits(described, self._request)
        containers.check_network(described, self._request)
        return described

    async def _start(self, container: str) -> probe.Report:
        """Start the container and hear its first words, or say why there were none."""
        stream, early = await self._engine.stream(
            "create", f"/containers/{quote(container)}/attach?stream=1&stdout=1&stderr=1"
        )
        said = {"stdout": b"", "stderr": b""}
        decoder, data = FrameDecoder(), early
        try:
            await self._engine.call("create", lambda client: client.start(container))
            while True:
                for chunk in decoder.feed(data):
                    kept = said[chunk.stream] + chunk.data
                    said[chunk.stream] = kept[-probe.REPORT_LIMIT :]
                if said["stdout"].endswith(probe.READY):
                    return probe.parse(said["stdout"])
                data = await stream.receive(READ_BYTES)
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError) as exc:
            raise await self._first_process_ended(container, said["stderr"]) from exc
        finally:
            with anyio.CancelScope(shield=True), contextlib.suppress(OSError):
                await stream.aclose()

    async def _first_process_ended(self, container: str, stderr: bytes) -> SandboxError:
        described = await self._describe(container)
        for pause in _ENDING_PAUSES:  # the engine may not have noticed yet
            if not described.running:
                break
            await anyio.sleep(pause)
            described = await self._describe(container)
        if described.running:
            return LinkLost("The connection to the engine broke while the sandbox started.")
        code = described.exit_code
        words = stderr[-_LAST_WORDS:].decode("utf-8", "replace").strip()
        hint = "Use an image with a shell and sleep, such as docker://python:3.12-slim"
        if "exec format error" in words.lower():
            hint = await images.platforms(self._engine, described.image)
        return CreationError(
            f"The container's first process ended with exit code {code}: "
            f"{words or 'it said nothing'}",
            hint=hint,
            outcome="not_started",
        )

    async def _describe(self, container: str) -> ContainerDescription:
        return await self._engine.call(
            "create", lambda client: ContainerDescription(client.inspect_container(container))
        )


class _Birth:
    """A container on its way: named by us beforehand, so that it can be found in any case."""

    def __init__(self, sandbox_id: str, watcher: Watcher) -> None:
        self._watcher = watcher
        self.sandbox_id = sandbox_id
        self.name = containers.NAME_PREFIX + sandbox_id
        self.under_way = False
        self.unanswered = False
        """The engine was asked and did not say whether it made the container."""

    def __enter__(self) -> None:
        self._watcher.tell(BEGUN)
        self.under_way = self.unanswered = True

    def __exit__(self, kind: type[BaseException] | None, exc: object, trace: object) -> None:
        self.under_way = False
        status = getattr(exc, "status_code", None)
        self.unanswered = kind is not None and (status is None or status in _GATEWAY)
        if not self.unanswered:
            self._watcher.tell(ANSWERED)


async def facts_of(
    engine: Engine, container: str, image: ImageDescription, memory: Memory
) -> ImageFacts:
    """Return what is known of a container's image; read from it the first time."""
    if image.id not in memory.facts:
        memory.facts[image.id] = await engine.call(
            "create", lambda client: images.read_facts(client, container, image)
        )
    return memory.facts[image.id]


async def joined(
    engine: Engine, described: ContainerDescription, facts: ImageFacts, user: User
) -> LinkedSandbox | ExecSandbox:
    """Return the sandbox that a running container is.

    Raises:
        SandboxGone: it has ended meanwhile.
    """
    tier = await tier_in(engine, described)
    if described.labels.get(f"{containers.PREFIX}mode") == "link":
        linked = LinkedSandbox(engine, described, facts, user, None, tier)
        await linked.ask()
        return linked
    sandbox = ExecSandbox(engine, described, facts, user, probe.Report(), tier)
    await sandbox.ask()
    return sandbox


async def tier_in(engine: Engine, described: ContainerDescription) -> IsolationTier:
    return tier_of((await engine.runtimes()).get(described.runtime, ""))


def tier_of(runtime: str) -> IsolationTier:
    """Return the tier of the program that runs containers, given its path on the engine."""
    known = PurePosixPath(runtime).name in _CONTAINER_RUNTIMES
    return IsolationTier.CONTAINER if known else IsolationTier.UNKNOWN


def default_user(facts: ImageFacts, spec: str | None) -> User:
    return containers.caller_user(facts, spec) if spec else containers.sandbox_user(facts)
