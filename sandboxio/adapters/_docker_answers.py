"""The engine's descriptions, typed: only the fields we read, absent ones made plain."""

from __future__ import annotations

from typing import Any, cast

Answer = dict[str, Any]


def section(answer: Answer, name: str) -> Answer:
    """Return a part of an answer; empty when the engine sent none or null."""
    return cast("Answer", answer.get(name) or {})


def labels_of(config: Answer) -> dict[str, str]:
    """Return the labels a container or image configuration holds."""
    return {str(key): str(value) for key, value in section(config, "Labels").items()}


class ContainerDescription:
    """What `inspect` says of a container."""

    def __init__(self, answer: Answer) -> None:
        state, self.host = section(answer, "State"), section(answer, "HostConfig")
        self.raw = answer
        self.id = str(answer.get("Id", ""))
        self.name = str(answer.get("Name", "")).removeprefix("/")
        self.image = str(answer.get("Image", ""))
        self.labels = labels_of(section(answer, "Config"))
        self.running = bool(state.get("Running"))
        self.status = str(state.get("Status", "unknown"))
        self.exit_code: object = state.get("ExitCode")
        self.execs = [str(exec_id) for exec_id in cast("list[str]", answer.get("ExecIDs") or [])]
        self.runtime = str(self.host.get("Runtime") or "")
        self.memory_mb = int(cast("int", self.host.get("Memory") or 0)) // (1024 * 1024)
        self.network_mode = str(self.host.get("NetworkMode") or "")


class ImageDescription:
    """What `inspect` says of an image."""

    def __init__(self, answer: Answer) -> None:
        config = section(answer, "Config")
        variables = [
            str(item).partition("=") for item in cast("list[str]", config.get("Env") or [])
        ]
        self.id = str(answer.get("Id", ""))
        self.user = str(config.get("User") or "")
        self.path = next((value for name, _, value in variables if name == "PATH"), "")
        self.labels = labels_of(config)
        self.platform = f"{answer.get('Os') or 'unknown'}/{answer.get('Architecture') or 'unknown'}"
