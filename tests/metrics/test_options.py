"""An option that nobody knows is an error that names those there are, wherever code branches on one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval import se3
from jaxeval.align import missing_bodies
from jaxeval.io.errors import InputError
from jaxeval.io.store import write_store
from jaxeval.metrics import fused
from jaxeval.metrics.geometric import penalise
from jaxeval.metrics.visibility import frame_weights
from jaxeval.run.compare_estimates import multiplier
from jaxeval.run.fit import fit
from jaxeval.stats.agreement import _alpha
from jaxeval.stats.ranking import _strength
from jaxeval.types import Episode, Pair, Predicate, Shape, Symmetry, TaskSpec

POSE = jnp.asarray(se3.IDENTITY)
PARTS = tuple(jnp.zeros((1, 1)) for _ in range(4))
SPEC = TaskSpec("t", (), ())
P = np.array([0.01])
EPISODE = Episode(
    poses=np.tile([1.0, 0, 0, 0, 0, 0, 0], (2, 1, 1)),
    time_s=np.arange(2.0),
    valid=np.ones((2, 1), bool),
    frame_valid=np.ones(2, bool),
    bodies=("a",),
)


def traced(f: Callable[[Any], Any], x: Any = 1.0) -> Callable[[], Any]:
    """Called under jit, as metrics are: the error comes when the code is traced."""
    return lambda: jax.jit(f)(jnp.asarray(x))


@pytest.mark.parametrize(
    ("call", "there"),
    [
        (traced(lambda x: penalise(x, "cubic")), "penalty 'cubic' is not one of hinge, squared, saturating"),
        (
            traced(lambda b: frame_weights(b, L=1, weighting="all", dtype=jnp.dtype("float32")), np.zeros(2, int)),
            "weighting 'all' is not one of frames, progress",
        ),
        (
            traced(lambda x: se3.deviation(POSE, POSE * x, se3.PairGeometry(jnp.eye(3), Symmetry()), kind="log")),
            "deviation 'log' is not one of se3_log, decoupled",
        ),
        (lambda: fused._log(PARTS, PARTS[:3], kind="log"), "deviation 'log' is not one of se3_log, decoupled"),
        (lambda: Shape("cone"), "shape kind 'cone' is not one of box, cylinder, sphere, mesh"),
        (lambda: Symmetry("round"), "symmetry kind 'round' is not one of none, spin, discrete, all"),
        (lambda: Predicate("near", axes="xw"), "axis 'w' is not one of x, y, z"),
        (lambda: Predicate("near", axes=""), "axis ' ' is not one of x, y, z"),
        (lambda: Pair("a", "b", "m_x"), "role 'm_x' is not one of m_r, m_s, r_s, m_g, r_g"),
        (lambda: missing_bodies(Predicate("nearby"), SPEC, ()), "predicate kind 'nearby' is not one of gripper_clos"),
        (
            lambda: inspect.unwrap(_alpha)(jnp.zeros((3, 3)), None, "ratio"),  # without its annotations checked
            "scale 'ratio' is not one of nominal, ordinal, interval",
        ),
        (
            lambda: inspect.unwrap(_strength)(P, P, P > 0, "pearson"),
            "coefficient 'pearson' is not one of spearman, kendall",
        ),
        (lambda: multiplier(P, "bonferroni", 0.05), "correction 'bonferroni' is not one of holm, bh"),
    ],
)
def test_an_option_that_is_none_is_an_error(call: Callable[[], Any], there: str) -> None:
    with pytest.raises(ValueError, match="is not one of") as error:
        call()
    assert there in str(error.value)


@pytest.mark.parametrize("option", ["compression", "precision"])
def test_a_store_takes_no_option_that_it_does_not_know(tmp_path: Path, option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} 'brotli' is not one of"):
        write_store(tmp_path / "s", [EPISODE], task="t", **{option: "brotli"})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_fit_names_the_deviations() -> None:
    with pytest.raises(InputError, match="deviation is 'log'; expected one of se3_log, decoupled; correct"):
        fit([], SPEC, deviation="log")
