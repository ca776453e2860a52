"""The monitor as a state machine that walks through an episode step by step with counters: float64 numpy and scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from jaxeval.metrics.stages import Cause, StageGeometry, StageParams, StageSignals


def rotation(wxyz: np.ndarray) -> Rotation:
    return Rotation.from_quat(np.asarray(wxyz, float), scalar_first=True)


def monitor(signals: StageSignals, geometry: StageGeometry, params: StageParams) -> dict[str, Any]:
    """Steps, flags, cause and measures by name; for a body without symmetry and signals that are finite."""
    s, p = signals, params
    at = geometry.phases.index
    insert, release = at(geometry.insert_phase), at("RELEASE")
    goal, entrance = rotation(geometry.goal_wxyz), np.asarray(geometry.T_world_entrance, float)
    names = "acquired lifted reoriented pre_insert inserted released settled"
    events = "lift transfer insert release touched let_go dropped slipped jammed"
    out: dict[str, Any] = dict.fromkeys(f"{names} {events}".split(), -1)
    out |= {"drop_phase": -1, "depth_max_m": 0.0, "receptacle_peak_n": 0.0, "angle_before_insert_rad": np.nan}
    out |= {"success": False, "success_once": False, "still_at_end": False}
    low = open_n = quiet = pressed = 0
    start_z = None
    R, hand = rotation(s.T_world_object[:, :4]), rotation(s.T_world_hand[:, :4])
    x = np.asarray(s.T_world_object[:, 4:], float)
    angles = (goal.inv() * R).magnitude()
    in_entrance = rotation(entrance[:4]).inv().apply(x + R.apply(geometry.point_m) - entrance[4:])
    in_hand = hand.inv() * R, hand.inv().apply(x - s.T_world_hand[:, 4:])
    moved_m = moved_rad = np.zeros(len(x))
    misaligned = end = None

    def note(name: str, t: int, holds: Any = True) -> None:
        if holds and out[name] < 0:
            out[name] = t

    for t in range(len(s.valid)):
        if not s.valid[t]:
            low = open_n = quiet = pressed = 0
            continue
        phase, z, angle, (depth, *across) = int(s.phase[t]), x[t, 2], angles[t], in_entrance[t]
        force, push = float(np.sum(s.finger_n[t])), float(s.receptacle_n[t])
        start_z = z if start_z is None else start_z
        within = all(abs(a) <= h for a, h in zip(across, geometry.half_section_m, strict=True))
        inside = within and p.insert_depth_m <= depth <= geometry.interior_depth_m
        still = np.linalg.norm(s.linear_m_s[t]) < p.settle_m_s and np.linalg.norm(s.angular_rad_s[t]) < p.settle_rad_s

        for name, index in (
            ("lift", at("LIFT")),
            ("transfer", at("TRANSFER")),
            ("insert", insert),
            ("release", release),
        ):
            note(name, t, phase >= index)
        if out["insert"] == t:
            misaligned = angle > p.final_rad or not within
        note("touched", t, push > p.touch_n)

        thumb, *others = s.finger_n[t]
        note("acquired", t, thumb > p.grip_n and max(others) > p.grip_n and z - start_z >= p.rise_m)
        acquired = out["acquired"] >= 0
        held = acquired and force > p.hold_n
        note("lifted", t, held and z >= geometry.lift_z_m)
        note("reoriented", t, held and phase < insert and angle < p.oriented_rad)
        close = np.linalg.norm(x[t] - geometry.pre_insert_m) < p.near_m
        note("pre_insert", t, held and close and angle < p.oriented_rad)
        if held and phase < insert:
            out["angle_before_insert_rad"] = np.fmin(out["angle_before_insert_rad"], angle)

        note("inserted", t, acquired and inside)
        low = low + 1 if out["inserted"] >= 0 and force < p.hold_n else 0
        note("released", t, low >= p.release_steps)
        quiet = quiet + 1 if out["released"] >= 0 and inside and still else 0
        note("settled", t, quiet >= p.settle_steps)

        yet = acquired and phase < release and out["inserted"] < 0
        open_n = open_n + 1 if yet and force <= p.hold_n else 0
        if open_n >= p.drop_steps and out["dropped"] < 0:
            out["dropped"], out["let_go"] = t, t - int(p.drop_steps) + 1
            out["drop_phase"] = int(s.phase[out["let_go"]])
        if out["acquired"] == t:
            turned, at_grasp = in_hand
            moved_m = np.linalg.norm(at_grasp - at_grasp[t], axis=1)
            moved_rad = (turned[t].inv() * turned).magnitude()
        slip = phase < release and (moved_m[t] > p.slip_m or moved_rad[t] > p.slip_rad)
        note("slipped", t, slip)
        pressed = pressed + 1 if yet and phase >= insert and push > p.jam_n else 0
        by_contact = 0 <= out["touched"] <= out["slipped"]
        note("jammed", t, pressed >= p.jam_steps or (yet and slip and by_contact))

        if acquired and within:
            out["depth_max_m"] = max(out["depth_max_m"], depth)
        out["depth_final_m"] = max(depth, 0.0) if acquired and within else 0.0
        out["receptacle_peak_n"] = max(out["receptacle_peak_n"], push)
        out["angle_final_rad"] = angle
        good = out["settled"] >= 0 and inside and angle <= p.final_rad
        out["success"], out["success_once"] = good, out["success_once"] or good
        out["still_at_end"] = good and still and force < p.hold_n
        end = inside
    out["cause"] = int(cause(out, inside_at_end=bool(end), misaligned=bool(misaligned)))
    return out


def cause(out: dict[str, Any], *, inside_at_end: bool, misaligned: bool) -> Cause:
    """The tree of the causes."""
    if out["success"]:
        return Cause.SUCCESS
    if out["acquired"] < 0:
        return Cause.NOT_ACQUIRED
    if out["inserted"] < 0:
        jam = out["jammed"] >= 0 and out["pre_insert"] >= 0
        if out["dropped"] >= 0 and (not jam or out["let_go"] <= out["jammed"]):
            return Cause.DROPPED
        if jam:
            return Cause.JAMMED
        if out["pre_insert"] < 0:
            return Cause.NEVER_PRE_INSERT
        if out["slipped"] >= 0:
            return Cause.SLIPPED
        return Cause.MISALIGNED if misaligned else Cause.NOT_INSERTED
    if out["released"] < 0:
        return Cause.NOT_RELEASED
    if not inside_at_end:
        return Cause.LEFT_BOX
    return Cause.NOT_SETTLED if out["settled"] < 0 else Cause.TERMINAL_ORIENTATION
