"""Compiled code kept between runs: a folder for each processor and version of JAX, and no word of XLA's about it."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import subprocess
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

FATAL = "3"
"""The log level of XLA's C++ parts above which only what ends the process is said."""
TELLING = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")
"""Lines of /proc/cpuinfo that say which code a processor runs; the others change from core to core or hour to hour."""


def keep_compiled_code() -> Path | None:
    """Keep compiled code between runs, and XLA quiet about it; returns the folder, or None where there is none.

    The folder is `cache_name` in ~/.cache/jaxeval, or in JAX_COMPILATION_CACHE_DIR. Where it cannot be written, code is
    compiled anew in each run, without a word. XLA says of all code with AVX-512 that it loads, also of what it compiled
    on the same machine, that it "could lead to execution errors such as SIGILL": it takes a preference of its compiler
    (+prefer-no-gather) for an ability of the processor. Code of another processor lies in another folder and is never
    loaded. What is raised as an exception, and what ends the process, is told as ever.
    """
    import jax

    _quiet()
    if (folder := _folder()) is None:
        jax.config.update("jax_compilation_cache_dir", None)
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    return folder


def cache_name() -> str:
    """The folder's name, of JAX's versions and a hash of what the processor can do: the same in every run on it."""
    digest = hashlib.sha256(_processor().encode()).hexdigest()[:16]
    return f"jax-{version('jax')}_jaxlib-{version('jaxlib')}_{platform.machine() or 'cpu'}-{digest}"


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What the machine says of its processor, and nothing that differs from one run to the next."""
    try:
        lines = (line.partition(":") for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines())
        facts = {f"{key.strip()}: {value.strip()}" for key, _, value in lines if key.strip() in TELLING}
    except OSError:
        facts = {platform.processor()}
        if platform.system() == "Darwin":  # whose processor() is "arm" on all of them
            asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
            facts.add(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip())
    return "\n".join([platform.machine(), *sorted(facts)])


def _folder() -> Path | None:
    """Where compiled code is kept, made and tried; None where nothing can be written."""
    try:
        home = os.environ.get("JAX_COMPILATION_CACHE_DIR")
        cache = Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxeval"
        folder = cache.absolute() / cache_name()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError, ValueError):  # no home, a name that cannot be, no right to write, no space
        return None


def _quiet() -> None:
    """No line of XLA's, JAX's or Matplotlib's about their caches and devices, but by an exception."""
    if (
        os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1"
    ):  # JAX's own setting; whoever set another gets what they asked
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = FATAL  # of processes that are started from here
        try:
            from jaxlib.utils import absl_set_min_log_level  # type: ignore[attr-defined]

            absl_set_min_log_level(int(FATAL))
        except ImportError:  # another jaxlib: the code is right, and XLA talks
            pass
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache", UserWarning)
    for name in ("jax._src.xla_bridge", "matplotlib"):
        logging.getLogger(name).setLevel(logging.ERROR)
