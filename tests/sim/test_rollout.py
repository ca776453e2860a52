"""Rollouts in ManiSkill itself: every oracle, what a key fixes, and what is left after a kill at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import RigidTransform, Rotation

pytest.importorskip("mani_skill")
pytestmark = pytest.mark.maniskill

from jaxeval.io.spec import load_spec  # noqa: E402
from jaxeval.io.store import Store, open_store  # noqa: E402
from jaxeval.policies.policy import Policy, World, episode_key  # noqa: E402
from jaxeval.policies.scripted.make import make_random  # noqa: E402
from jaxeval.policies.scripted.oracle import Move, Scene, Script, oracle  # noqa: E402
from jaxeval.policies.scripted.tasks import TASKS  # noqa: E402
from jaxeval.run.rollout import rollout, table  # noqa: E402
from jaxeval.sim.engine import Job, Setting  # noqa: E402
from jaxeval.sim.engine import rollout as run_jobs  # noqa: E402
from jaxeval.sim.maniskill.backend import ManiSkill  # noqa: E402
from jaxeval.sim.maniskill.environment import Environments  # noqa: E402
from jaxeval.types import Episode, InputError  # noqa: E402

KEY = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rollouts")


@pytest.mark.parametrize("task", TASKS)
def test_every_oracle_does_its_task(folder: Path, task: str) -> None:
    made = rollout(task, folder / task, episodes=1, first=KEY, processes=1)
    assert made.successes_n == 1, table(made)
    (episode,) = made.store.read()
    assert {body.name for body in load_spec(task).bodies} <= set(episode.bodies)
    assert not [f for f in episode.check() if f.severity == "error"]
    assert episode.success_once and episode.success_at_end and episode.seed == KEY
    assert episode.actions is not None and np.isnan(episode.actions[0]).all() and np.isfinite(episode.actions[1:]).all()


def lean_deg(episode: Episode, body: str) -> np.ndarray:
    """Angle between a body's axis that was upright at the start and the vertical, [T]."""
    R = Rotation.from_quat(episode.body(body)[:, :4], scalar_first=True).as_matrix()
    axis = np.argmax(np.abs(R[0, 2]))
    return np.degrees(np.arccos(np.clip(np.abs(R[:, 2, axis]), 0, 1)))


def test_a_tilt_is_reached_and_taken_back_and_all_else_is_shared(folder: Path) -> None:
    made = rollout("stack_cube", folder / "tilted", episodes=1, first=KEY, tilt_deg=[0, 25], processes=1)
    assert made.successes_n == 2 and [o.group for o in made.outcomes] == ["tilt 0 deg", "tilt 25 deg"]
    clean, tilted = made.store.read()
    (alone,) = open_store(folder / "stack_cube").read()
    np.testing.assert_array_equal(clean.poses, alone.poses)  # another environment, another order: the same bits
    np.testing.assert_array_equal(clean.joints, alone.joints)

    assert clean.initial_condition_hash == tilted.initial_condition_hash is not None
    assert clean.initial_condition_id == tilted.initial_condition_id == f"StackCube-v1/seed={KEY}"
    carry = tilted.sub_task_names.index("carry")
    carried = np.flatnonzero(tilted.sub_task == carry)
    np.testing.assert_array_equal(clean.poses[: carried[0]], tilted.poses[: carried[0]])
    lean = lean_deg(tilted, "cubeA")
    assert abs(lean[carried].max() - 25) < 1, lean[carried].max()
    assert lean[carried[-1]] < 1 and lean_deg(clean, "cubeA").max() < 1


def make_far(world: World) -> Policy:
    """An oracle whose one waypoint lies 3 m away."""

    def build(scene: Scene, rng: np.random.Generator) -> Script:
        return (Move("far", lambda s: RigidTransform.from_translation([3.0, 0.0, 0.0]) * s.commanded),)

    return oracle(build)


def test_a_policy_that_gives_up_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "far_policies", sys.modules[__name__])
    runs = ManiSkill(Setting("poke_cube", "far_policies:make_far", batch_n=1))
    store, (outcome,) = run_jobs(runs, [Job(0)], tmp_path / "out", processes_n=1, progress=False)
    assert not outcome.success and outcome.failed.startswith("waypoint 'far': the arm cannot follow")
    assert store.column("success_at_end").tolist() == [False] and outcome.frames == 1


