"""Bring a file into a sandbox, watch a program work on it, and fetch what it made."""

import asyncio
import sys
import tempfile
from pathlib import Path

import sandboxio

TARGET = sys.argv[1] if len(sys.argv) > 1 else "docker://python:3.12-slim"
PROGRAM = """\
import csv
total = 0
for row in csv.DictReader(open("sales.csv")):
    print("row:", row["item"], flush=True)
    total += int(row["amount"])
open("report.txt", "w").write(f"total: {total}\\n")
"""


async def main(folder: Path) -> None:
    sales = folder / "sales.csv"
    sales.write_text("item,amount\napples,3\npears,4\n")

    async with await sandboxio.create(TARGET, timeout=120) as sb:
        await sb.files.upload(sales, "sales.csv")
        await sb.files.write("program.py", PROGRAM)

        async with sb.stream(["python3", "program.py"], timeout=30) as proc:
            async for chunk in proc:
                print(chunk.stream, chunk.data)
            (await proc.wait()).raise_for_status()

        print([entry.path for entry in await sb.files.ls()])
        await sb.files.download("report.txt", folder / "report.txt")

    print((folder / "report.txt").read_text(), end="")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
