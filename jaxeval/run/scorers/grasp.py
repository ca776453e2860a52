"""Force-closure margins of the contacts that there were at three moments of a grasp-and-insert episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxeval.metrics import grasp
from jaxeval.metrics.grasp_host import ExactMargin, cone_wrenches, exact_margin
from jaxeval.metrics.registry import Column, Context, Measured, Metric, Needs, Recorded
from jaxeval.metrics.status import Status
from jaxeval.run.scorers.stages import staged
from jaxeval.types import EpisodeBatch, InputError

MOMENTS = {"acquired": "first.acquired", "transfer": "moment.transfer", "insert": "moment.insert"}
"""When contact sets are taken: at the acquisition, at the end of the reorientation, and when the insertion begins."""
CONTACTS = ("contact_point", "contact_normal", "contact_finger")


@dataclass(frozen=True)
class GraspSetting:
    """How margins are measured: torques about the object's centre over ``torque_length_m``; None: task's friction.

    Batched (`grasp.grasp_margins`, float32), or ``exact``, one by one on the host (`grasp_host`): 80 ms against .7 for
    the 64 edges of 8 contacts. On 120 such grasps of the experts the two differ by 2e-6 of the margin at most.
    """

    edges_n: int = 8
    torque_length_m: float = 1.0
    friction: float | None = None
    exact: bool = False

    def check(self) -> GraspSetting:
        """Itself, or ValueError in one sentence."""
        for name, least in (("edges_n", 3), ("torque_length_m", 1e-9), ("friction", 0)):
            value = getattr(self, name)
            if name == "friction" and value is None:
                continue
            kind = int if name == "edges_n" else (int, float)
            if isinstance(value, bool) or not isinstance(value, kind) or not least <= value < np.inf:
                what = "a whole number" if name == "edges_n" else "a number"
                raise ValueError(f"grasp.{name} is {value!r}; expected {what} from {least:g} on")
        if not isinstance(self.exact, bool):
            raise ValueError(f"grasp.exact is {self.exact!r}; expected true or false")
        return self


@dataclass(frozen=True)
class Touched:
    """Friction coefficient between finger and object: the setting's, else the task's."""

    friction: float


def needs(recorded: Recorded, params: GraspSetting) -> Needs:
    """The object, the recorded contacts, and the moments that stages found."""
    stages = staged(recorded, "grasp")
    friction = stages.friction if params.friction is None else params.friction
    if friction is None:
        raise InputError(
            f"{recorded.where}: grasp needs the friction between finger and object, found none in the task spec; give "
            "`stages.friction` there or grasp.friction=NUMBER",
            code="no_friction",
            key="grasp.friction",
        )
    return Needs(bodies=(stages.object,), signals=CONTACTS, after=("stages",), constants=Touched(friction))


def measure(batch: EpisodeBatch, context: Context, params: GraspSetting) -> Measured:
    """Margins, least weights, contacts and statuses at MOMENTS; see COLUMNS. On the host: hulls and index work."""
    out: Measured = {}
    for moment, at in MOMENTS.items():
        found = _margins(batch, np.asarray(context.measured[at]), context.constants.friction, params)
        out |= {f"grasp.{name}.{moment}": values for name, values in found.items()}
    return out


def _margins(batch: EpisodeBatch, steps: np.ndarray, friction: float, params: GraspSetting) -> Measured:
    """Of the contacts at one step of each episode, about the object's centre, axes as the world's."""
    n, s = len(steps), batch.signals
    rows, at = np.arange(n), np.maximum(steps, 0)
    touching = (s["contact_finger"][rows, at] >= 0) & (steps >= 0)[:, None]
    point, normal = (s[f"contact_{what}"][rows, at].reshape(n, -1, 3) for what in ("point", "normal"))
    length = np.linalg.norm(normal, axis=2, keepdims=True)
    normal = np.where(touching[..., None], normal / np.where(length > 0, length, 1.0), 0.0)
    W = np.zeros((n, normal.shape[1] * params.edges_n, 6))
    counts = np.repeat(touching, params.edges_n, axis=1)
    for k in np.flatnonzero(touching.any(axis=1)):
        W[k, counts[k]] = cone_wrenches(
            point[k, touching[k]].astype(float),
            normal[k, touching[k]].astype(float),
            friction=friction,
            torque_length_m=params.torque_length_m,
            origin_m=np.asarray(batch.poses)[k, at[k], 0, 4:].astype(float),
            edges_n=params.edges_n,
        )
    found: Any = _exact(W, counts) if params.exact else grasp.grasp_margins(jnp.asarray(W), jnp.asarray(counts))
    touched = touching.any(axis=1)
    status = np.where(touched, np.asarray(found.status), Status.NO_CONTACT)
    return {
        "margin": np.where(touched, np.asarray(found.margin), np.nan),
        "min_weight": np.where(touched, np.asarray(found.min_weight), np.nan),
        "contacts": touching.sum(axis=1).astype(float),
        "status": np.where(steps >= 0, status, Status.NO_MOMENT),
    }


def _exact(W: np.ndarray, counts: np.ndarray) -> ExactMargin:
    """`grasp_host.exact_margin` of many, as arrays."""
    margins = [exact_margin(w[c]) for w, c in zip(W, counts, strict=True)]
    return ExactMargin(*(np.array(x) for x in zip(*margins, strict=True)))  # type: ignore[arg-type]


COLUMNS = tuple(
    column
    for moment in MOMENTS
    for column in (
        Column(
            f"grasp.margin.{moment}",
            direction="higher",
            meaning=f"signed force-closure margin (Ferrari and Canny) at the moment '{moment}'",
        ),
        Column(
            f"grasp.min_weight.{moment}", direction="higher", meaning=f"least contact weight at the moment '{moment}'"
        ),
        Column(f"grasp.contacts.{moment}", meaning=f"contacts of fingers with the object at the moment '{moment}'"),
        Column(
            f"grasp.status.{moment}",
            "status",
            meaning="ok, or why there is no margin",
        ),
    )
)

METRIC = Metric("grasp", GraspSetting, needs, measure, COLUMNS, section="grasp", host=True)
