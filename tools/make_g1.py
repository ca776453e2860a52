"""Make `jaxeval/sim/mujoco/embodiments/g1.xml`:
a Unitree G1 on a fixed pelvis, its waist and right arm, with a hand of ours.

    python tools/make_g1.py SITE_PACKAGES     # a folder with example-robot-data installed

Taken from its URDF (BSD-3-Clause): joint origins, axes and limits of waist and right arm, masses and inertias of
everything above the pelvis. Head and left arm are one rigid lump with the torso, the left arm hanging. Rotor inertias
are Unitree's figures. No mesh is read: shapes are boxes and capsules of ours; those of legs, torso, head and left arm
are there to be seen only.

The hand is not a copy of any product: five fingers of human size, six driven joints, five that follow by a ratio.
Its frame stands where the URDF mounts its rubber hand: x along the fingers, y out of the palm, z to the thumb's side.
"""

# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportReturnType=false
from __future__ import annotations

import hashlib
import sys
from importlib.metadata import distributions
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
from scipy.spatial.transform import Rotation

URDF = "cmeel.prefix/share/example-robot-data/robots/g1_description/urdf/g1_29dof_rev_1_0.urdf"
OUT = Path(__file__).resolve().parent.parent / "jaxeval" / "sim" / "embodiments" / "g1.xml"
CHAIN = ["waist_yaw", "waist_roll", "waist_pitch", "right_shoulder_pitch", "right_shoulder_roll", "right_shoulder_yaw",
         "right_elbow", "right_wrist_roll", "right_wrist_pitch", "right_wrist_yaw"]  # fmt: skip
HANGING = {"left_shoulder_pitch_joint": 0.2, "left_shoulder_roll_joint": 0.2, "left_elbow_joint": 1.28}
"""The left arm's posture, radians; its other joints and the legs' are at zero."""


def geared(rotors: list[float], gears: list[float]) -> float:
    """Rotor inertias (kg m2) of a two-stage planetary drive as the joint feels them: each by the gearing after it."""
    return sum(inertia * np.prod(gears[i:]) ** 2 for i, inertia in enumerate(rotors))


# Rotor inertias and gear stages of Unitree's drives, as mjlab (BSD-3-Clause) quotes them
N5020 = geared([0.139e-4, 0.017e-4, 0.169e-4], [1 + 46 / 18, 1 + 56 / 16])
N7520 = geared([0.489e-4, 0.098e-4, 0.533e-4], [4.5, 1 + 48 / 22])
N4010 = geared([0.068e-4, 0.0, 0.0], [5, 5])
ARMATURE = dict(zip(CHAIN, [N7520, 2 * N5020, 2 * N5020, *[N5020] * 5, *[N4010] * 2], strict=True))
JOINT_DAMPING = 0.1  # N m s/rad, friction of a geared drive; the URDF has none

# The hand, metres, kilograms, radians; of phalanges the first, then the last
PALM = {"from": 0.010, "to": 0.088, "half_width": 0.037, "half_thickness": 0.012, "mass": 0.30}
FINGERS = {
    # name: along z, lengths from hinge to hinge and from hinge to the centre of the tip
    "index": (0.02775, 0.045, 0.040),
    "middle": (0.00925, 0.048, 0.042),
    "ring": (-0.00925, 0.045, 0.040),
    "pinky": (-0.02775, 0.041, 0.037),
}
FINGER = {
    "knuckle_x": 0.092,
    "radii": (0.0088, 0.0085),
    "masses": (0.020, 0.012),
    "range": (-0.1, 1.6),
    "follow": 0.8,
}
THUMB = {
    "base": (0.028, 0.004, 0.032),  # at roll 0 the thumb stands off the palm's edge, leaning back by ...
    "back": np.radians(10),
    "base_mass": 0.020,
    "lengths": (0.074, 0.038),
    "radii": (0.0105, 0.0095),
    "masses": (0.035, 0.018),
    "roll": (0.0, 2.1),
    "pitch": (-0.2, 1.2),
    "follow": 0.8,
}
BEND, TCP_AT = np.radians(60), (0.119, 0.076, 0.0)
"""The hand's frame, where pads bent so far meet a 55 mm wide body: z the way they point, y from fingers to thumb."""
HAND_ARMATURE, HAND_DAMPING = 0.001, 0.02  # kg m2 as published; N m s/rad
PAD_FRICTION = "0.5 0.005 0.0001"  # sliding as published; torsional: a contact patch of about a centimetre

