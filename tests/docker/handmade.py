"""Images made by hand: one program and a description, as an archive or from a registry."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator

    import docker

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_APPLETS = ("sleep", "cat", "id")


class Image(NamedTuple):
    """A layer, and the description that goes with it."""

    config: bytes
    layer: bytes

    def saved(self, tag: str) -> bytes:
        """Return it as `docker load` takes it."""
        index = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
        files = {"config.json": self.config, "layer.tar": self.layer}
        return _tar({**files, "manifest.json": json.dumps(index).encode()})


def busybox(client: docker.DockerClient) -> bytes:
    """Return the program of the tests' image that has nothing else."""
    container: Any = client.containers.create("sandboxio-test/busybox")
    try:
        packed = b"".join(container.get_archive("/bin/busybox")[0])
    finally:
        container.remove()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        content = archive.extractfile("busybox")
        assert content is not None
        return content.read()


def handmade(program: bytes, architecture: str) -> Image:
    """Make an image whose few programs are all this one."""
    layer = _tar({"bin/sh": program}, {f"bin/{name}": "bin/sh" for name in _APPLETS})
    described = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Cmd": ["/bin/sh"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    return Image(json.dumps(described).encode(), layer)


class Registry:
    """A registry of one image under every name and tag, on a port of this host."""

    def __init__(self, image: Image, port: int) -> None:
        layer = gzip.compress(image.layer, mtime=0)
        parts = ((_CONFIG, image.config), (_LAYER, layer))
        config, packed = (
            {"mediaType": kind, "size": len(data), "digest": _digest(data)} for kind, data in parts
        )
        described = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config}
        self.manifest = json.dumps({**described, "layers": [packed]}).encode()
        self.digest = _digest(self.manifest)
        self.blobs = {_digest(data): data for _, data in parts}
        self.host = f"localhost:{port}"
        self.asked: list[str] = []

    def answer(self, path: str) -> tuple[bytes, str] | None:
        """Return what is at a path, and its kind."""
        self.asked.append(path)
        if path == "/v2/":
            return b"{}", "application/json"
        if "/manifests/sha256:" in path and not path.endswith(self.digest):
            return None
        if "/manifests/" in path:
            return self.manifest, MANIFEST
        data = self.blobs.get(path.rpartition("/")[2])
        return None if data is None else (data, "application/octet-stream")


@contextmanager
def serving(image: Image) -> Generator[Registry]:
    """Serve an image where engines pull without TLS: on localhost."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = registry.answer(self.path)
            data, kind = found or (b"", "text/plain")
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Docker-Content-Digest", _digest(data))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET  # noqa: N815  # http.server's name

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # its name too

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry = Registry(image, server.server_port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield registry
        finally:
            server.shutdown()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _tar(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755
            archive.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = tarfile.LNKTYPE, target, 0o755
            archive.addfile(member)
    return buffer.getvalue()
