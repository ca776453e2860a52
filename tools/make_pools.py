"""Make `jaxeval/data/pools/<robot>_uniform_v1.json`: percentiles of the manipulability cost over 20,000 configurations.

    python tools/make_pools.py

Configurations are uniform within the joint limits, from numpy's PCG64 with seed 0, in float64. A pool that has been
released is never made again: a change is a new version.
"""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval.metrics.kinematic import manipulability, manipulability_cost
from jaxeval.robots import load_robot, robot_names
from jaxeval.robots.load import data_folder
from jaxeval.robots.model import chain, jacobian_of

VERSION, N, SEED = 1, 20_000, 0
PERCENTILES = (1, 10, 50, 90, 99)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    data_folder("pools").mkdir(exist_ok=True)
    for name in robot_names():
        path = data_folder("pools") / f"{name}_uniform_v{VERSION}.json"
        robot = load_robot(name)
        lower, upper = robot.range()
        q = np.random.default_rng(SEED).uniform(lower, upper, (N, robot.joints_n))
        w = np.asarray(manipulability(jacobian_of(robot, chain(robot, jnp.asarray(q.T)))).translational)
        cost = np.asarray(manipulability_cost(jnp.asarray(w), jnp.ones(N, bool)))
        if np.percentile(cost, 90) - np.percentile(cost, 10) < 1.0:
            print(f"{name}: no pool, nearly every configuration costs the same (the floor is set for larger arms)")
            continue
        told = {
            "version": VERSION,
            "robot": name,
            "robot_source": robot.source,
            "tip_link": robot.tip_link,
            "index": "translational manipulability at the tip",
            "configurations": f"{N} uniform within joint limits, numpy default_rng({SEED})",
            "cost_percentiles": {str(p): round(float(np.percentile(cost, p)), 9) for p in PERCENTILES},
            "w_percentiles": {str(p): round(float(np.percentile(w, p)), 9) for p in PERCENTILES},
        }
        path.write_text(json.dumps(told, indent=1) + "\n")
        print(name, told["cost_percentiles"])


if __name__ == "__main__":
    main()