def test_random_actions_span_the_action_space_and_no_more() -> None:
    envs = Environments("poke_cube")
    seen = envs.reset([0]).of(0)
    space, (low, high) = envs.env.action_space, envs.action_bounds
    envs.close()
    policy = make_random(World("poke_cube", "maniskill", "panda", low, high, seen))
    state, actions = policy.init(seen, episode_key(0, 0)), []
    for _ in range(500):
        act = policy.act(state, seen)
        state = act.state
        actions.append(act.action)
    tried = np.stack(actions)
    assert (tried >= space.low - 1e-5).all() and (tried <= space.high + 1e-5).all()
    assert (np.ptp(tried, axis=0) > 0.97 * (space.high - space.low)).all()


# ------------------------------------------------------------------------------------------------------ resuming

RANDOM = {"policy": "random", "steps_n": 25}


def start(out: Path, episodes: int) -> subprocess.Popen[str]:
    args = ["rollout", "task=place_can", f"out={out}", f"episodes={episodes}", "processes=2"]
    args += [f"{k}={v}" for k, v in RANDOM.items()]
    code = "import sys; from jaxeval.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.Popen([sys.executable, "-c", code, *args], stderr=subprocess.PIPE, text=True)


def workers(parent: int) -> list[int]:
    """Worker processes of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            ppid = int(stat.read_text().rpartition(")")[2].split()[1])
            if ppid == parent and b"spawn_main" in (stat.parent / "cmdline").read_bytes():
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def parts(out: Path) -> dict[str, float]:
    """Wall time of every finished episode that is not in the store yet, by id."""
    metas = [json.loads(p.read_text()) for p in out.with_name("out.parts").glob("[0-9a-f]*/meta.json")]
    return {o["episode_id"]: o["seconds"] for meta in metas for o in meta["configuration"]["outcomes"]}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def unbroken(folder: Path) -> Iterator[Store]:
    yield rollout("place_can", folder / "unbroken", episodes=8, processes=1, **RANDOM).store


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds worker processes under /proc")
def test_killed_at_any_moment_it_goes_on_to_the_same_store(tmp_path: Path, unbroken: Store) -> None:
    out = tmp_path / "out"
    run = start(out, 8)  # first the parent is killed
    until(lambda: len(parts(out)) >= 2)
    orphans = workers(run.pid)
    assert len(orphans) == 2
    run.kill()
    run.communicate()
    until(lambda: not any(map(alive, orphans)), 10)
    first = parts(out)
    assert 2 <= len(first) < 8 and not out.exists()

    run = start(out, 8)  # then a worker
    until(lambda: len(parts(out)) > len(first))
    os.kill(workers(run.pid)[0], signal.SIGKILL)
    _, err = run.communicate()
    told = [line for line in err.replace("\r", "\n").splitlines() if line.startswith("jaxeval")]
    assert run.returncode == 1 and len(told) == 1 and "run the same again" in told[0] and "Traceback" not in err
    second = parts(out)
    assert first.items() <= second.items() and len(second) < 8  # what was finished did not run again

    (tmp_path / ".out.0123.writing").mkdir()  # what a kill during the last step leaves
    made = rollout("place_can", out, episodes=8, processes=1, **RANDOM)
    seconds = {o.episode_id: o.seconds for o in made.outcomes}
    assert second.items() <= seconds.items()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    for name in ("episode_id", "seed", "length", "initial_condition_hash"):
        assert made.store.column(name).tolist() == unbroken.column(name).tolist()
    for ours, theirs in zip(made.store.read(), unbroken.read(), strict=True):
        np.testing.assert_allclose(ours.poses, theirs.poses, rtol=0, atol=1e-6)


def test_more_episodes_are_added_and_others_refused(unbroken: Store, capsys: pytest.CaptureFixture[str]) -> None:
    before = unbroken.read()
    again = rollout("place_can", unbroken.path, episodes=8, processes=1, **RANDOM)
    assert len(again.outcomes) == 8 and again.store.n_episodes == 8
    more = rollout("place_can", unbroken.path, episodes=1, first=8, processes=1, **RANDOM)
    assert more.store.column("seed").tolist() == list(range(9)) and len(more.outcomes) == 1
    assert len((unbroken.path / "rollout.jsonl").read_text().splitlines()) == 9
    np.testing.assert_array_equal(more.store.read(0, 8)[5].poses, before[5].poses)

    for task, other, expected in (
        ("place_can", {**RANDOM, "seed": 1}, "with seed 0, not 1"),
        ("place_can", {**RANDOM, "robot": "panda_wristcam"}, "with robot 'panda', not 'panda_wristcam'"),
        ("place_can", {"policy": "oracle", "steps_n": 25}, "with policy 'random', not 'oracle'"),
        ("stack_cube", RANDOM, "it holds episodes of 'place_can', not of 'stack_cube'"),
    ):
        with pytest.raises(InputError, match=expected):
            rollout(task, unbroken.path, episodes=20, processes=1, **other)
    assert not unbroken.path.with_name("unbroken.parts").exists()