COLOURS = {"shell": "0.86 0.87 0.89 1", "dark": "0.17 0.18 0.20 1", "pad": "0.25 0.27 0.30 1"}


TENSOR = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")


class Links:
    """The URDF as a tree: inertias by link, fixed and moving joints, poses at a posture."""

    def __init__(self, path: Path) -> None:
        root = ET.parse(path).getroot()
        self.links = {e.attrib["name"]: e for e in root.findall("link")}
        self.joints = {e.attrib["name"]: e for e in root.findall("joint")}
        self.above = {j.find("child").attrib["link"]: j for j in self.joints.values()}

    def below(self, link: str) -> list[str]:
        """Links hanging on a link, the link first."""
        kids = [c for c, j in self.above.items() if j.find("parent").attrib["link"] == link]
        return [link, *[k for kid in kids for k in self.below(kid)]]

    def pose(self, link: str, base: str) -> np.ndarray:
        """T_base_link at the posture HANGING."""
        if link == base:
            return np.eye(4)
        joint = self.above[link]
        T, q = origin(joint), HANGING.get(joint.attrib["name"], 0.0)
        if q:
            T[:3, :3] = T[:3, :3] @ Rotation.from_rotvec(q * vector(joint.find("axis"), "xyz")).as_matrix()
        return self.pose(joint.find("parent").attrib["link"], base) @ T

    def inertia(self, links: list[str], base: str) -> tuple[float, np.ndarray, np.ndarray]:
        """Mass, centre of mass and inertia about it of rigid links together, in the axes of ``base``."""
        parts = []
        for link in links:
            if (told := self.links[link].find("inertial")) is None:
                continue
            T, m = self.pose(link, base) @ origin(told), float(told.find("mass").attrib["value"])
            xx, xy, xz, yy, yz, zz = (float(told.find("inertia").attrib[k]) for k in TENSOR)
            I = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            parts.append((m, T[:3, 3], T[:3, :3] @ I @ T[:3, :3].T))
        mass = sum(m for m, _, _ in parts)
        centre = sum(m * c for m, c, _ in parts) / mass
        about = sum(I + m * spread(c - centre) for m, c, I in parts)
        return mass, centre, about


def origin(element: ET.Element) -> np.ndarray:
    """The pose of an element's <origin>."""
    T, at = np.eye(4), element.find("origin")
    if at is not None:
        T[:3, 3] = vector(at, "xyz")
        T[:3, :3] = Rotation.from_euler("xyz", vector(at, "rpy")).as_matrix()
    return T


def spread(x: np.ndarray) -> np.ndarray:
    """Inertia of a unit mass at ``x`` about the origin."""
    return x @ x * np.eye(3) - np.outer(x, x)


def vector(element: ET.Element | None, key: str) -> np.ndarray:
    return np.array([float(x) for x in (element.attrib.get(key, "0 0 0") if element is not None else "0 0 0").split()])


def text(*values: float) -> str:
    return " ".join(f"{x:.9g}" for x in np.round(np.hstack(values), 10) + 0.0)


def placed(T: np.ndarray) -> dict[str, str]:
    """Position and quaternion of a body, the quaternion only if turned."""
    x, y, z, w = Rotation.from_matrix(T[:3, :3]).as_quat(canonical=True)
    turned = {} if w > 1 - 1e-12 else {"quat": text(w, x, y, z)}
    return {"pos": text(T[:3, 3]), **turned}


def with_inertia(body: ET.Element, mass: float, centre: np.ndarray, I: np.ndarray) -> None:
    ET.SubElement(body, "inertial", pos=text(centre), mass=text(mass),
                  fullinertia=text(I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2]))  # fmt: skip


def capsule(body: ET.Element, kind: str, a: np.ndarray, b: np.ndarray, radius: float, **more: str) -> None:
    ET.SubElement(body, "geom", {"class": kind, "type": "capsule", "fromto": text(a, b), "size": text(radius), **more})


def box(body: ET.Element, kind: str, centre: np.ndarray, half: np.ndarray, **more: str) -> None:
    ET.SubElement(body, "geom", {"class": kind, "type": "box", "pos": text(centre), "size": text(half), **more})


