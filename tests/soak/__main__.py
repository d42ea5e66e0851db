"""The soak: `python -m tests.soak --seconds 600`.

One program works on sandboxes while another part of this one cuts its connections, holds answers
back, and restarts and kills the engine, which is the soak's own. Every operation must end in time,
well or by an error of ours. At the end the program must hold no more than when it began, and once
it has ended, nothing may be left on the engine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from tests.docker.relay import Fault, Relay, relay_at
from tests.soak import work
from tests.soak.engine import private_engine

if TYPE_CHECKING:
    from tests.soak.engine import PrivateEngine

IMAGE = os.environ.get("SANDBOXIO_TEST_IMAGE", "sandboxio-test/python")
CLEAN_SECONDS = 45.0
"""Seconds after the end of a program in which its watcher has to have removed everything."""


def main() -> int:
    options = _options()
    if options.work:
        url, run_id = options.work
        arguments = (url, IMAGE, run_id, options.seconds, options.seed)
        print(json.dumps(anyio.run(work.main, *arguments, backend=options.loop)))
        return 0
    print(f"soak: {options.seconds:g} s on {options.loop}, --seed {options.seed}", flush=True)
    with private_engine() as engine, tempfile.TemporaryDirectory(prefix="sbx-") as folder:
        engine.load(IMAGE)
        with relay_at(Path(folder) / "relay.sock", engine.socket) as relay:
            found = _soak(engine, relay, options)
            failures = [*found["failures"], *_left(engine)]  # the watcher needs the relay too
    for what, count in found["done"].items():
        print(f"{count:6}  {what}")
    for failure in failures:
        print(f"soak: FAILED: {failure}")
    print("soak: nothing is left, nothing was wrong" if not failures else "soak: failed")
    return bool(failures)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--loop", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def _soak(engine: PrivateEngine, relay: Relay, options: argparse.Namespace) -> dict[str, Any]:
    """Let a program work, trouble it, and return its report."""
    command = [sys.executable, "-X", "dev", "-m", "tests.soak"]
    command += ["--seconds", str(options.seconds), "--seed", str(options.seed)]
    command += ["--loop", options.loop, "--work", relay.url, f"soak-{secrets.token_hex(4)}"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            dice = random.Random(options.seed)
            while program.poll() is None and time.monotonic() < began + options.seconds:
                _trouble(engine, relay, dice)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(dice.uniform(1, 6))
            relay.faults = []
            said, _ = program.communicate(timeout=options.seconds / 5 + 4 * work.CREATE_SECONDS)
        except subprocess.TimeoutExpired:
            program.send_signal(signal.SIGKILL)
            return {"done": {}, "failures": ["the program does not end"]}
    if program.returncode != 0:
        return {"done": {}, "failures": [f"the program ended with {program.returncode}: {said}"]}
    report: dict[str, Any] = json.loads(said.splitlines()[-1])
    return report


def _trouble(engine: PrivateEngine, relay: Relay, dice: random.Random) -> None:
    """Do one of the things that go wrong between a program and its engine."""
    chance = dice.random()
    if chance < 0.04:
        engine.restart(signal.SIGTERM)
    elif chance < 0.08:
        engine.restart(signal.SIGKILL)
    elif chance < 0.4:
        relay.faults = [Fault(r".", cut_after=dice.randrange(2000), times=dice.randrange(1, 4))]
    elif chance < 0.6:
        relay.faults = [Fault(r"POST", delay=dice.uniform(0.2, 3), times=3)]
    elif chance < 0.8:
        relay.faults = [Fault(r".", hold=dice.uniform(0.1, 1), times=10)]
    else:
        relay.faults = []


def _left(engine: PrivateEngine) -> list[str]:
    """Wait until the engine holds no container, and no watcher runs for it."""
    until = time.monotonic() + CLEAN_SECONDS
    with contextlib.closing(engine.client()) as client:
        while True:
            containers = client.containers.list(all=True, ignore_removed=True)
            left = [f"{one.name} is left ({one.status})" for one in containers]
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
