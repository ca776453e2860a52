"""ManiSkill environments as rows of Observations: one on the CPU, or many at once on a GPU, behind one class.

State only without any graphics device (the default), or with images. Bodies are every actor and every link of an
articulation but the robot's own (its joints tell those) and the ground; sizes come from their collision shapes.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxeval.io.poses import unit
from jaxeval.policies.policy import Observation
from jaxeval.policies.scripted.arm import ARMS, rigid, row
from jaxeval.types import InputError

ROUNDS_N = 1_000_000
"""Steps an environment allows: the rollout ends episodes, not the environment."""


@dataclass(frozen=True)
class Scenery:
    """What an environment has besides its actors. Functions take the unwrapped environment.

    ``frames``: further poses by name (sapien's batched Pose). ``facts``: lengths by name, [B] or scalar.
    ``robot`` is empty where it is the environment's own choice. ``module``: where the environment is registered, if
    ManiSkill does not bring it. ``own``: for robots that need a layout of their own, the environment that has it, and
    where that is registered. ``steps_n`` and ``hold_s``: an episode whose policy does not say that it is over ends
    after ``steps_n`` control steps, or when the environment has said success for ``hold_s`` seconds.
    """

    env_id: str
    robot: str = "panda"
    frames: Callable[[Any], Mapping[str, Any]] = lambda env: {}
    facts: Callable[[Any], Mapping[str, Any]] = lambda env: {}
    module: str = ""
    own: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    steps_n: int = 600
    hold_s: float = 0.5


SCENES: dict[str, Scenery] = {
    "stack_cube": Scenery(
        "StackCube-v1",
        "panda_wristcam",
        own={
            "fetch": ("StackCubeFetch-v1", "jaxeval.sim.maniskill.tasks.stack_cube_reach"),
            "so100": ("StackCubeSO100-v1", "jaxeval.sim.maniskill.tasks.stack_cube_reach"),
        },
    ),
    "place_sphere": Scenery("PlaceSphere-v1", facts=lambda env: {"bin_bottom_half_m": env.block_half_size[0]}),
    "peg_insertion_side": Scenery(
        "PegInsertionSide-v1",
        "panda_wristcam",
        frames=lambda env: {"peg_head": env.peg_head_pose, "box_hole": env.box_hole_pose, "goal": env.goal_pose},
        facts=lambda env: {"hole_half_m": env.box_hole_radii},
    ),
    "plug_charger": Scenery(
        "PlugCharger-v1",
        "panda_wristcam",
        frames=lambda env: {"goal": env.goal_pose},
        facts=lambda env: {"charger_base_half_m": env._base_size[0]},
    ),
    "poke_cube": Scenery("PokeCube-v1"),
    "close_drawer": Scenery(
        "CloseDrawer-v1",
        facts=lambda env: {"drawer_open_m": env.cabinet.get_qpos()[:, 0]},
        module="jaxeval.sim.maniskill.tasks.close_drawer",
    ),
    "place_can": Scenery(
        "PlaceCan-v1",
        facts=lambda env: {"tray_bottom_half_m": importlib.import_module(env.__module__).SHEET},
        module="jaxeval.sim.maniskill.tasks.place_can",
        own={
            "fetch": ("PlaceCanFetch-v1", "jaxeval.sim.maniskill.tasks.place_can"),
            "so100": ("PlaceCanSO100-v1", "jaxeval.sim.maniskill.tasks.place_can"),
        },
    ),
}
"""Environments by the name of their task."""

STATIC_BODIES = {"table-workspace": "table"}
LEFT_OUT = ("ground",)

NOT_INSTALLED = (
    "not installed, expected with ManiSkill 3; install them with `pip install torch` and `pip install "
    "'jaxeval[maniskill]'`, on Linux and Python 3.11"
)
NO_VULKAN = (
    "pictures: there is no Vulkan driver to draw them with; install one (a GPU's own, or Mesa 24 or newer: on Debian "
    "12 `apt-get install -t bookworm-backports mesa-vulkan-drivers`), or set frames=0"
)


class Environments:
    """``n`` copies of one task's environment, reset and stepped together.

    ``backend`` is "cpu" (one copy, physics on this thread) or "gpu" (PhysX on CUDA, any number). ``cameras``: every
    observation holds the sensors' images. ``pictures``: `render` works. Without either no graphics device is needed.
    InputError where ManiSkill, the task, the robot or, for images, a Vulkan driver is missing.
    """

    def __init__(
        self,
        task: str,
        *,
        robot: str | None = None,
        n: int = 1,
        backend: str = "cpu",
        cameras: bool = False,
        pictures: bool = False,
        env_id: str = "",
    ) -> None:
        self.scenery = scenery(task, robot, env_id)
        self.task, self.robot = task, robot or self.scenery.robot
        check_request(task, robot, n, backend, env_id)
        self.n, self.backend, self.cameras, self.renders = n, backend, cameras, cameras or pictures
        gym = _gymnasium(self.renders, self.scenery.module)
        if backend == "gpu":
            _require_cuda()
        try:
            self.env: Any = gym.make(
                self.scenery.env_id,
                num_envs=n,
                obs_mode="rgb+segmentation" if cameras else "none",
                reward_mode="none",
                control_mode="pd_joint_pos",
                sim_backend={"cpu": "physx_cpu", "gpu": "physx_cuda"}[backend],
                render_backend="cpu" if self.renders else "none",
                **({"robot_uids": self.robot} if self.robot else {}),
                reconfiguration_freq=0,  # `reset` asks for it
                max_episode_steps=ROUNDS_N,
            ).unwrapped
        except RuntimeError as error:
            if self.renders:
                raise InputError(f"{NO_VULKAN} ({_first_line(error)})") from error
            raise
        self.robot = self.robot or self.env.agent.uid
        self._steps = 0

    def reset(self, seeds: Sequence[int], *, loose: Sequence[str] = ()) -> Observation:
        """Rebuild the scenes and start the episodes of these seeds, one a copy; ``loose`` bodies are no longer fixed.

        An episode's start depends on its own seed alone, not on its neighbours'.
        """
        if len(seeds) != self.n:
            raise InputError(f"{len(seeds)} seeds for {self.n} environments; expected as many; give one a copy")
        if loose and self.backend == "gpu":
            raise InputError(f"{', '.join(loose)}: cannot be made loose with backend=gpu; run this on the CPU")
        images, _ = self.env.reset(seed=list(seeds) if self.n > 1 else seeds[0], options={"reconfigure": True})
        if self.n > 1:
            # Several copies draw from one generator, that of the first one's seed: each is placed again by itself.
            for i, seed in enumerate(seeds):
                images, _ = self.env.reset(seed=[seed] * self.n, options={"env_idx": self._index(i)})
        for name in ("bodies", "half_size_m", "joint_names"):
            self.__dict__.pop(name, None)  # the scene is a new one
        self._steps = 0
        for name in loose:
            _loosen(self.bodies[name])
        success = _host(self.env.evaluate()["success"]).reshape(-1)
        return self._observations(success, images)

    def step(self, actions: Float[np.ndarray, "B A"]) -> Observation:
        """One control step of every copy."""
        import torch

        images, _, _, _, info = self.env.step(torch.as_tensor(np.asarray(actions, np.float32), device=self.env.device))
        self._steps += 1
        return self._observations(_host(info["success"]).reshape(-1), images)

    def render(self) -> np.ndarray:
        """The human's view of the scene, uint8 [B, H, W, 3]; needs ``cameras`` or ``pictures``."""
        return _host(self.env.render_rgb_array())

    def close(self) -> None:
        """Free the simulator."""
        self.env.close()

    @cached_property
    def bodies(self) -> dict[str, Any]:
        """Every actor and articulation link that is neither the robot's nor the ground, by name."""
        whole = {body.name: body for body in vars(self.env).values() if getattr(body, "merged", False)}
        found: dict[str, Any] = {}
        for name, actor in self.env.scene.actors.items():
            of = re.sub(r"_\d+$", "", name)
            if of in whole:  # "peg_3" is what copy 3 adds to "peg"
                found.setdefault(of, whole[of])
            else:
                found[re.sub(r"_0$", "", name)] = actor
        for name, articulation in self.env.scene.articulations.items():
            if articulation is not self.env.agent.robot and not name.startswith(self.env.agent.uid):
                found |= {link.name: link for link in articulation.get_links()}
        return {STATIC_BODIES.get(n, n): body for n, body in found.items() if n not in LEFT_OUT}

    @cached_property
    def joint_names(self) -> tuple[str, ...]:
        """The robot's moving joints, in the order of its state."""
        return tuple(joint.name for joint in self.env.agent.robot.get_active_joints())

    @cached_property
    def half_size_m(self) -> dict[str, Float[np.ndarray, "B 3"]]:
        """Half extents of each body's collision shapes about their middle, in the body's own frame."""
        return {name: np.stack([half_extents(o) for o in _copies(body, self.n)]) for name, body in self.bodies.items()}

    def _index(self, copy: int) -> Any:
        import torch

        return torch.tensor([copy], device=self.env.device)

    @property
    def layout(self) -> dict[str, slice]:
        """Which entries of an observation's vector hold what: ``joints``, then the pose of every body by its name."""
        ends = np.cumsum([len(self.joint_names), *[7] * len(self._bodies_seen)])
        names = ("joints", *self._bodies_seen)
        starts = [0, *ends[:-1].tolist()]
        return {name: slice(a, b) for name, a, b in zip(names, starts, ends.tolist(), strict=True)}

    @property
    def action_bounds(self) -> tuple[Float[np.ndarray, " A"], Float[np.ndarray, " A"]]:
        """Least and greatest entries of an action; joint targets are bounded by the joints' own limits."""
        space = self.env.single_action_space
        return np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)

    def _observations(self, success: np.ndarray, images: Any) -> Observation:
        env, arm, n = self.env, ARMS.get(self.robot), self.n
        poses = {name: _poses(body.pose) for name, body in self.bodies.items()}
        poses |= {name: _poses(pose) for name, pose in self.scenery.frames(env).items()}
        qpos = _host(env.agent.robot.get_qpos())
        if arm is None:  # a robot that no oracle moves
            poses["tcp"] = _poses(env.agent.tcp.pose)
            base, width = _poses(env.agent.robot.pose), np.full(n, np.nan)
        else:
            poses["tcp"] = np.stack([row(rigid(tip) * arm.tip_to_hand) for tip in _poses(arm.tip(env.agent))])
            base = _poses(arm.base(env.agent))
            width = [arm.width_m(dict(zip(self.joint_names, joints.tolist(), strict=True))) for joints in qpos]
        joints = qpos.astype(np.float64)
        self._bodies_seen = tuple(poses)
        return Observation(
            time_s=np.full(n, self._steps / env.control_freq),
            poses=poses,
            joints=joints,
            joint_names=self.joint_names,
            T_world_base=base,
            gripper_width_m=np.asarray(width, np.float64),
            success=success.astype(bool),
            robot=self.robot,
            control_hz=float(env.control_freq),
            half_size_m=self.half_size_m,
            facts={k: np.broadcast_to(_host(v), (n,)).astype(np.float64) for k, v in self.scenery.facts(env).items()},
            images=_pictures(images) if self.cameras else {},
            vector=np.concatenate([joints, *poses.values()], axis=1),
        )


