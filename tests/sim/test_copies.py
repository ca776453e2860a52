"""Several copies of an environment at once, as on a GPU: shapes, with a stand-in for the simulator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mani_skill")
pytestmark = pytest.mark.maniskill

import torch  # noqa: E402

from jaxeval.policies.policy import Act, Info, Observation, Policy  # noqa: E402
from jaxeval.policies.scripted.tasks import TASKS  # noqa: E402
from jaxeval.sim.engine import Job, Setting  # noqa: E402
from jaxeval.sim.maniskill import environment as maniskill  # noqa: E402
from jaxeval.sim.maniskill.backend import ManiSkill, episode_of, run_batch  # noqa: E402
from jaxeval.types import InputError  # noqa: E402

N = 3
JOINTS = (*(f"panda_joint{i}" for i in range(1, 8)), "panda_finger_joint1", "panda_finger_joint2")


class Simulator:
    """Three copies whose peg goes up by the first number of the action; success above 25 mm."""

    device, control_freq, backend = torch.device("cpu"), 20, "gpu"

    def __init__(self) -> None:
        self.resets: list[tuple[Any, Any]] = []
        self.actions: list[np.ndarray] = []
        self.height = torch.zeros(N)
        self.seeds = torch.zeros(N)
        joints = [SimpleNamespace(name=name) for name in JOINTS]
        robot = SimpleNamespace(
            pose=self.at(0, 0), get_qpos=lambda: torch.full((N, 9), 0.02), get_active_joints=lambda: joints
        )
        self.agent = SimpleNamespace(robot=robot, tcp=SimpleNamespace(pose=self.at(0.3, 0.2)), uid="panda")
        own = [SimpleNamespace(name=f"peg_{i}", pose=self.at(0, 0, 1), _objs=[i]) for i in range(N)]
        self.peg = SimpleNamespace(name="peg", merged=True, _objs=[0, 1, 2])
        box = SimpleNamespace(name="box_with_hole", pose=self.at(0.1, 0.1), _objs=[7] * N, merged=False)
        actors = {peg.name: peg for peg in own} | {"box_with_hole": box, "ground": box, "table-workspace": box}
        self.scene = SimpleNamespace(actors=actors, articulations={})
        self.peg_head_pose = self.box_hole_pose = self.goal_pose = self.at(0.5, 0.5)
        self.box_hole_radii = torch.tensor([0.01, 0.02, 0.03])
        self.unwrapped = self

    def at(self, x: Any, z: Any, n: int = N) -> Any:
        raw = torch.zeros(n, 7)
        raw[:, 0], raw[:, 2], raw[:, 3] = x, z, 1.0
        return SimpleNamespace(raw_pose=raw)

    def make(self, env_id: str, **options: Any) -> Simulator:
        assert env_id == "PegInsertionSide-v1" and options["num_envs"] == N and options["sim_backend"] == "physx_cuda"
        return self

    def reset(self, seed: Any, options: dict[str, Any]) -> tuple[dict, dict]:
        self.resets.append((seed, options))
        if "env_idx" in options:
            self.seeds[options["env_idx"]] = float(seed[0])
            self.height[options["env_idx"]] = 0.0
        self.peg.pose = self.at(self.seeds, self.height)
        return {}, {}

    def evaluate(self) -> dict[str, torch.Tensor]:
        return {"success": self.height > 0.025}

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        assert action.shape == (N, 8) and action.dtype == torch.float32
        self.actions.append(action.numpy().copy())
        self.height = self.height + action[:, 0]
        self.peg.pose = self.at(self.seeds, self.height)
        return {}, None, None, None, self.evaluate()


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Simulator:
    made = Simulator()
    monkeypatch.setattr(maniskill, "_gymnasium", lambda renders, module: made)
    monkeypatch.setattr(maniskill, "_require_cuda", lambda: None)
    monkeypatch.setattr(maniskill, "half_extents", lambda thing: np.full(3, float(thing)))
    return made


def lifting(steps: int) -> Policy:
    def act(state: int, seen: Observation) -> Act:
        return Act(np.full(8, 0.01), state + 1, Info(0, state >= steps))

    return Policy("lifting", lambda seen, key: 0, act, host=True, ends=True, labels=lambda state: ("lift",))


def test_three_copies_run_two_episodes_each_to_its_own_end(simulator: Simulator) -> None:
    envs = maniskill.Environments("peg_insertion_side", n=N, backend="gpu")
    runs = ManiSkill(Setting("peg_insertion_side", "oracle", backend="gpu", batch_n=N))
    jobs = [Job(11), Job(12)]
    short, long = run_batch(envs, jobs, runs, [lifting(2), lifting(4)])

    (seeds, options), *placed = simulator.resets
    assert seeds == [11, 12, 12] and options == {"reconfigure": True}
    assert [seed for seed, _ in placed] == [[11] * N, [12] * N, [12] * N]  # each drawn from its own seed alone
    assert [o["env_idx"].tolist() for _, o in placed] == [[0], [1], [2]]

    assert set(envs.bodies) == {"peg", "box_with_hole", "table"}  # neither parts of the merged peg nor the ground
    assert [len(t.seen) for t in (short, long)] == [3, 5] and len(simulator.actions) == 4
    assert [s.poses["peg"][4] for s in (short.seen[0], long.seen[0])] == [11, 12]
    np.testing.assert_allclose([s.poses["peg"][6] for s in long.seen], [0, 0.01, 0.02, 0.03, 0.04], atol=1e-6)
    assert [s.success for s in short.seen] == [False] * 3 and long.seen[-1].success
    assert [t.seen[0].facts["hole_half_m"] for t in (short, long)] == pytest.approx([0.01, 0.02])
    assert [t.seen[0].half_size_m["peg"][0] for t in (short, long)] == [0, 1]
    assert long.seen[-1].time_s == pytest.approx(4 / 20)

    episode = episode_of(long, jobs[1], runs)
    assert episode.poses.shape == (5, len(episode.bodies), 7) and episode.success_at_end and episode.seed == 12
    assert episode.sub_task_names == ("start", "lift") and episode.sub_task is not None
    assert episode.sub_task.tolist() == [0, 1, 1, 1, 1]
    other = episode_of(short, jobs[0], runs)
    assert not other.success_at_end and other.initial_condition_hash != episode.initial_condition_hash


def test_what_a_gpu_cannot_do_is_refused(simulator: Simulator) -> None:
    envs = maniskill.Environments("peg_insertion_side", n=N, backend="gpu")
    with pytest.raises(InputError, match="cannot be made loose"):
        envs.reset([0, 1, 2], loose=("peg",))
    with pytest.raises(InputError, match="2 seeds for 3"):
        envs.reset([0, 1])
    assert len(TASKS) == len(maniskill.SCENES)
