"""Create a sandbox, run code and a command in it, and leave nothing behind."""

import asyncio
import sys

import sandboxio

TARGET = sys.argv[1] if len(sys.argv) > 1 else "docker://python:3.12-slim"


async def main() -> None:
    async with await sandboxio.create(TARGET, timeout=120) as sb:
        print(sb.id, sb.isolation.name)

        result = await sb.run_code("print('hello from the sandbox')")
        print(result.stdout, end="")

        result = await sb.run(["python3", "--version"])
        print(result.raise_for_status().stdout, end="")


if __name__ == "__main__":
    asyncio.run(main())