def scenery(task: str, robot: str | None = None, env_id: str = "") -> Scenery:
    """Environment of a task, for a robot; ``env_id`` is that of a task of one's own. InputError names those there are.

    A module that registers an environment of one's own is named before it: ``my_package.my_envs:MyEnv-v1``.
    """
    if env_id:
        module, _, name = env_id.rpartition(":")
        return Scenery(name, robot or "", module=module)
    if task not in SCENES:
        raise InputError(
            f"task '{task}': no environment; expected one of {', '.join(SCENES)}; choose one of these, or name an "
            "environment of ManiSkill's with env_id="
        )
    scene = SCENES[task]
    own_id, module = scene.own.get(robot or scene.robot, (scene.env_id, scene.module))
    return replace(scene, env_id=own_id, module=module)


def check_request(task: str, robot: str | None, n: int, backend: str, env_id: str = "") -> None:
    """InputError where there are no such environments; needs no ManiSkill."""
    if (robot or scenery(task, robot, env_id).robot) not in ARMS and not env_id:
        raise InputError(f"robot '{robot}': expected one of {', '.join(ARMS)}; choose one of these")
    if backend not in ("cpu", "gpu"):
        raise InputError(f"backend is '{backend}'; expected cpu or gpu; correct the setting")
    if backend == "cpu" and n != 1:
        raise InputError(f"batch_n is {n} on the CPU backend; expected 1; run several processes, or backend=gpu")