def arm(links: Links, pelvis: ET.Element) -> ET.Element:
    """The chain of bodies from the pelvis to the right wrist; returns the last."""
    body = pelvis
    for name in CHAIN:
        joint = links.joints[f"{name}_joint"]
        link = joint.find("child").attrib["link"]
        body = ET.SubElement(body, "body", name=link, **placed(origin(joint)))
        limit = joint.find("limit").attrib
        ET.SubElement(body, "joint", name=f"{name}_joint", axis=joint.find("axis").attrib["xyz"],
                      range=f"{limit['lower']} {limit['upper']}", armature=text(ARMATURE[name]),
                      damping=text(JOINT_DAMPING))  # fmt: skip
        rigid = [link]
        if link == "torso_link":  # with head and left arm
            rigid = [k for k in links.below(link) if not k.startswith("right_")]
        with_inertia(body, *links.inertia(rigid, link))
        if link == "torso_link":
            torso_looks(links, body)
    return body


def torso_looks(links: Links, torso: ET.Element) -> None:
    box(torso, "look", np.array([0.0, 0, 0.17]), np.array([0.065, 0.075, 0.10]), rgba=COLOURS["shell"])
    capsule(torso, "look", np.array([0.0, -0.075, 0.25]), np.array([0.0, 0.075, 0.25]), 0.055, rgba=COLOURS["shell"])
    capsule(torso, "look", np.array([0.005, 0, 0.36]), np.array([0.005, 0, 0.44]), 0.055, rgba=COLOURS["dark"])
    names = [
        "left_shoulder_roll_link",
        "left_shoulder_yaw_link",
        "left_elbow_link",
        "left_wrist_pitch_link",
        "left_rubber_hand",
    ]
    at = [links.pose(n, "torso_link")[:3, 3] for n in names]
    at.append((links.pose("left_rubber_hand", "torso_link") @ [0.10, 0, 0, 1])[:3])
    for a, b, r in zip(at[:-1], at[1:], [0.042, 0.038, 0.034, 0.03, 0.032], strict=True):
        capsule(torso, "look", a, b, r, rgba=COLOURS["dark"] if r == 0.032 else COLOURS["shell"])


def pelvis_looks(links: Links, pelvis: ET.Element) -> None:
    capsule(pelvis, "look", np.array([0, -0.05, -0.05]), np.array([0, 0.05, -0.05]), 0.06, rgba=COLOURS["dark"])
    for side in ("left", "right"):
        names = [f"{side}_hip_roll_link", f"{side}_hip_yaw_link", f"{side}_knee_link", f"{side}_ankle_roll_link"]
        hip, thigh, knee, ankle = (links.pose(n, "pelvis")[:3, 3] for n in names)
        for a, b, r in ((hip, thigh, 0.055), (thigh, knee, 0.05), (knee, ankle, 0.04)):
            capsule(pelvis, "look", a, b, r, rgba=COLOURS["shell"])
        box(pelvis, "look", ankle + np.array([0.035, 0, -0.02]), np.array([0.09, 0.03, 0.012]), rgba=COLOURS["dark"])


def arm_looks(links: Links, pelvis: ET.Element) -> None:
    """Upper arm for the eye; forearm and wrist also collide."""
    bodies = {b.attrib["name"]: b for b in pelvis.iter("body")}

    def between(link: str, kid: str, radius: float, kind: str = "look") -> None:
        end = links.pose(kid, link)[:3, 3]
        capsule(bodies[link], kind, np.zeros(3), end, radius, mass="0", rgba=COLOURS["shell"])

    between("right_shoulder_pitch_link", "right_shoulder_roll_link", 0.045)
    between("right_shoulder_roll_link", "right_shoulder_yaw_link", 0.042)
    between("right_shoulder_yaw_link", "right_elbow_link", 0.038)
    between("right_elbow_link", "right_wrist_roll_link", 0.034, kind="touch")
    between("right_wrist_roll_link", "right_wrist_pitch_link", 0.030)
    between("right_wrist_pitch_link", "right_wrist_yaw_link", 0.030, kind="touch")
    between("right_wrist_yaw_link", "right_rubber_hand", 0.026)


