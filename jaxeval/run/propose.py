"""`jaxeval propose`: a task spec from demonstrations, found in them or written by a language model, to be edited."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from jaxeval.io.errors import InputError
from jaxeval.io.source import Source
from jaxeval.io.spec_write import write_spec
from jaxeval.run.fit import align_to_spec, joints_n, quick_jit, spec_bodies
from jaxeval.segment.change_points import DEFAULTS, ChangePointParams
from jaxeval.segment.proposed_spec import Proposal, propose_spec
from jaxeval.segment.spec_from_model import ask_for_spec
from jaxeval.types import Episode, Shape, TaskSpec, pad_episodes

WAYS = ("change_points", "language_model")


@dataclasses.dataclass(frozen=True)
class Proposed:
    """The spec that was written, and how it fits the demonstrations.

    ``ends``, ``reached`` [K, P]: frame at which each sub-task ends in each demonstration used, and whether it does.
    ``proposal``: what was found on the way, if the spec comes from change-points.
    """

    spec: TaskSpec
    path: Path
    by: str
    used: tuple[str, ...]
    ends: Int[np.ndarray, "K P"]
    reached: Bool[np.ndarray, "K P"]
    proposal: Proposal | None
    left_out: tuple[tuple[str, str], ...]  # (episode, why)
    notes: tuple[str, ...]

    @property
    def complete_n(self) -> int:
        """Demonstrations that the spec segments completely."""
        return int(self.reached.all(axis=1).sum())


def propose(
    source: Source,
    *,
    out: str | Path,
    by: str = "change_points",
    name: str | None = None,
    instruction: str = "",
    gripper: str = "tcp",
    support: str = "table",
    shapes: Mapping[str, Shape] | None = None,
    demonstrations_n: int | None = None,
    endpoint: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    timeout_s: float = 60.0,
    attempts_n: int = 3,
    overwrite: bool = False,
    params: ChangePointParams = DEFAULTS,
) -> Proposed:
    """Propose a task spec from the successful demonstrations of a source and write it to ``out`` (YAML).

    ``by``: change_points, or language_model (needs ``instruction``, ``endpoint`` and ``model``). ``name`` is the
    source's task if not given, so that `fit` takes the spec as it is. ``params`` are the thresholds of change-points.
    The spec is then tried on the demonstrations. InputError names the fault; nothing is written then, and a file that
    is there is kept unless ``overwrite``.
    """
    path = Path(out)
    if by not in WAYS:
        raise InputError(f"by is '{by}'; expected one of {', '.join(WAYS)}; correct it")
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"{path}: not a YAML path; expected one that ends in .yaml; rename it")
    if path.exists() and not overwrite:
        raise InputError(
            f"{path}: exists, and may have been edited; expected a new path; give another or overwrite=true"
        )
    if by == "language_model" and not (instruction and endpoint and model):
        raise InputError(
            "instruction, endpoint or model is missing; expected all three to ask a language model; give them"
        )
    used, left_out = _demonstrations(source, demonstrations_n)
    name = name or source.task or "task"
    if by == "change_points":
        proposal = propose_spec(
            used, name=name, gripper=gripper, support=support, shapes=shapes, instruction=instruction, params=params
        )
        spec, notes = proposal.spec, list(proposal.notes)
    else:
        proposal = None
        spec = ask_for_spec(
            instruction,
            _described(used, gripper, support),
            endpoint=str(endpoint),
            model=str(model),
            api_key=api_key,
            demonstrations_summary=_summary(used),
            timeout_s=timeout_s,
            attempts_n=attempts_n,
        )
        spec = dataclasses.replace(spec, name=name, instruction=spec.instruction or instruction)
        notes = [f"the sub-tasks and thresholds are those of language model '{model}': look through them"]
    ends, reached = _segmented(used, spec)
    whole = int(reached.all(axis=1).sum())
    head = [f"Proposed by {by} from {len(used)} demonstrations; it segments {whole} of them completely.", *notes]
    write_spec(spec, path, notes=tuple(head))
    return Proposed(
        spec, path, by, tuple(e.episode_id for e in used), ends, reached, proposal, tuple(left_out), tuple(notes)
    )


def _demonstrations(source: Source, demonstrations_n: int | None) -> tuple[list[Episode], list[tuple[str, str]]]:
    """Prepared demonstrations that count, the first ``demonstrations_n`` of them, and those that do not, with why."""
    good: list[Episode] = []
    left_out: list[tuple[str, str]] = []
    for e in source.iter_episodes():
        errors = [f for f in e.check() if f.severity == "error"]
        if errors:
            left_out.append((e.episode_id, str(errors[0])))
        elif e.success_at_end is False:
            left_out.append((e.episode_id, "not successful"))
        elif demonstrations_n is None or len(good) < demonstrations_n:
            good.append(e.prepared())
    wanted = 2 if demonstrations_n is None else demonstrations_n
    if len(good) < max(wanted, 2):
        why = f" (left out: {'; '.join(f'{e}: {w}' for e, w in left_out[:2])})" if left_out else ""
        raise InputError(
            f"{source.parts[0].path}: {len(good)} demonstrations can be used{why}; expected at least {max(wanted, 2)}; "
            "give more"
        )
    return good, left_out


_align = quick_jit(partial(align_to_spec, bins_n=1), static_argnames=("spec",))


def _segmented(episodes: Sequence[Episode], spec: TaskSpec) -> tuple[np.ndarray, np.ndarray]:
    """Where the spec's sub-tasks end in each demonstration, by the same alignment as `fit` and `score` use."""
    bodies = spec_bodies(spec, episodes[0].bodies)
    aligned = _align(
        pad_episodes([e.with_bodies(bodies) for e in episodes], joints_n=joints_n(episodes, spec)), spec=spec
    )
    return np.asarray(aligned.ends), np.asarray(aligned.reached)


