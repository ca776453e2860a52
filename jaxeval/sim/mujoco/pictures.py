"""Pictures of a MuJoCo task as it was recorded: joints and object are put where they were, nothing is simulated.

What is drawn beside the robot and the scene has no mass and touches nothing: the rim of the receptacle's opening, tape
on the object, by which its turns are seen, and the forces of the fingers on it.
"""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image
from scipy.spatial.transform import Rotation

from jaxeval.policies.scripted.arm import rigid
from jaxeval.sim.mujoco.backend import require_mujoco
from jaxeval.sim.mujoco.embodiment import Embodiment
from jaxeval.sim.mujoco.task import Task
from jaxeval.types import InputError

if TYPE_CHECKING:
    import mujoco

RIM, TAPE, LABEL, FORCE = (0.0, 0.62, 0.45, 1), (0.45, 0.24, 0.09, 1), (0.97, 0.96, 0.92, 1), (0.84, 0.2, 0.1, 1)
RIM_M, ARROW_M = 0.005, 0.004
"""How thick they are."""
GLASS = 0.16
"""Opacity of the receptacle's walls that stand between the camera and its inside ..."""
BETWEEN = 0.25
"""... which are those whose direction from the inside's middle has more than this cosine with the camera's."""
METRES_A_NEWTON, LONGEST_M, SHORTEST_N = 0.008, 0.12, 0.2
"""Of an arrow. Forces below the last have none."""
FINE = 2
"""A fine picture is drawn so many times as wide and high, and reduced."""


class Force(NamedTuple):
    """A force in N and where it acts, in the world's frame."""

    point: Float[np.ndarray, "3"]
    force: Float[np.ndarray, "3"]


def forces_of_fingers(
    point: Float[np.ndarray, "C 3"], force: Float[np.ndarray, "C 3"], finger: Int[np.ndarray, " C"]
) -> list[Force]:
    """The whole force of every finger that touches, at the mean of its contacts, weighted by their forces."""
    found = []
    for f in np.unique(finger[finger >= 0]):
        mine = finger == f
        weight = np.linalg.norm(force[mine], axis=1)
        if weight.sum() > SHORTEST_N:
            found.append(Force(weight @ point[mine] / weight.sum(), force[mine].sum(0)))
    return found


