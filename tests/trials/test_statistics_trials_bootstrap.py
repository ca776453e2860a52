"""Trial 8: the same key twice gives a bit-identical interval."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval.stats.aggregate import interquartile_mean, interval
from jaxeval.stats.bootstrap import bootstrap as percentile_bootstrap
from jaxeval.stats.bootstrap import bootstrap_bca, independent, nested, paired_bootstrap
from jaxeval.stats.estimate import PairCounts

X = jax.random.normal(jax.random.key(1), (12,))
EVERY = jnp.ones(12, bool)
SEED = jnp.arange(12) // 3


def mean(weights):
    return jnp.sum(weights * X) / jnp.sum(weights)


INTERVALS = [
    lambda key: paired_bootstrap(key, PairCounts(148, 134, 52, 166)),
    lambda key: percentile_bootstrap(key, mean, independent(EVERY), resamples_n=500),
    lambda key: percentile_bootstrap(key, mean, nested(SEED, jnp.arange(12), valid=EVERY), resamples_n=500),
    lambda key: bootstrap_bca(key, mean, EVERY, resamples_n=500),
    lambda key: interval(key, interquartile_mean, X.reshape(4, 3), EVERY.reshape(4, 3), resamples_n=500),
]


def test_the_same_key_twice_gives_the_same_bits_and_another_key_others():
    def run(key):
        return jnp.stack([jnp.stack(one(key)[:3]) for one in INTERVALS])

    compiled = jax.jit(run)
    first, again, other = (np.asarray(compiled(jax.random.key(i))) for i in (42, 42, 43))
    assert first.tobytes() == again.tobytes() and np.isfinite(first).all()
    assert (other[:, 0] == first[:, 0]).all() and (other[1:, 1:] != first[1:, 1:]).any(axis=1).all()