# ------------------------------------------------------------------------------- what a language model is told


def _described(episodes: Sequence[Episode], gripper: str, support: str) -> dict[str, str]:
    """One line a body: its part, size and way."""
    out = {}
    for i, name in enumerate(episodes[0].bodies):
        words = {gripper: "the gripper's centre", support: "what things rest on"}.get(name, "")
        sizes = [
            e.half_size_m[i] for e in episodes if e.half_size_m is not None and np.isfinite(e.half_size_m[i]).all()
        ]
        size = f"half size {np.round(np.mean(sizes, axis=0), 4).tolist()} m" if sizes else "size unknown"
        p = [e.poses[e.valid_of(name), i, 4:] for e in episodes]
        way = float(np.median([np.linalg.norm(x - x[:1], axis=-1).max(initial=0.0) for x in p]))
        out[name] = ", ".join(filter(None, (words, size, f"gets {way:.3f} m from its start")))
    return out


def _summary(episodes: Sequence[Episode]) -> str:
    """Durations, the gripper's width, and the distances between bodies at the start and the end."""
    names = episodes[0].bodies
    lines = [f"{len(episodes)} demonstrations, median duration {np.median([e.time_s[-1] for e in episodes]):.1f} s."]
    widths = [e.gripper_width_m[e.frame_valid] for e in episodes if e.gripper_width_m is not None]
    if widths:
        low, high = np.median([w.min() for w in widths]), np.median([w.max() for w in widths])
        lines.append(f"The gripper's width lies between {low:.4f} and {high:.4f} m.")
    for i, a in enumerate(names):
        for j in range(i + 1, len(names)):
            both = [e.poses[e.valid_of(a, names[j])][:, [i, j], 4:] for e in episodes]
            ends = [np.linalg.norm(p[[0, -1], 0] - p[[0, -1], 1], axis=-1) for p in both if len(p)]
            start, end = np.median(np.array(ends or [[np.nan, np.nan]]), axis=0)
            lines.append(f"{a} and {names[j]}: {start:.3f} m apart at the start, {end:.3f} m at the end.")
    return "\n".join(lines)


def table(made: Proposed) -> str:
    """Every sub-task, how many demonstrations reach its end, and its median end in seconds, as text."""
    n = len(made.used)
    width = max(len(s.name) for s in made.spec.sub_tasks) + 2
    head = f"{'sub-task':{width}}{'reached':>10}{'median end':>12}  until"
    rows = []
    for p, s in enumerate(made.spec.sub_tasks):
        reached = made.reached[:, p]
        end = f"frame {np.median(made.ends[reached, p]):.0f}" if reached.any() else "never"
        rows.append(f"{s.name:{width}}{f'{reached.sum()}/{n}':>10}{end:>12}  {' and '.join(u.kind for u in s.until)}")
    last = f"{made.complete_n} of {n} demonstrations are segmented completely"
    return "\n".join([f"task {made.spec.name}, by {made.by}", head, *rows, last])
