"""What every test run sets up before jaxeval is imported: strict shapes, checked annotations, a compilation cache."""

import gc
import os
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# XLA calls its own preference for gathers a feature that the host lacks, on two lines for every function read back.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before jax, which sets another

import jax
import jaxtyping
import pytest
from beartype import beartype

if jax.__version_info__[:2] == (0, 10):  # an XLA that does not know a flag ends the process
    # Compiling fills most of a test run; without optimisation or fusion by way of MLIR it takes a third as long.
    quick = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    given = os.environ.get("XLA_FLAGS", "")
    if quick not in given:  # workers inherit them; flags written twice are another key of the cache
        os.environ["XLA_FLAGS"] = f"{quick} {given}".strip()

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "jax"
CACHE_BYTES = 2**30
CODE = Path(__file__).resolve().parents[1] / "jaxeval" / "io" / "compile_cache.py"  # read without importing jaxeval

SETTINGS = {
    "jax_numpy_rank_promotion": "raise",
    "jax_compilation_cache_dir": str(CACHE / runpy.run_path(str(CODE))["cache_name"]()),
    # With a bound jax reads the folder through at every write, 0.1 s at 3,000 functions: `forget` holds it instead.
    "jax_compilation_cache_max_size": -1,
    "jax_persistent_cache_min_compile_time_secs": 0.0,  # to write a function takes a tenth of what compiling it does
}
for setting, value in SETTINGS.items():
    jax.config.update(setting, value)
    os.environ[setting.upper()] = str(value)  # for the processes that tests start
os.environ["MPLBACKEND"] = "agg"


def forget(folder: Path, most_bytes: int) -> None:
    """Deletes the oldest files of a folder and its folders until the rest fits."""
    files = sorted(((f.stat(), f) for f in folder.rglob("*") if f.is_file()), key=lambda x: x[0].st_mtime)
    size = sum(stat.st_size for stat, _ in files)
    for stat, file in files:
        if size <= most_bytes:
            break
        file.unlink(missing_ok=True)
        size -= stat.st_size


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # once, before the workers start
        forget(CACHE, CACHE_BYTES)


@pytest.hookimpl(tryfirst=True)
def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A test file that cannot be imported fails; `--doctest-ignore-import-errors` is for modules that lack an extra."""
    is_test = "/test_" in report.nodeid  # modules of the package, and what tests share, may lack an extra
    if report.skipped and is_test and "unable to import module" in str(report.longrepr):
        report.outcome = "failed"


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.set_threshold(5_000, 10, 10)
    _never_looked_at_again()


@pytest.fixture(autouse=True, scope="module")
def _no_second_look() -> Iterator[None]:
    """After each file, what is alive (compiled functions, above all) is hidden from the garbage collector.

    Going through it again and again took a fifth of a run. Compiled code takes memory maps, of which Linux gives a
    process 65,530 and without which it crashes: when most are used, compiled functions are let go of, to be read again.
    """
    yield
    if _memory_maps_n() > MOST_MAPS_N:
        gc.unfreeze()
        jax.clear_caches()
    _never_looked_at_again()


MOST_MAPS_N = 50_000


def _memory_maps_n() -> int:
    """Memory maps of this process; 0 where the system does not say."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


def _never_looked_at_again() -> None:
    gc.collect()
    gc.freeze()


CHECKED = ["jaxeval.linalg", "jaxeval.se3", "jaxeval.align", "jaxeval.metrics", "jaxeval.stats"]


def check_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Checks the arguments and the result of a module's functions with beartype, and leaves classes alone.

    JAX rebuilds pytrees with tracers, axis numbers and placeholders as leaves, and vmap returns batches of them: no
    annotation of a constructor or a method describes all these.
    """
    return function if "." in function.__qualname__ else beartype(function)


jaxtyping.install_import_hook(CHECKED, f"{__name__}.{check_call.__name__}")