class Replay:
    """A task's scene that is put into recorded states and drawn off-screen; close it, or use it as a context.

    Only drawing needs OpenGL: where things are, ``data`` says without.
    """

    def __init__(
        self, task: Task, embodiment: Embodiment, *, width: int = 640, height: int = 480, camera: str = "overview"
    ):
        """InputError where the task's scene has no such camera."""
        import mujoco

        self.width, self.height = width, height
        mjspec = task.mjspec(embodiment)
        cameras = [c.name for c in mjspec.cameras]
        if camera not in cameras:
            raise InputError(f"camera '{camera}': there is none in {task.name}; expected one of {', '.join(cameras)}")
        _dress(mjspec, task)
        _make_clear(mjspec, task, next(c for c in mjspec.cameras if c.name == camera).pos)
        mjspec.visual.global_.offwidth, mjspec.visual.global_.offheight = FINE * width, FINE * height
        self.model = mjspec.compile()
        self.data = mujoco.MjData(self.model)
        self.camera = mujoco.MjvCamera()
        self.camera.type, self.camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, self.model.camera(camera).id
        self._thing = int(self.model.joint(task.thing.name).qposadr[0])
        self._joint = {self.model.joint(j).name: int(self.model.joint(j).qposadr[0]) for j in range(self.model.njnt)}
        self._drawing: tuple[Any, ...] | None = None

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(
        self, joints: Float[np.ndarray, " Q"], joint_names: Sequence[str], object_pose: Float[np.ndarray, "7"]
    ) -> None:
        """Joints (rad, m) and the object (wxyz_xyz, world) to where they were; all else follows by kinematics.

        Raises:
            InputError: the scene has no joint of one of these names.
        """
        import mujoco

        if absent := [name for name in joint_names if name not in self._joint]:
            raise InputError(
                f"joint '{absent[0]}' was recorded, expected one of {', '.join(self._joint)}; is it this embodiment?"
            )
        d = self.data
        d.qpos[[self._joint[name] for name in joint_names]] = joints
        d.qpos[self._thing :][:7] = [*object_pose[4:], *object_pose[:4]]
        mujoco.mj_kinematics(self.model, d)
        mujoco.mj_comPos(self.model, d)
        mujoco.mj_camlight(self.model, d)

    def draw(self, forces: Iterable[Force] = (), *, fine: bool = False) -> UInt8[np.ndarray, "H W 3"]:
        """The scene as it stands, with an arrow a force that ends where it acts.

        Raises:
            InputError: no OpenGL off-screen here.
        """
        import mujoco

        if self._drawing is None:
            self._drawing = self._begin()
        scene, context, gl = self._drawing
        gl.make_current()  # another replay's may be
        size = FINE if fine else 1
        view = mujoco.MjrRect(0, 0, size * self.width, size * self.height)
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self.model, self.data, mujoco.MjvOption(), None, self.camera, everything, scene)
        for f in forces:
            _arrow(scene, f)
        mujoco.mjr_render(view, scene, context)
        pixels = np.empty((view.height, view.width, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, view, context)
        pixels = pixels[::-1]
        if not fine:
            return pixels
        return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).reduce(FINE))

    def close(self) -> None:
        """Give back what drawing holds; drawing again takes it anew."""
        if self._drawing is not None:
            _, context, gl = self._drawing
            self._drawing = None
            gl.make_current()
            context.free()
            gl.free()

    def _begin(self) -> tuple[mujoco.MjvScene, Any, Any]:
        import mujoco

        gl, context = _open_gl(self.model)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
        scene = mujoco.MjvScene(self.model, maxgeom=self.model.ngeom + 200)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            scene.flags[flag] = 0
        return scene, context, gl


def _usual() -> str:
    """The kind that needs no display where there is one."""
    return "egl" if sys.platform.startswith("linux") else "cgl" if sys.platform == "darwin" else "glfw"


def require_drawing() -> None:
    """InputError where MuJoCo is not installed, or does not load with what MUJOCO_GL says."""
    try:
        require_mujoco()
    except InputError:
        raise
    except Exception as error:  # it loads the library at once
        raise _cannot_draw(error) from error


def _kind() -> str:
    return os.environ.get("MUJOCO_GL", "").lower().strip() or _usual()


def _open_gl(model: mujoco.MjModel) -> tuple[Any, Any]:
    """A current OpenGL context without a window, of the kind that MUJOCO_GL says, else the usual one, and MuJoCo's."""
    import mujoco

    kind, view = _kind(), model.vis.global_
    try:
        if kind not in ("egl", "osmesa", "glfw", "cgl"):
            raise ValueError("it is none of egl, osmesa, glfw, cgl (macOS)")
        gl = import_module(f"mujoco.{kind}").GLContext(view.offwidth, view.offheight)
        gl.make_current()
        return gl, mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
    except Exception as error:  # they fail in many ways where a library or a display is missing
        raise _cannot_draw(error) from error


def _cannot_draw(error: Exception) -> InputError:
    why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return InputError(
        f"MUJOCO_GL={_kind()}: nothing can be drawn off-screen here ({why}); install Mesa's EGL (Debian: libegl1 "
        "libgl1-mesa-dri), or its OSMesa (libosmesa6) and set MUJOCO_GL=osmesa"
    )


# ---------------------------------------------------------------------------------------------------- the scene's dress