def require_maniskill() -> None:
    """InputError where ManiSkill or torch is not installed; imports neither."""
    for package in ("torch", "mani_skill"):
        if find_spec(package) is None:
            raise InputError(f"{package}: {NOT_INSTALLED}")


def _require_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise InputError("backend=gpu: torch finds no CUDA device; use a machine with one, or backend=cpu")


def _gymnasium(renders: bool, module: str) -> Any:
    require_maniskill()
    try:
        import gymnasium
        import mani_skill.envs  # noqa: F401  (registers the environments)
    except ImportError as error:
        raise InputError(f"mani_skill: it cannot be imported ({_first_line(error)}); {NOT_INSTALLED}") from error
    logging.getLogger("mani_skill").setLevel(logging.ERROR)  # its warnings are about its own robots' first poses
    from jaxeval.sim.maniskill.stand_in import renderer_is_gone, without_renderer

    if not renders:
        without_renderer()
    elif renderer_is_gone():
        raise InputError("pictures: this process ran environments without any; expected a process of their own")
    if module:
        importlib.import_module(module)
    return gymnasium


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _host(x: Any) -> np.ndarray:
    return x.cpu().numpy() if hasattr(x, "cpu") else np.asarray(x)


def _poses(pose: Any) -> Float[np.ndarray, "B 7"]:
    """Rows wxyz_xyz, float64 and unit, of ManiSkill's xyz wxyz."""
    raw = _host(pose.raw_pose).astype(np.float64)
    return np.concatenate([unit(raw[:, 3:]), raw[:, :3]], axis=1)


