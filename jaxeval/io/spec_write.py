"""Task specs written as YAML that :func:`jaxeval.io.spec.load_spec` reads back equal, in the form people edit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxeval.io.errors import InputError
from jaxeval.io.spec_stages import stages_to_dict
from jaxeval.types import Body, Predicate, Shape, Symmetry, TaskSpec


class OneLine(dict[str, Any]):
    """A table that is written on one line."""


def spec_to_dict(spec: TaskSpec) -> dict[str, Any]:
    """Plain data of a spec, for :func:`jaxeval.io.spec.spec_from_dict`; what is at its default is left out."""
    out: dict[str, Any] = {"name": spec.name}
    if spec.instruction:
        out["instruction"] = spec.instruction
    if spec.simulators:
        out["simulators"] = list(spec.simulators)
    out["bodies"] = {b.name: OneLine(_body(b)) for b in spec.bodies}
    out |= {"support": spec.support, "gripper": spec.gripper}
    optional = {
        "manipulated": list(spec.manipulated),
        "reference": spec.reference,
        "frames": OneLine(spec.frames),
        "ignored": list(spec.ignored),
    }
    out |= {key: value for key, value in optional.items() if value}
    out["sub_tasks"] = [
        {"name": s.name, **({"means": s.means} if s.means else {}), "until": [OneLine(_predicate(u)) for u in s.until]}
        for s in spec.sub_tasks
    ]
    gate: dict[str, Any] = {"use_success_flag": spec.use_success_flag}
    out["gate"] = OneLine(gate if spec.z_term is None else {"z_term": spec.z_term, **gate})
    if spec.stages is not None:
        stages = stages_to_dict(spec.stages)
        out["stages"] = {key: OneLine(value) if isinstance(value, dict) else value for key, value in stages.items()}
    return out


def write_spec(spec: TaskSpec, path: str | Path, *, notes: tuple[str, ...] = ()) -> Path:
    """Write a spec as YAML; ``notes`` become comments above it. InputError where the file cannot be written."""
    import yaml

    class Indented(yaml.SafeDumper):
        """Lists indented below their key; repeated values written out."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def one_line(dumper: yaml.SafeDumper, table: OneLine) -> yaml.Node:
        return dumper.represent_mapping("tag:yaml.org,2002:map", table, flow_style=True)

    def numbers_in_line(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
        flat = not any(isinstance(x, dict) for x in items)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flat)

    Indented.add_representer(OneLine, one_line)
    Indented.add_representer(list, numbers_in_line)
    path = Path(path)
    text = yaml.dump(spec_to_dict(spec), Dumper=Indented, sort_keys=False, allow_unicode=True, width=1_000)
    head = "".join(f"# {line}\n" for note in notes for line in note.splitlines())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); expected a folder that may be written to; give another path"
        ) from error
    return path


def _body(body: Body) -> dict[str, Any]:
    out: dict[str, Any] = {"shape": _shape(body.shape)} if body.frame_of is None else {"frame_of": body.frame_of}
    if body.symmetry != Symmetry():
        out["symmetry"] = _symmetry(body.symmetry)
    return out


def _shape(shape: Shape) -> dict[str, Any]:
    x, _, z = shape.size_m
    if shape.kind == "sphere":
        return {"kind": "sphere", "radius_m": x}
    if shape.kind == "cylinder":
        return {"kind": "cylinder", "radius_m": x, "half_length_m": z}
    if shape.kind == "mesh":
        return {
            "kind": "mesh",
            "vertices_m": [list(v) for v in shape.vertices_m],
            "faces": [list(f) for f in shape.faces],
        }
    return {"kind": "box", "half_size_m": list(shape.size_m)}


def _symmetry(symmetry: Symmetry) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": symmetry.kind, "axis": list(symmetry.axis)}
    if symmetry.kind == "discrete":
        out["copies_wxyz"] = [list(q) for q in symmetry.copies_wxyz]
    return out


def _predicate(u: Predicate) -> dict[str, Any]:
    if u.kind == "joint_past":
        return {"kind": u.kind, "joint": u.body, "fraction": u.value, "range": list(u.offset_m[:2])}
    out: dict[str, Any] = {"kind": u.kind}
    if u.body:
        out["body"] = u.body
    if u.other:
        out["other"] = u.other
    if u.axes != "xyz":
        out["axes"] = u.axes
    if any(u.offset_m):
        out["offset_m"] = list(u.offset_m)
    out["value_m"] = u.value
    if u.window_s:
        out["window_s"] = u.window_s
    return out
