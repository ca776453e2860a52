"""Peers of the arm benchmarks, given the same chain: PyRoKi (least squares over JAX) and Pinocchio (C++).

Neither is needed by jaxeval. `missing` says in one sentence how to install what is not there.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

from jaxeval.robots import Robot

MODULES = {"PyRoKi": "pyroki", "Pinocchio": "pinocchio", "monalysa": "monalysa"}
INSTALL = {"PyRoKi": "pip install almond-pyroki termcolor", "Pinocchio": "pip install pin",
           "monalysa": "pip install monalysa"}  # fmt: skip


def missing(peer: str) -> str | None:
    """Nothing where the peer is installed, else the sentence that stands in for its rows."""
    if importlib.util.find_spec(MODULES[peer]) is not None:
        return None
    return f"{peer} is not installed, so its rows are left out: {INSTALL[peer]}, or pip install 'jaxeval[bench]'"


def urdf_of(robot: Robot, path: Path) -> Path:
    """The chain of a robot as a URDF without shapes: both peers read the numbers that jaxeval has."""

    def origin(R: Any, t: Any) -> str:
        angles = Rotation.from_matrix(np.asarray(R, float)).as_euler("xyz")
        rpy, xyz = (" ".join(f"{x:.17g}" for x in v) for v in (angles, np.asarray(t, float)))
        return f'<origin rpy="{rpy}" xyz="{xyz}"/>'

    last = robot.joints_n - 1
    links = ["base", *(f"link{i}" for i in range(robot.joints_n)), "tip"]
    text = [f'<robot name="{robot.name}">', *(f'<link name="{name}"/>' for name in links)]
    for i, name in enumerate(robot.joint_names):
        kind = "prismatic" if robot.sliding[i] else "revolute"
        limit = f'lower="{float(robot.lower[i])}" upper="{float(robot.upper[i])}" velocity="2" effort="100"'
        text.append(
            f'<joint name="{name}" type="{kind}">{origin(robot.R_parent_joint[i], robot.t_parent_joint[i])}'
            f'<parent link="{links[i]}"/><child link="link{i}"/><axis xyz="0 0 1"/><limit {limit}/></joint>'
        )
    tip = origin(robot.R_last_tip, robot.t_last_tip)
    text.append(
        f'<joint name="to_tip" type="fixed">{tip}<parent link="link{last}"/><child link="tip"/></joint></robot>'
    )
    path.write_text("\n".join(text))
    return path


# ------------------------------------------------------------------------------------------------------------ PyRoKi


class PyRoKi:
    """The chain in PyRoKi, with its own solver and its own Jacobian, vmapped and jitted as its documentation does."""

    def __init__(self, urdf: Path) -> None:
        import pyroki  # pyright: ignore[reportMissingImports]
        import yourdfpy  # pyright: ignore[reportMissingImports]

        described = yourdfpy.URDF.load(str(urdf), load_meshes=False, build_scene_graph=True)
        self.robot = pyroki.Robot.from_urdf(described)
        self.tip = jnp.array(self.robot.links.names.index("tip"), jnp.int32)

    def problem(self, target: Any, manipulability_weight: Any = None) -> tuple[Any, Any]:
        """(least squares, variable) of one target: pose and limits, as its batch benchmark weighs them.

        With a weight, its example of inverse kinematics with manipulability: pose, rest and manipulability.
        """
        import jaxlie
        import jaxls  # pyright: ignore[reportMissingImports]
        import pyroki  # pyright: ignore[reportMissingImports]

        q = self.robot.joint_var_cls(0)
        steady = manipulability_weight is not None
        position, rotation = (50.0, 10.0) if steady else (10.0, 5.0)
        costs = [
            pyroki.costs.pose_cost_analytic_jac(
                self.robot, q, jaxlie.SE3(target), self.tip, pos_weight=position, ori_weight=rotation
            ),
            pyroki.costs.limit_cost(self.robot, q, weight=50.0),
        ]
        if steady:
            rest = jnp.asarray(q.default_factory())
            costs.append(pyroki.costs.rest_cost(q, rest, jnp.full_like(rest, 0.01)))
            costs.append(pyroki.costs.manipulability_cost(self.robot, q, self.tip, manipulability_weight))
        return jaxls.LeastSquaresProblem(costs, [q]).analyze(), q

    def solver(self, seeds: np.ndarray, *, first_n: int = 6, kept_n: int = 4, then_n: int = 10) -> Callable[[Any], Any]:
        """Targets [B, 7] to joints [B, n], by the beam of its own batch benchmark.

        Every seed goes ``first_n`` iterations, the ``kept_n`` with the least cost ``then_n`` more; the best returns.
        """
        import jaxls  # pyright: ignore[reportMissingImports]

        def one(target: Any) -> Any:
            problem, q = self.problem(target)

            def on(start: Any, damping: Any, iterations_n: int) -> tuple[Any, Any, Any]:
                found, told = problem.solve(
                    initial_vals=jaxls.VarValues.make([q.with_value(start)]),
                    verbose=False,
                    linear_solver="dense_cholesky",
                    termination=jaxls.TerminationConfig(max_iterations=iterations_n, early_termination=False),
                    trust_region=jaxls.TrustRegionConfig(lambda_initial=damping),
                    return_summary=True,
                )
                return found[q], told.cost_history[-1], told.lambda_history[-1]

            start = jnp.asarray(seeds, jnp.float32)
            joints, cost, damping = jax.vmap(lambda s, d: on(s, d, first_n))(start, jnp.full(len(start), 10.0))
            best = jnp.argsort(cost)[:kept_n]
            joints, cost, _ = jax.vmap(lambda s, d: on(s, d, then_n))(joints[best], damping[best])
            return joints[jnp.argmin(cost)]

        return jax.jit(jax.vmap(one))

    def manipulability(self) -> Callable[[Any], Any]:
        """Configurations [B, n] to (translational, full) indices by automatic differentiation."""

        def one(q: Any) -> tuple[Any, Any]:
            import jaxlie

            def tip(q: Any) -> Any:
                return self.robot.forward_kinematics(q)[self.tip]

            def moved(q_new: Any) -> Any:
                here, there = jaxlie.SE3(jax.lax.stop_gradient(tip(q))), jaxlie.SE3(tip(q_new))
                turn = (there.rotation() @ here.rotation().inverse()).log()
                return jnp.concatenate([there.translation(), turn])

            J = jax.jacfwd(moved)(q)
            return _volume(J[:3]), _volume(J)

        return jax.jit(jax.vmap(one))


def _volume(J: Any) -> Any:
    return jnp.sqrt(jnp.maximum(jnp.linalg.det(J @ J.T), 0.0))


# --------------------------------------------------------------------------------------------------------- Pinocchio


class Pinocchio:
    """The chain in Pinocchio, one configuration at a time."""

    def __init__(self, urdf: Path) -> None:
        import pinocchio  # pyright: ignore[reportMissingImports]

        self.pin: Any = pinocchio
        self.model = pinocchio.buildModelFromUrdf(str(urdf))  # type: ignore[attr-defined]
        self.data = self.model.createData()
        self.tip = self.model.getFrameId("tip")

    def jacobian(self, q: np.ndarray, axes: Any = None) -> np.ndarray:
        """[6, n], linear rows first, in the base's axes or others."""
        self.pin.computeJointJacobians(self.model, self.data, q)
        self.pin.updateFramePlacement(self.model, self.data, self.tip)
        axes = self.pin.LOCAL_WORLD_ALIGNED if axes is None else axes
        return self.pin.getFrameJacobian(self.model, self.data, self.tip, axes)

    def manipulability(self, q: np.ndarray) -> np.ndarray:
        """Configurations [B, n] to [2, B]: translational and full index."""
        out = np.empty((2, len(q)))
        for b, row in enumerate(q):
            J = self.jacobian(row)
            out[0, b] = np.sqrt(max(np.linalg.det(J[:3] @ J[:3].T), 0.0))
            out[1, b] = np.sqrt(max(np.linalg.det(J @ J.T), 0.0))
        return out

    def closed_loop(self, targets: np.ndarray, seeds: np.ndarray, *, iterations_n: int) -> np.ndarray:
        """Joints [B, n] by its example's loop of damped steps, from seed after seed until one converges."""
        pin, lower, upper = self.pin, self.model.lowerPositionLimit, self.model.upperPositionLimit
        out = np.empty((len(targets), self.model.nq))
        for b, (w, x, y, z, *xyz) in enumerate(targets.tolist()):
            target = pin.XYZQUATToSE3(np.array([*xyz, x, y, z, w]))
            best = np.inf
            for seed in seeds:
                q = seed.copy()
                for _ in range(iterations_n):
                    J = self.jacobian(q, pin.LOCAL)
                    error = pin.log(self.data.oMf[self.tip].actInv(target)).vector
                    size = np.linalg.norm(error)
                    if size < best:
                        out[b], best = q, size
                    if np.linalg.norm(error[:3]) < 1e-3 and np.linalg.norm(error[3:]) < np.radians(0.1):
                        break
                    step = J.T @ np.linalg.solve(J @ J.T + 1e-6 * np.eye(6), error)
                    q = np.clip(q + step * min(1.0, 0.6 / np.abs(step).max()), lower, upper)
                else:
                    continue
                break
        return out
