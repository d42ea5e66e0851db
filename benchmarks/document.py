"""The page docs/reference/performance.md, written from one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.figures import Line

PAGE = """\
<!-- Written by `make bench` with --write-docs; change benchmarks/document.py. -->

# Performance

What a call costs beside the least any client of the engine can do.

## What is compared

*Raw* is a client of the engine's HTTP API, written by hand over its socket: one kept connection,
no library, no checks but its own answer. *Ours* is the public API with its defaults, so with its
deadlines, records, limits and checks. Both work on the same engine and image, in containers with
the same limits and the same hardening; raw ones get the network mode `none` in the engine's
ordinary way.

- Each round does every work by both, one right after the other; who begins changes.
- Figures are medians of {counted}, without the first round; some works take seconds and have
  fewer rounds. Of memory it is the most of all of them.
- A ratio is ours to raw. Where the unit is a time, lower is better; where it is MB/s, higher is.
- Memory is the peak growth of the client's resident set; its bar is an amount, not a ratio.
- Answers are checked, outside the time. A work that fails once reaches no bar.

Ratios carry over to other machines, the figures do not. A ratio near 1 is good to about 0.1.

## The machine

{machine}

## Results

{met} of {all} bars are reached.

{table}

[What each row does](../../benchmarks/README.md), on either side.

## Run it yourself

```bash
make bench
make bench ARGS='--rounds 5 --rows true,write,read'
```

It needs a Docker engine on a unix socket, the time of a coffee, and a machine that does nothing
else. `benchmarks/samples.json` then holds every sample.
"""
_LABELS = {
    "processor": "Processor",
    "cores": "Cores",
    "kernel": "Kernel",
    "engine": "Engine",
    "storage": "Storage driver",
    "cgroup": "Control groups",
    "python": "Python",
    "image": "Image",
    "reached": "Sandboxes are reached through",
}


def page(lines: Sequence[Line], facts: Mapping[str, str]) -> str:
    """Return the whole page."""
    return PAGE.format(
        counted=_rounds(lines),
        machine=_machine(facts),
        met=sum(line.met for line in lines),
        all=len(lines),
        table=table.markdown(lines),
    )


def _rounds(lines: Sequence[Line]) -> str:
    counts = {line.counted for line in lines}
    least, most = min(counts, default=0), max(counts, default=0)
    return f"{most} rounds" if least == most else f"{least} to {most} rounds"


def _machine(facts: Mapping[str, str]) -> str:
    rows = [f"| {_LABELS[name]} | {value} |" for name, value in facts.items()]
    return "\n".join(["| | |", "|---|---|", *rows])
