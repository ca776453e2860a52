"""Make `jaxeval/data/robots/*.json` from packages that ship robot descriptions under permissive licences.

    python tools/make_robots.py SITE_PACKAGES     # a folder with mani_skill, example-robot-data and robosuite installed

Only kinematics are taken: joint origins, axes, limits. The source of each robot is written into its file.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.metadata import distributions
from pathlib import Path

from jaxeval.robots import load as L

EXAMPLE = "cmeel.prefix/share/example-robot-data/robots"
UR5E_RAD_S = {"shoulder_pan_joint": 3.14159265, "shoulder_lift_joint": 3.14159265, "elbow_joint": 3.14159265,
              "wrist_1_joint": 3.14159265, "wrist_2_joint": 3.14159265, "wrist_3_joint": 3.14159265}  # fmt: skip
"""Joint speeds of the UR5e, 180 degrees a second each: Universal Robots' data sheet. MJCF has no velocity limits."""
ROBOTS = {
    # name: (distribution, licence of the description, file, base link, tip link, gripper joints, velocities)
    "panda": ("mani_skill", "Apache-2.0", "mani_skill/assets/robots/panda/panda_v2.urdf", "panda_link0",
              "panda_hand_tcp", ("panda_finger_joint1", "panda_finger_joint2"), None),
    "fetch": ("mani_skill", "BSD-3-Clause", "mani_skill/assets/robots/fetch/fetch.urdf", "base_link",
              "gripper_link", ("r_gripper_finger_joint", "l_gripper_finger_joint"), None),
    "fetch_arm": ("mani_skill", "BSD-3-Clause", "mani_skill/assets/robots/fetch/fetch.urdf", "torso_lift_link",
                  "gripper_link", ("r_gripper_finger_joint", "l_gripper_finger_joint"), None),
    "xarm7": ("example_robot_data", "BSD-3-Clause", f"{EXAMPLE}/xarm_description/urdf/xarm7.urdf", "link_base",
              "link_eef", (), None),
    "so100": ("example_robot_data", "Apache-2.0", f"{EXAMPLE}/so_arm_description/urdf/so100.urdf", "base",
              "gripper", (), None),
    # ManiSkill's SO-100 counts its joints from another zero, some the other way round
    "so100_maniskill": ("mani_skill", "Apache-2.0", "mani_skill/assets/robots/so100/so100.urdf", "Base",
                        "Fixed_Jaw", (), None),
    "so101": ("example_robot_data", "Apache-2.0", f"{EXAMPLE}/so_arm_description/urdf/so101.urdf", "base_link",
              "gripper_frame_link", (), None),
    "g1_right_arm": ("example_robot_data", "BSD-3-Clause", f"{EXAMPLE}/g1_description/urdf/g1_29dof_rev_1_0.urdf",
                     "torso_link", "right_rubber_hand", (), None),
    "g1_left_arm": ("example_robot_data", "BSD-3-Clause", f"{EXAMPLE}/g1_description/urdf/g1_29dof_rev_1_0.urdf",
                    "torso_link", "left_rubber_hand", (), None),
    "g1_waist_right_arm": ("example_robot_data", "BSD-3-Clause",
                           f"{EXAMPLE}/g1_description/urdf/g1_29dof_rev_1_0.urdf", "pelvis", "right_rubber_hand",
                           (), None),
    "ur5e": ("robosuite", "MIT", "robosuite/models/assets/robots/ur5e/robot.xml", "fixed_base_link",
             "right_hand", (), UR5E_RAD_S),
}  # fmt: skip


def main(site: Path) -> None:
    version = {d.metadata["Name"].replace("-", "_"): d.version for d in distributions(path=[str(site)])}
    out = Path(__file__).resolve().parent.parent / "jaxeval" / "data" / "robots"
    out.mkdir(parents=True, exist_ok=True)
    for name, (package, licence, file, base, tip, gripper, velocity) in ROBOTS.items():
        path = site / file
        steps = (L._urdf if path.suffix == ".urdf" else L._mjcf)(path, base, tip)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        source = f"{package} {version[package]}, {file.split('/robots/')[-1]} (sha256 {digest}), {licence}"
        told = L.described(steps, base, tip, gripper, source=source)
        for joint in told["joints"]:
            joint["velocity"] = (velocity or {}).get(joint["name"], joint["velocity"])
        (out / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")
        print(f"{name:14} {len(told['joints'])} joints  {source}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