def _pictures(images: Any) -> dict[str, np.ndarray]:
    return {
        f"{camera}.{kind}": _host(x) for camera, kinds in images["sensor_data"].items() for kind, x in kinds.items()
    }


def _copies(body: Any, n: int) -> list[Any]:
    """The simulator's objects of a body: one for each copy."""
    objects = list(body._objs)
    return objects if len(objects) == n else objects[:1] * n


def _loosen(body: Any) -> None:
    """Give a kinematic actor back to physics."""
    import sapien.physx as physx

    for entity in body._objs:
        entity.find_component_by_type(physx.PhysxRigidDynamicComponent).set_kinematic(False)


def half_extents(thing: Any) -> Float[np.ndarray, "3"]:
    """Half extents of the box around a sapien entity's collision shapes, in its frame; NaN where it has none."""
    import sapien.physx as physx

    component = thing.find_component_by_type(physx.PhysxRigidBaseComponent) if hasattr(thing, "components") else thing
    corners = []
    for shape in component.get_collision_shapes() if component is not None else ():
        if isinstance(shape, physx.PhysxCollisionShapeBox):
            half = np.asarray(shape.half_size)
        elif isinstance(shape, physx.PhysxCollisionShapeSphere):
            half = np.full(3, shape.radius)
        elif isinstance(shape, physx.PhysxCollisionShapeCylinder | physx.PhysxCollisionShapeCapsule):
            half = np.array([shape.half_length, shape.radius, shape.radius])
        elif isinstance(shape, physx.PhysxCollisionShapeConvexMesh | physx.PhysxCollisionShapeTriangleMesh):
            half = np.abs(np.asarray(shape.vertices) * np.asarray(shape.scale)).max(axis=0)
        else:
            continue
        signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
        T = shape.local_pose.to_transformation_matrix()
        if isinstance(shape, physx.PhysxCollisionShapeSphere):
            T = np.block([[np.eye(3), T[:3, 3:]], [np.zeros((1, 3)), np.ones((1, 1))]])
        corners.append(signs * half @ T[:3, :3].T + T[:3, 3])
    if not corners:
        return np.full(3, np.nan)
    box = np.concatenate(corners)
    return (box.max(axis=0) - box.min(axis=0)) / 2
