"""What every benchmark shares: timing, the record it writes, the table it prints."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

PACKAGES = ("jaxeval", "jax", "jaxlib", "jaxlie", "numpy", "scipy", "pyarrow")


def arguments(argv: list[str], **defaults: str) -> dict[str, str]:
    """`key=value` arguments over defaults; SystemExit names one that is not known, or given twice."""
    if twice := [key for key, times in Counter(a.partition("=")[0] for a in argv).items() if times > 1]:
        sys.exit(f"benchmark: {twice[0]} is given twice, expected once; leave one out")
    given = dict(a.split("=", 1) for a in argv if "=" in a)
    if unknown := sorted(set(given) - set(defaults)) + [a for a in argv if "=" not in a]:
        sys.exit(f"benchmark: no setting {unknown[0]}; expected some of {', '.join(f'{k}=...' for k in defaults)}")
    return defaults | given


def median_s(run: Callable[[], Any], *, repeats_n: int = 5, warm_up_n: int = 1) -> float:
    """Median wall time in seconds over `repeats_n` calls, after warm-up, each blocked until its result is ready."""
    for _ in range(warm_up_n):
        jax.block_until_ready(run())
    times = []
    for _ in range(repeats_n):
        start = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def row(
    work: str,
    size: str,
    ours_s: float,
    *,
    peer: str | None = None,
    peer_s: float | None = None,
    unit: str | None = None,
    amount: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One row of the record: ratio = peer_s / ours_s, rate = amount / ours_s."""
    ratio = None if peer_s is None else peer_s / ours_s
    rate = None if amount is None else amount / ours_s
    return {"work": work, "size": size, "ours_s": ours_s, "peer": peer, "peer_s": peer_s, "ratio": ratio, "unit": unit,
            "rate": rate, **more}  # fmt: skip


def machine() -> dict[str, Any]:
    """The machine in words, without its name."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next((s.split(":")[1].strip() for s in info.read_text().splitlines() if "model name" in s), model)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def write(out: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    """Write `out`/`name`.json and print the rows as a table."""
    out.mkdir(parents=True, exist_ok=True)
    record = {"machine": machine(), "versions": {p: version(p) for p in PACKAGES}, "rows": rows}
    path, part = out / f"{name}.json", out / f".{name}.json.writing"
    part.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(part, path)
    print(f"{'work':24}{'size':34}{'ours':>10}  {'peer':18}{'peer':>10}{'ratio':>8}  rate")
    for r in rows:
        peer = f"{r['peer'] or '':18}{'' if r['peer_s'] is None else _time(r['peer_s']):>10}"
        ratio = "" if r["ratio"] is None else f"{r['ratio']:.1f}x"
        rate = "" if r["rate"] is None else f"{r['rate']:.3g} {r['unit']}"
        print(f"{r['work']:24}{r['size']:34}{_time(r['ours_s']):>10}  {peer}{ratio:>8}  {rate}")
    print(f"record: {path}")
    return path


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"
