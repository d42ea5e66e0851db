"""The public ports, for annotations and for backends of your own."""

from sandboxio.core.file_protocols import AsyncFileSystem as AsyncFileSystem
from sandboxio.core.protocols import AsyncSandbox as AsyncSandbox
from sandboxio.core.protocols import Backend as Backend
from sandboxio.core.protocols import Process as Process
from sandboxio.core.protocols import ReapableBackend as ReapableBackend