def _dress(mjspec: mujoco.MjSpec, task: Task) -> None:
    """Sky, light, tape and label on the object, and the rim of the opening that it is put through, if there is one."""
    import mujoco

    quiet: dict[str, Any] = {"type": mujoco.mjtGeom.mjGEOM_BOX, "mass": 0.0, "contype": 0, "conaffinity": 0}
    mjspec.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.97, 0.98, 1.0],
        rgb2=[0.80, 0.84, 0.88],
        width=64,
        height=384,
    )
    mjspec.visual.quality.offsamples = 0
    light = mjspec.visual.headlight
    light.ambient, light.diffuse, light.specular = [0.42] * 3, [0.12] * 3, [0.0] * 3
    half = np.array(task.thing.size) / 2
    thing = mjspec.body(task.thing.name)
    thing.add_geom(name="tape", size=half * [0.14, 1.012, 1.02], rgba=TAPE, **quiet)
    thing.add_geom(
        name="label", pos=[0.55 * half[0], 0, half[2]], size=[0.25 * half[0], 0.55 * half[1], 4e-4], rgba=LABEL, **quiet
    )
    if sum(box.name.startswith("receptacle") for box in task.boxes) > 1:  # a plate alone has no opening
        _add_rim(mjspec, task, quiet)


def _add_rim(mjspec: mujoco.MjSpec, task: Task, quiet: dict[str, Any]) -> None:
    """Four bars along the edges of the opening."""
    entrance = rigid(np.asarray(task.geometry.T_world_entrance, float))
    wide, high = np.asarray(task.geometry.half_section_m, float)
    thick = RIM_M / 2
    for name, at, size in (
        ("rim_left", (0, wide, 0), (thick, thick, high + thick)),
        ("rim_right", (0, -wide, 0), (thick, thick, high + thick)),
        ("rim_top", (0, 0, high), (thick, wide + thick, thick)),
        ("rim_bottom", (0, 0, -high), (thick, wide + thick, thick)),
    ):
        quat = entrance.rotation.as_quat(scalar_first=True)
        mjspec.worldbody.add_geom(name=name, pos=entrance.apply(at), quat=quat, size=size, rgba=RIM, **quiet)


def _make_clear(mjspec: mujoco.MjSpec, task: Task, eye: Float[np.ndarray, "3"]) -> None:
    """The receptacle solid, but for walls that stand between the camera and the middle of its inside."""
    geometry = task.geometry
    entrance = rigid(np.asarray(geometry.T_world_entrance, float))
    inside = entrance.apply([float(geometry.interior_depth_m) / 2, 0, 0])
    sight = (np.asarray(eye) - inside) / np.linalg.norm(np.asarray(eye) - inside)
    for box in task.boxes:
        if box.name.startswith("receptacle"):
            # the direction from the inside's middle to the point of the box that is nearest to it
            turn = Rotation.from_euler("z", box.yaw_rad)
            local, half = turn.inv().apply(inside - box.centre), np.array(box.size) / 2
            out = np.array(box.centre) + turn.apply(np.clip(local, -half, half)) - inside
            between = out @ sight > BETWEEN * np.linalg.norm(out)
            mjspec.geom(box.name).rgba[3] = GLASS if between else 1


def _arrow(scene: mujoco.MjvScene, f: Force) -> None:
    """One more geom in the scene, if there is room: an arrow whose tip is where the force acts."""
    import mujoco

    size = float(np.linalg.norm(f.force))
    if size <= SHORTEST_N or scene.ngeom >= scene.maxgeom:
        return
    tail = f.point - f.force / size * min(METRES_A_NEWTON * size, LONGEST_M)
    geom = scene.geoms[scene.ngeom]
    arrow = mujoco.mjtGeom.mjGEOM_ARROW
    mujoco.mjv_initGeom(geom, arrow, np.zeros(3), np.zeros(3), np.eye(3).ravel(), np.array(FORCE, np.float32))
    mujoco.mjv_connector(geom, arrow, ARROW_M, tail, f.point)
    scene.ngeom += 1
