"""Make `tests/golden/g1_reference.json`: the Unitree G1's waist and right arm by Pinocchio, for the test of `g1.xml`.

    python tools/make_g1_reference.py SITE_PACKAGES     # a folder with example-robot-data; needs pin

Read from the URDF by another library than `make_g1.py` uses, with the left arm hanging and the rubber hands taken off:
poses of the wrist and joint-space inertia matrices at random configurations, limits, and the mass above the pelvis.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pinocchio as pin

URDF = "cmeel.prefix/share/example-robot-data/robots/g1_description/urdf/g1_29dof_rev_1_0.urdf"
OUT = Path(__file__).resolve().parent.parent / "tests" / "golden" / "g1_reference.json"
HANGING = {"left_shoulder_pitch_joint": 0.2, "left_shoulder_roll_joint": 0.2, "left_elbow_joint": 1.28}
BASE, TIP = "pelvis", "right_wrist_yaw_link"


def main(site: Path) -> None:
    text = (site / URDF).read_text()
    text = re.sub(r'(<link name="right_rubber_hand">.*?<mass value=")[^"]*', r"\g<1>0", text, count=1, flags=re.S)
    inertia = re.search(r'<link name="right_rubber_hand">.*?(<inertia .*?/>)', text, flags=re.S)
    assert inertia is not None
    start, end = inertia.span(1)
    text = text[:start] + '<inertia ixx="0" ixy="0" ixz="0" iyy="0" iyz="0" izz="0"/>' + text[end:]
    whole = pin.buildModelFromXML(text)
    posture = pin.neutral(whole)
    for joint, q in HANGING.items():
        posture[whole.joints[whole.getJointId(joint)].idx_q] = q
    kept = [n for n in whole.names if n.startswith(("waist", "right_shoulder", "right_elbow", "right_wrist"))]
    model = pin.buildReducedModel(whole, [i for i, n in enumerate(whole.names) if i and n not in kept], posture)
    data, random = model.createData(), np.random.default_rng(0)
    rows = []
    for _ in range(5):
        q = random.uniform(model.lowerPositionLimit, model.upperPositionLimit).round(6)
        pin.framesForwardKinematics(model, data, q)
        base, tip = (data.oMf[model.getFrameId(n)] for n in (BASE, TIP))
        pose = base.actInv(tip)
        M = np.triu(pin.crba(model, data, q))
        rows.append(
            {
                "q": q.tolist(),
                "R": pose.rotation.round(9).tolist(),
                "t_m": pose.translation.round(9).tolist(),
                "inertia_kg_m2": (M + M.T - np.diag(M.diagonal())).round(9).tolist(),
            }
        )
    told = {
        "source": f"pin {pin.__version__}; example_robot_data 6.0.0, {URDF.split('/robots/')[-1]}, BSD-3-Clause",
        "joints": list(model.names)[1:],
        "lower": model.lowerPositionLimit.tolist(),
        "upper": model.upperPositionLimit.tolist(),
        "velocity": model.velocityLimit.tolist(),
        "effort": model.effortLimit.tolist(),
        "mass_above_pelvis_kg": round(sum(model.inertias[i].mass for i in range(1, model.njoints)), 9),
        "configurations": rows,
    }
    OUT.write_text(json.dumps(told, indent=None, separators=(",", ":")) + "\n")
    print(OUT, told["mass_above_pelvis_kg"], told["joints"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
