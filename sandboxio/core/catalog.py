"""The catalogue of error codes: what each means, and the fix that always helps.

Codes are public and never repurposed. `docs/errors/` is generated from this table.
"""

from __future__ import annotations

from typing import NamedTuple

DOCS_URL = "https://sandboxio.dev/errors"


class Entry(NamedTuple):
    """One code: the class that carries it, what happened, and the general fix."""

    name: str
    summary: str
    hint: str
    retryable: bool = False


CATALOG: dict[str, Entry] = {
    "SBX_E1000": Entry(
        "ConfigurationError",
        "An argument, a DSN or a configuration value is not acceptable.",
        "Correct the value named in the message.",
    ),
    "SBX_E1001": Entry(
        "BackendNotFound",
        "No backend of that name is known.",
        "Use one of the installed backends, or register yours with sandboxio.register(name, ...).",
    ),
    "SBX_E1002": Entry(
        "BackendNotInstalled",
        "The backend is known, but what it needs is not installed or cannot be loaded.",
        'pip install "sandboxio[docker]"',
    ),
    "SBX_E1101": Entry(
        "CapabilityNotSupported",
        "This sandbox cannot do, or cannot enforce, what was asked; nothing was done.",
        "Check sb.capabilities first, or use a backend that declares the capability.",
    ),
    "SBX_E1201": Entry(
        "CreationError",
        "The sandbox could not be created; nothing was left behind.",
        "Read __cause__ for the engine's own words, then run: sandboxio doctor",
    ),
    "SBX_E1202": Entry(
        "ConnectError",
        "The engine or the sandbox could not be reached.",
        "Run: sandboxio doctor",
    ),
    "SBX_E1203": Entry(
        "CreateTimeout",
        "The sandbox was not ready in time; nothing was left behind.",
        "Raise create(timeout=...), or pull the image beforehand.",
        retryable=True,
    ),
    "SBX_E1204": Entry(
        "SandboxGone",
        "The sandbox no longer exists: its lifetime ended, or something removed it.",
        "Create a new sandbox; a longer lifetime is create(timeout=...).",
    ),
    "SBX_E1205": Entry(
        "LinkLost",
        "The connection to the sandbox broke while a call was running.",
        "Look at the state the call would have left behind, then repeat the call.",
    ),
    "SBX_E1301": Entry(
        "ExecutionError",
        "A command failed, or was ended together with another one.",
        "Read exc.result.stderr.",
    ),
    "SBX_E1302": Entry(
        "ExecutionTimeout",
        "The command did not end in time; its processes were ended.",
        "Raise timeout= for this call; exc.partial holds the output so far.",
    ),
    "SBX_E1303": Entry(
        "ProcessNotFound",
        "The sandbox has no such background process.",
        "List them with sb.processes.list().",
    ),
    "SBX_E1304": Entry(
        "OutputLimit",
        "The command wrote more output than the caller allowed.",
        "Raise max_output_bytes=, or use sb.stream().",
    ),
    "SBX_E1305": Entry(
        "ContextNotFound",
        "The sandbox has no such code context.",
        "Create one with sb.contexts.create().",
    ),
    "SBX_E1401": Entry(
        "NetworkPolicyViolation",
        "The sandbox tried to reach what its network policy forbids.",
        "Allow it in NetworkPolicy(...), or bring the data in with sb.files.upload().",
    ),
    "SBX_E1402": Entry(
        "ResourceLimitExceeded",
        "The sandbox reached one of its caps.",
        "Raise the cap named in the message with create(resources=Resources(...)).",
    ),
    "SBX_E1403": Entry(
        "EgressDenied",
        "A connection out of the sandbox was refused by its allowlist.",
        "Add the host to NetworkPolicy(allow=(...)).",
    ),
    "SBX_E1501": Entry(
        "AuthError",
        "The provider or registry refused the credentials, or there were none.",
        "Set the variable named in the message.",
    ),
    "SBX_E1502": Entry(
        "RateLimitError",
        "The provider asked us to slow down.",
        "Wait and call again; sandboxio does not retry on its own.",
        retryable=True,
    ),
    "SBX_E1601": Entry(
        "AuditSinkError",
        "An audit sink failed and the configuration says that the operation must then fail.",
        'Repair the sink, or use on_sink_failure="warn".',
    ),
    "SBX_E1700": Entry(
        "FileSystemError",
        "A file operation inside the sandbox failed.",
        "Read the message; it holds the sandbox's own words.",
    ),
    "SBX_E1701": Entry(
        "PathNotFound",
        "The path does not exist inside the sandbox.",
        "List the directory with sb.files.ls(); relative paths start at the working directory.",
    ),
    "SBX_E1702": Entry(
        "PathExists",
        "The path exists already inside the sandbox.",
        "Remove it first, or use parents=True where the directory may exist.",
    ),
    "SBX_E1703": Entry(
        "PermissionDenied",
        "The sandbox user may not do that.",
        'Write below the working directory, use create(user="root"), or COPY --chown in the image.',
    ),
    "SBX_E1704": Entry(
        "NotADirectory",
        "The path, or a part of it, is not a directory.",
        "Name a directory; sb.files.stat() tells what a path is.",
    ),
    "SBX_E1705": Entry(
        "IsADirectory",
        "The path is a directory where a file is needed.",
        "Name a file, or use recursive=True to remove a directory.",
    ),
    "SBX_E1801": Entry(
        "PolicyRefused",
        "The policy in force does not allow the request; nothing was done.",
        "Ask for what the policy allows, or change the policy.",
    ),
}


def url_for(code: str) -> str:
    """Return the documentation page of a code."""
    return f"{DOCS_URL}/{code}"
