"""What every test run sets up before jaxeval is imported: strict shapes, checked annotations, a compilation cache."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jaxtyping
from beartype import beartype

if jax.__version_info__[:2] == (0, 10):  # an XLA that does not know a flag ends the process
    # Compiling fills most of a test run; without optimisation or fusion by way of MLIR it takes a third as long.
    quick = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    os.environ["XLA_FLAGS"] = f"{quick} {os.environ.get('XLA_FLAGS', '')}"

SETTINGS = {
    "jax_numpy_rank_promotion": "raise",
    "jax_compilation_cache_dir": str(Path(__file__).resolve().parents[1] / ".cache" / "jax"),
    "jax_compilation_cache_max_size": 2**30,  # a bound also turns on the lock between parallel workers
    "jax_persistent_cache_min_compile_time_secs": 0.2,
}
for setting, value in SETTINGS.items():
    jax.config.update(setting, value)
    os.environ[setting.upper()] = str(value)  # for the processes that tests start
os.environ["MPLBACKEND"] = "agg"

CHECKED = ["jaxeval.se3", "jaxeval.align", "jaxeval.metrics", "jaxeval.stats"]


def check_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Checks the arguments and the result of a module's functions with beartype, and leaves classes alone.

    JAX rebuilds pytrees with tracers, axis numbers and placeholders as leaves, and vmap returns batches of them: no
    annotation of a constructor or a method describes all these.
    """
    return function if "." in function.__qualname__ else beartype(function)


jaxtyping.install_import_hook(CHECKED, f"{__name__}.{check_call.__name__}")
