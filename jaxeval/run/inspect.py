"""`jaxeval inspect`: what a file or folder holds, what is doubtful about it, and what each metric would lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from jaxeval.align import missing_bodies, needed_joints
from jaxeval.io.cleaning import accounts
from jaxeval.io.source import Part, Source, reader_of
from jaxeval.io.spec import known_spec
from jaxeval.run.scorers.grasp import CONTACTS
from jaxeval.run.scorers.kinematic import robot_with
from jaxeval.run.scorers.smoothness import GRIPPER
from jaxeval.run.scorers.stages import SIGNALS
from jaxeval.types import FINDINGS, Episode, Finding, TaskSpec

GAP_STEPS = 10


@dataclass(frozen=True)
class Inspection:
    """What one part of a source holds. ``missing`` says for each metric what it lacks, "" for nothing."""

    path: str
    format: str
    task: str
    episodes_n: int
    inspected_n: int
    frames_n: int
    duration_s: tuple[float, float]  # shortest, longest
    rate_hz: float | None  # one over the median step
    rate_is_even: bool
    gaps_n: int
    invalid_n: int
    lost_n: dict[str, int]  # body -> frames that exist and in which it was not seen
    extent_m: tuple[float, ...]  # of all positions, x y z
    bodies: tuple[str, ...]
    joint_names: tuple[str, ...]
    robot: str | None
    gripper_width: bool
    sub_task_labels: tuple[str, ...]
    groups: dict[str, int]
    success: dict[str, int]
    initial_conditions: int
    declared: str  # quaternion order, units and clock that the format fixes
    findings: tuple[Finding, ...]
    episode_findings: dict[str, int]
    mended: tuple[str, ...]  # a line a kind of change
    missing: dict[str, str]


def inspect(source: Source, *, episodes_n: int = 200, progress: bool = False) -> list[Inspection]:
    """One inspection a part; of each, at most ``episodes_n`` episodes are read frame by frame."""
    return [_inspect(part, episodes_n, progress) for part in source.parts]


def _inspect(part: Part, episodes_n: int, progress: bool) -> Inspection:
    table = Source([part], []).table()
    steps: list[np.ndarray] = []
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    gaps = invalid = read = 0
    durations: list[float] = []
    labels: dict[str, None] = {}
    lost: Counter[str] = Counter()
    signals: set[str] = set()
    width = joints = False
    for e in _some(part, episodes_n, progress):
        read += 1
        time_s, positions = e.time_s[e.frame_valid], e.poses[e.valid & e.frame_valid[:, None]][:, 4:]
        invalid += int((~e.frame_valid).sum())
        for body, n in zip(e.bodies, (e.frame_valid[:, None] & ~e.valid).sum(axis=0).tolist(), strict=True):
            lost[body] += n
        labels |= dict.fromkeys(e.sub_task_names)
        width |= e.gripper_width_m is not None
        joints |= e.joints is not None
        signals |= set(e.signals or ())
        if len(time_s):
            durations.append(float(time_s[-1] - time_s[0]))
        if len(positions):
            low, high = np.minimum(low, positions.min(axis=0)), np.maximum(high, positions.max(axis=0))
        if len(time_s) > 1:
            step = np.diff(time_s)
            steps.append(step)
            gaps += int((step > GAP_STEPS * np.median(step)).sum())
    step = np.concatenate(steps) if steps else np.zeros(0)
    positive = step[step > 0]
    typical = float(np.median(positive)) if positive.size else None
    even = typical is not None and bool(np.abs(step - typical).max() < 0.01 * typical)
    joint_names = part.joint_names if joints else ()
    robot = robot_with(joint_names)
    outcome = Counter("unknown" if s is None else "success" if s else "failure" for s in table["success_at_end"])
    reader = reader_of(part.path)
    found = Counter(code for codes in table["findings"] for code in codes or ())
    spec = known_spec(part.task)
    return Inspection(
        path=str(part.path),
        format=reader.name if reader else "?",
        task=part.task,
        episodes_n=part.n_episodes,
        inspected_n=read,
        frames_n=int(np.sum(table["length"])),
        duration_s=(min(durations, default=0.0), max(durations, default=0.0)),
        rate_hz=None if typical is None else 1 / typical,
        rate_is_even=even,
        gaps_n=gaps,
        invalid_n=invalid,
        lost_n={body: n for body, n in lost.items() if n},
        extent_m=tuple(float(x) for x in np.where(np.isfinite(high - low), high - low, 0.0)),
        bodies=part.bodies,
        joint_names=joint_names,
        robot=robot,
        gripper_width=width,
        sub_task_labels=tuple(labels),
        groups=dict(Counter(g or "-" for g in table["group"])),
        success=dict(outcome),
        initial_conditions=sum(i is not None for i in table["initial_condition_id"]),
        declared=reader.says if reader else "",
        findings=tuple(getattr(part, "findings", ())),
        episode_findings=dict(found),
        mended=tuple(accounts(table["mended"])),
        missing=_missing(part, spec, outcome, width, robot, found, signals, joint_names),
    )


def _some(part: Part, episodes_n: int, progress: bool) -> Iterator[Episode]:
    total = min(part.n_episodes, episodes_n)
    episodes = (e for _, e in zip(range(total), part.iter_episodes(), strict=False))
    if not progress or total < 20:
        return episodes
    from tqdm import tqdm

    return iter(tqdm(episodes, total=total, unit="episode", desc="reading", leave=False, disable=None))


def _missing(
    part: Part,
    spec: TaskSpec | None,
    outcome: Counter[str],
    width: bool,
    robot: str | None,
    found: Counter[str],
    signals: set[str],
    joint_names: tuple[str, ...],
) -> dict[str, str]:
    """What each metric lacks, in words; "" for nothing."""
    geometric: list[str] = []
    if len(part.bodies) < 2:
        geometric.append("the poses of at least two bodies")
    if spec is None:
        geometric.append(f"a task spec for '{part.task or 'unnamed'}' (spec=FILE.yaml)")
    elif absent := [b.name for b in spec.bodies if b.name not in part.bodies]:
        geometric.append(f"{', '.join(absent)} (their relations are left out)")
    if spec is not None:
        joints = [f"joint {joint} (sub-task {name} ends by it)" for joint, name in needed_joints(spec)
                if joint not in joint_names]  # fmt: skip
        geometric += joints
    if not width:
        geometric.append("the gripper's width (predicates on the gripper cannot hold)")
    if not outcome["success"]:
        geometric.append("a known success, to learn from" if outcome["unknown"] else "a success to learn from")
    moving = GRIPPER in part.bodies or len(part.bodies) == 1
    errors = sum(n for code, n in found.items() if FINDINGS.get(code, ("",))[0] == "error")
    smoothness = "" if moving else f"a body named {GRIPPER}, or smoothness.body=NAME of {', '.join(part.bodies)}"
    if errors and not smoothness:
        smoothness = (
            f"nothing, but {errors} episodes hold errors and get no numbers (convert with clean=true mends some)"
        )
    kinematic = ""
    if robot is None:
        kinematic = "joints of a known arm (kinematic.robot=NAME)"
        kinematic += " or kinematic.T_world_base with the gripper's poses" if moving else " and the gripper's poses"
    tracking = "their names, tracking.tracks={ESTIMATE: TRUTH}" if len(part.bodies) > 1 else "a second body, the truth"
    missing = {
        "geometric": ", ".join(geometric), "smoothness": smoothness, "kinematic": kinematic, "tracking": tracking,
    }  # fmt: skip
    if spec is not None and spec.stages is not None:
        for metric, wanted in (("stages", SIGNALS), ("grasp", CONTACTS)):
            missing[metric] = ", ".join(f"signal {s}" for s in wanted if s not in signals)
    else:
        missing["stages"] = _sub_tasks_missing(part, spec, width)
    return missing


def _sub_tasks_missing(part: Part, spec: TaskSpec | None, width: bool) -> str:
    """What the sub-tasks of a task are told from and was not recorded, in words; "" for nothing."""
    if spec is None:
        return f"a task spec for '{part.task or 'unnamed'}' (spec=FILE.yaml)"
    absent = dict.fromkeys(b for s in spec.sub_tasks for u in s.until for b in missing_bodies(u, spec, part.bodies))
    lacking = [f"the body {name}" for name in absent]
    lacking += [f"joint {joint}" for joint, _ in needed_joints(spec) if joint not in part.joint_names]
    if not width and any(u.kind.startswith("gripper_") for s in spec.sub_tasks for u in s.until):
        lacking.append("the gripper's width")
    return ", ".join(lacking)


def text(found: list[Inspection]) -> str:
    """Inspections for people."""
    return "\n\n".join(_text(i) for i in found)


def _text(i: Inspection) -> str:
    rate = "unknown" if i.rate_hz is None else f"{i.rate_hz:.4g} Hz, {'even' if i.rate_is_even else 'uneven'} steps"
    seen = "" if i.inspected_n == i.episodes_n else f" (first {i.inspected_n} read frame by frame)"
    outcome = ", ".join(f"{n} {what}" for what, n in sorted(i.success.items()))
    rows = [
        ("format", f"{i.format}: {i.declared}"),
        ("task", i.task or "not named by the file (convert with task_name=NAME)"),
        ("episodes", f"{i.episodes_n}, {i.frames_n} frames{seen}"),
        ("duration", f"{i.duration_s[0]:.3g} to {i.duration_s[1]:.3g} s"),
        ("rate", f"{rate}; {i.gaps_n} gaps, {i.invalid_n} invalid frames"),
        *([("not seen", ", ".join(f"{b} in {n} frames" for b, n in i.lost_n.items()))] if i.lost_n else []),
        ("bodies", ", ".join(i.bodies) or "none"),
        ("extent", " x ".join(f"{x:.3g}" for x in i.extent_m) + " m"),
        ("gripper width", "recorded" if i.gripper_width else "not recorded"),
        ("joints", f"{', '.join(i.joint_names)}" + (f" ({i.robot})" if i.robot else "") if i.joint_names else "none"),
        ("sub-task labels", ", ".join(i.sub_task_labels) or "none"),
        ("groups", ", ".join(f"{g} ({n})" for g, n in i.groups.items())),
        ("success at end", outcome),
        ("initial conditions", f"known for {i.initial_conditions} of {i.episodes_n}"),
    ]
    lines = [i.path, *(f"  {name:19}{value}" for name, value in rows), "  what each metric lacks"]
    lines += [f"    {name:17}{lacks or 'nothing'}" for name, lacks in i.missing.items()]
    if i.findings:
        lines += ["  noticed about the file", *(f"    {f.severity}: {f}" for f in i.findings)]
    if i.mended:
        lines += ["  changed before anything is measured", *(f"    {line}" for line in i.mended)]
    serious = {c: n for c, n in i.episode_findings.items() if c in FINDINGS and FINDINGS[c][0] != "info"}
    if serious:
        lines.append("  noticed about episodes")
        lines += [f"    {FINDINGS[c][0]}: {n} x {c}: {FINDINGS[c][1]}" for c, n in sorted(serious.items())]
    return "\n".join(lines)


def as_json(found: list[Inspection]) -> list[dict[str, Any]]:
    """Inspections for machines."""
    return [asdict(i) for i in found]