def hand(links: Links, wrist: ET.Element, equality: ET.Element) -> None:
    """Palm, thumb, four fingers, and the site midway between the pads of the closed hand."""
    palm = ET.SubElement(wrist, "body", name="right_hand", **placed(origin(links.joints["right_hand_palm_joint"])))
    middle, half_length = (PALM["from"] + PALM["to"]) / 2, (PALM["to"] - PALM["from"]) / 2
    half = np.array([half_length, PALM["half_thickness"], PALM["half_width"]])
    box(palm, "touch", np.array([middle, 0, 0]), half, mass=text(PALM["mass"]), rgba=COLOURS["dark"])

    out = np.array([-np.sin(THUMB["back"]), 0, np.cos(THUMB["back"])])
    base = ET.SubElement(palm, "body", name="thumb_base", pos=text(THUMB["base"]))
    hinge(base, "thumb_cmc_roll", "-1 0 0", THUMB["roll"])
    capsule(base, "look", np.zeros(3), out * 0.012, 0.012, mass=text(THUMB["base_mass"]), rgba=COLOURS["dark"])
    digit(base, equality, "thumb", "cmc_pitch", "0 1 0", np.zeros(3), out, THUMB["pitch"], THUMB)
    for name, (z, *lengths) in FINGERS.items():
        at, told = np.array([FINGER["knuckle_x"], 0, z]), {**FINGER, "lengths": lengths}
        digit(palm, equality, name, "mcp_pitch", "0 0 1", at, np.array([1.0, 0, 0]), FINGER["range"], told)

    way, across = np.array([np.cos(BEND), np.sin(BEND), 0]), np.array([-np.sin(BEND), np.cos(BEND), 0])
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = np.stack([np.cross(across, way), across, way], axis=1), TCP_AT
    ET.SubElement(palm, "site", name="tcp", size="0.004", rgba="0.9 0.2 0.2 1", group="4", **placed(T))


def digit(parent: ET.Element, equality: ET.Element, name: str, joint: str, axis: str, at: np.ndarray,
          way: np.ndarray, limits: tuple[float, float], told: dict) -> None:  # fmt: skip
    """Two phalanges along ``way``: the first on its driven hinge, the last on one that follows by a ratio."""
    driver, follower, ratio = f"{name}_{joint}", f"{name}_dip", told["follow"]
    parts = zip(("proximal", "distal"), (driver, follower), (1.0, ratio), ("dark", "pad"), strict=True)
    for i, (part, hinged, share, colour) in enumerate(parts):
        parent = ET.SubElement(parent, "body", name=f"{name}_{part}", pos=text(at))
        hinge(parent, hinged, axis, (share * limits[0], share * limits[1]))
        at = way * told["lengths"][i]
        mass = text(told["masses"][i])
        capsule(parent, "touch", np.zeros(3), at, told["radii"][i], mass=mass, rgba=COLOURS[colour])
    polynomial = f"0 {ratio:g} 0 0 0"
    ET.SubElement(equality, "joint", joint1=follower, joint2=driver, polycoef=polynomial, solref="0.01 1")


def hinge(body: ET.Element, joint: str, axis: str, limits: tuple[float, float]) -> None:
    ET.SubElement(body, "joint", {"class": "finger", "name": joint, "axis": axis, "range": text(*limits)})


def main(site: Path) -> None:
    links = Links(site / URDF)
    version = next(
        d.version
        for d in distributions(path=[str(site)])
        if d.metadata["Name"].replace("-", "_") == "example_robot_data"
    )
    digest = hashlib.sha256((site / URDF).read_bytes()).hexdigest()[:12]
    root = ET.Element("mujoco", model="g1")
    ET.SubElement(root, "compiler", angle="radian", autolimits="true")
    default = ET.SubElement(root, "default")
    for kind, told in {
        "look": {"geom": {"contype": "0", "conaffinity": "0", "group": "1", "mass": "0"}},
        "touch": {"geom": {"contype": "2", "conaffinity": "5", "group": "0", "friction": PAD_FRICTION, "condim": "4"}},
        "finger": {"joint": {"armature": text(HAND_ARMATURE), "damping": text(HAND_DAMPING)}},
    }.items():
        element = ET.SubElement(default, "default", {"class": kind})
        for tag, attributes in told.items():
            ET.SubElement(element, tag, attributes)
    world = ET.SubElement(root, "worldbody")
    pelvis = ET.SubElement(world, "body", name="pelvis")
    equality = ET.SubElement(root, "equality")
    pelvis_looks(links, pelvis)
    wrist = arm(links, pelvis)
    arm_looks(links, pelvis)
    hand(links, wrist, equality)
    ET.indent(root, " ")
    head = (
        "<!-- Made by tools/make_g1.py: change that, not this. Waist, right arm, masses and inertias:\n"
        f"     example_robot_data {version}, {URDF.split('/robots/')[-1]} (sha256 {digest}),\n"
        "     BSD-3-Clause, Copyright Unitree Robotics.\n"
        "     Hand and all shapes: this project's own. -->\n"
    )
    OUT.write_text(head + ET.tostring(root, encoding="unicode") + "\n")
    print(OUT)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
