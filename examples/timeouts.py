"""A late call is ended with everything it started; the call beside it is not."""

import asyncio
import sys

import sandboxio
from sandboxio.protocols import AsyncSandbox

TARGET = sys.argv[1] if len(sys.argv) > 1 else "docker://python:3.12-slim"
RUNAWAY = "echo working; (trap '' TERM; sleep 600) & sleep 600"


async def late(sb: AsyncSandbox) -> None:
    try:
        await sb.run(RUNAWAY, timeout=1)
    except sandboxio.ExecutionTimeout as exc:
        print(exc.code, "after writing", repr(exc.partial.stdout))


async def neighbour(sb: AsyncSandbox) -> None:
    result = await sb.run("sleep 2; echo undisturbed")
    print(result.stdout, end="")


async def main() -> None:
    async with await sandboxio.create(TARGET, timeout=120) as sb:
        await asyncio.gather(late(sb), neighbour(sb))


if __name__ == "__main__":
    asyncio.run(main())
