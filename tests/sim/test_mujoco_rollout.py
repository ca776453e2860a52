"""Rollouts on MuJoCo into a store: what an episode holds, resuming after a kill, told speeds, judgement, the verb."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytestmark = pytest.mark.sim

from jaxeval import cli  # noqa: E402
from jaxeval.io import InputError, open_source, open_store  # noqa: E402
from jaxeval.metrics.stages import StageParams  # noqa: E402
from jaxeval.policies.policy import episode_key  # noqa: E402
from jaxeval.robots import arm_velocity_limits  # noqa: E402
from jaxeval.run.convert import convert  # noqa: E402
from jaxeval.run.inspect import inspect  # noqa: E402
from jaxeval.run.report import report  # noqa: E402
from jaxeval.run.rollout import rollout, table  # noqa: E402
from jaxeval.run.score import Scores, score  # noqa: E402
from jaxeval.run.score import table as print_scores  # noqa: E402
from jaxeval.run.scorers.grasp import GraspSetting  # noqa: E402
from jaxeval.run.scorers.kinematic import robot_with  # noqa: E402
from jaxeval.sim.engine import Job, Setting  # noqa: E402
from jaxeval.sim.mujoco.backend import MuJoCo, run_batch, stages_of  # noqa: E402
from jaxeval.sim.mujoco.embodiment import load_embodiment  # noqa: E402
from jaxeval.sim.mujoco.environment import Environments, run  # noqa: E402
from jaxeval.sim.mujoco.tasks.named import load_mujoco_task  # noqa: E402

MARGIN = "grasp.margin.acquired"
FAST, N = 3.0, 3
"""At three times the nominal speed a Panda fails in most episodes."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three starts at two speeds, one process, batches of two, with observations."""
    out = tmp_path_factory.mktemp("rollout") / "stow"
    return rollout(
        "parcel_stow", out, embodiment="panda", speed=(2.0, FAST), episodes=N, seed=5, processes=1, batch_n=2,
        observations=True,
    )  # fmt: skip


def test_an_episode_holds_what_was_recorded(made) -> None:
    e = made.store.read(0, 1)[0]
    panda, task = load_embodiment("panda"), load_mujoco_task("parcel_stow")
    envs = Environments(task, panda)
    (signals,), (actions,) = run(envs, task.expert(panda), [episode_key(5, 0)], 2.0)
    assert e.n_frames == len(signals.phase) == task.schedule.steps(2.0) + 1
    assert (
        e.bodies == ("parcel", "tcp", "receptacle", "table") and e.speed == 2.0 and e.seed == 0 and e.group == "expert"
    )
    assert e.episode_id == "parcel_stow/seed=5/episode=0/panda/expert/speed=2"
    assert e.initial_condition_id == "parcel_stow/seed=5/episode=0"
    told = {"policy": "expert", "embodiment": "panda", "simulator": "mujoco", "told_speed": 2.0}
    assert e.attributes == told and e.frame_valid.all() and e.valid.all()
    np.testing.assert_allclose(e.body("parcel")[:, 4:], signals.object_pose[:, 4:], atol=1e-6)
    np.testing.assert_allclose(e.body("tcp")[:, 4:], signals.hand_pose[:, 4:], atol=1e-6)
    np.testing.assert_allclose(e.joints, signals.joint_position, atol=1e-6)
    np.testing.assert_allclose(e.actions[1:], actions[1:], atol=1e-6)
    assert np.isnan(e.actions[0]).all()
    np.testing.assert_allclose(e.signals["contact_force"], signals.contact_force.reshape(e.n_frames, -1), atol=1e-4)
    np.testing.assert_array_equal(
        [e.sub_task_names[k] for k in e.sub_task], [task.schedule.names[k] for k in signals.phase]
    )
    state = envs.reset([episode_key(5, 0)], 2.0)
    np.testing.assert_allclose(e.signals["observation"][0], state.observation[0], atol=1e-6)
    state = envs.step(state, actions[1:2])
    np.testing.assert_allclose(e.signals["observation"][1], state.observation[0], atol=1e-6)
    assert not [f for f in e.check() if f.severity == "error"]


def test_starts_are_paired_over_speeds_and_differ_between_keys(made) -> None:
    ids, hashes = (made.store.column(f"initial_condition_{x}").reshape(2, N) for x in ("id", "hash"))
    np.testing.assert_array_equal(ids[0], ids[1])
    np.testing.assert_array_equal(hashes[0], hashes[1])
    assert len(set(hashes[0])) == N


def test_success_is_the_monitors_of_the_record_as_stored(made) -> None:
    task = load_mujoco_task("parcel_stow")
    flags = []
    for e, outcome in zip(made.store.iter_episodes(), made.outcomes, strict=True):
        stages = stages_of(e, task)
        assert bool(stages.success) == e.success_at_end == outcome.success
        assert (outcome.failed == "") == outcome.success
        flags.append(outcome.success)
    assert any(flags) and not all(flags)  # so that the comparison above can fail
    assert "settled at a wrong orientation" in table(made) and "[0." in table(made)


def test_scores_hold_stages_causes_motion_and_margins(made, tmp_path) -> None:
    import pyarrow.parquet as pq

    source = open_source(made.store.path)
    columns = score(None, source, out=tmp_path / "s").columns  # stages are what such a store is scored by
    assert columns["success_at_end"] == [o.success for o in made.outcomes]
    assert columns["cause"] == [o.failed or "success" for o in made.outcomes]
    assert columns["told_speed"] == columns["speed"] == [2.0] * N + [FAST] * N
    assert columns["stage.acquired"] == [True] * 2 * N and pq.read_schema(tmp_path / "s" / "scores.parquet").field(
        "stage.acquired").type == "bool"  # fmt: skip
    limits = arm_velocity_limits("panda")
    assert list(limits) == [f"joint{k}" for k in range(1, 8)] and limits["joint5"] == 2.61
    e = made.store.read(0, 1)[0]
    after = e.signals["phase"] >= e.sub_task_names.index("LIFT")
    used = (np.abs(e.signals["joint_velocity"][after, :7]) / [*limits.values()]).max()
    assert columns["hand.arm_utilisation"][0] == pytest.approx(used, rel=1e-5)
    assert columns["grasp.status.acquired"] == ["closure"] * 2 * N
    assert all(0.001 < m < 0.05 for m in columns[MARGIN])
    strict = score(None, source, metrics=["stages", "grasp"], settings=_settings(insert_depth_m=0.09)).columns
    assert strict["stage.inserted"] == strict["success_at_end"] == [False] * 2 * N
    # two opposite faces resist sliding by friction alone: without it only one force and two torques are left
    bare = score(None, source, metrics=["stages", "grasp"], settings=_settings(friction=0.0)).columns
    assert all(status.startswith("degenerate") for status in bare["grasp.status.acquired"])
    slippery = score(None, source, metrics=["stages", "grasp"], settings=_settings(friction=0.05)).columns
    assert all(0 < s < m / 2 for s, m in zip(slippery[MARGIN], columns[MARGIN], strict=True))


def _settings(friction: float | None = None, **stages: float):
    return {"stages": StageParams(**stages), "grasp": GraspSetting(friction=friction)}


def test_batch_processes_and_order_change_nothing(made, tmp_path) -> None:
    again = rollout(
        "parcel_stow", tmp_path / "again", embodiment="panda", speed=(FAST,), episodes=1, first=2, seed=5, processes=1,
        observations=True,
    )  # fmt: skip
    (alone,) = again.store.read()
    e = made.store.read(2 * N - 1)[0]
    assert alone.episode_id == e.episode_id
    np.testing.assert_array_equal(alone.poses, e.poses)
    for name in e.signals:
        np.testing.assert_array_equal(alone.signals[name], e.signals[name])


def test_the_told_speed_changes_what_is_seen_and_not_the_schedule() -> None:
    runs = MuJoCo(Setting("parcel_stow", "expert", embodiment="panda", seed=5, observations=True))
    (plain, _), (told, _) = run_batch(runs, [Job(0, FAST), Job(0, FAST, 1.0)])
    assert told.episode_id == plain.episode_id + "/told=1" and told.n_frames == plain.n_frames
    np.testing.assert_array_equal(told.poses, plain.poses)  # the expert does not read it
    assert (told.signals["told_speed"] == 1.0).all() and (plain.signals["told_speed"] == FAST).all()
    assert (told.signals["observation"][:, -1] == 1.0).all()
    assert told.initial_condition_hash == plain.initial_condition_hash


def test_what_is_there_is_not_run_again_and_another_rollout_is_refused(made) -> None:
    before = (made.store.path / "episodes.parquet").stat().st_mtime_ns
    setting = {
        "embodiment": "panda",
        "speed": (2.0, FAST),
        "episodes": N,
        "seed": 5,
        "processes": 1,
        "observations": True,
    }
    again = rollout("parcel_stow", made.store.path, **setting)
    assert [o.success for o in again.outcomes] == [o.success for o in made.outcomes]
    assert (made.store.path / "episodes.parquet").stat().st_mtime_ns == before or again.store.n_episodes == 2 * N
    for change, says in (
        ({"seed": 6}, "run with seed 5, not 6"),
        ({"observations": False}, "with observations True, not False"),
        ({"embodiment": "g1"}, "with embodiment 'panda', not 'g1'"),
    ):
        with pytest.raises(InputError, match=says):
            rollout("parcel_stow", made.store.path, **(setting | change))


@pytest.mark.parametrize(
    "setting, says",
    [
        ({"speed": (0.0,)}, "speed holds 0.0, expected numbers from 0.05 to 20"),
        ({"speed": (1.0, 1.0)}, "each once"),
        ({"speed": ()}, "at least one speed"),
        ({"told_speed": ("x",)}, "told_speed holds 'x'"),
        ({"episodes": 0}, "episodes is 0; expected a whole number from 1"),
        ({"policy": "act"}, "policy 'act': expected one of expert, random, or package.module:factory"),
        ({"policy": "oracle"}, "'oracle' does not act in mujoco"),
        ({"simulator": "maniskill"}, "simulator 'maniskill': parcel_stow runs in mujoco, mjx"),
        ({"speed_range": (2.0, 1.0)}, "speed_range is .2.0, 1.0.; expected two rising numbers"),
        ({"speed_range": (1.0, 2.0), "speed": (1.0,)}, "speed and speed_range are both given"),
        ({"policy_options": {"width": 3}}, "policy_options of 'expert': got an unexpected keyword argument 'width'"),
        ({"speed": (1.0000001,)}, "speed holds 1.0000001, expected at most six digits; round it to 1"),
        ({"episodes": True}, "episodes is True; expected a whole number"),
        ({"batch_n": 0}, "batch_n is 0"),
        ({"observations": "maybe"}, "observations is 'maybe'; expected true or false"),
        ({"seed": 2**32}, "seed is 4294967296; expected at most 4294967295"),
        ({"first": 2**32 - 1, "episodes": 2}, "first \\+ episodes - 1 is 4294967296"),
        ({"embodiment": "ur5"}, "embodiment 'ur5': there is none; expected one of g1, panda"),
    ],
)
def test_settings_that_make_no_sense_are_one_sentence(tmp_path, setting, says) -> None:
    with pytest.raises(InputError, match=says):
        rollout("parcel_stow", tmp_path / "o", **setting)
    assert not list(tmp_path.iterdir())


def test_the_verb_takes_speeds_with_commas_and_says_which_settings_are_the_other_simulators(tmp_path, capsys) -> None:
    out = f"out={tmp_path / 'o'}"
    assert cli.main(["rollout", "task=parcel_stow", "tilt_deg=5", out]) == 1
    assert "tilt_deg=[5]: parcel_stow runs in mujoco, which has no such setting" in capsys.readouterr().err
    assert cli.main(["rollout", "task=stack_cube", "speed=1,2", out]) == 1
    assert "speed=[1, 2]: stack_cube runs in maniskill, which has no such setting" in capsys.readouterr().err
    words = ["rollout", "task=parcel_stow", "embodiment=panda", "speed=2,3", "episodes=1", "processes=1", out]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert [line.split()[1:4] for line in printed.splitlines()[2:4]] == [["2", "-", "1"], ["3", "-", "1"]]
    assert open_store(tmp_path / "o").column("speed").tolist() == [2.0, 3.0]


def test_a_multirun_writes_a_store_of_each_embodiment_and_adds_speeds(tmp_path, capsys) -> None:
    words = ["rollout", "-m", "task=parcel_stow", "policy=random", "embodiment=panda,g1", "speed=15,20", "episodes=1",
             "processes=1", f"out={tmp_path / 'o'}"]  # fmt: skip
    assert cli.main(words) == 0, capsys.readouterr().err
    for name in ("panda_random", "g1_random"):
        assert open_store(tmp_path / "o" / "parcel_stow" / name).column("speed").tolist() == [15.0, 20.0]


def test_one_speed_is_drawn_for_each_key_whatever_else_is_run(tmp_path) -> None:
    asked = {"embodiment": "panda", "policy": "random", "speed_range": (15.0, 20.0), "processes": 1, "batch_n": 2}
    speeds = rollout("parcel_stow", tmp_path / "all", episodes=5, **asked).store.column("speed")
    assert len(set(speeds.tolist())) == 5 and (speeds >= 15).all() and (speeds <= 20).all()
    later = rollout("parcel_stow", tmp_path / "later", episodes=2, first=3, **asked)
    assert later.store.column("speed").tolist() == speeds[3:].tolist()
    assert "speed=" in later.outcomes[0].episode_id and later.store.read()[0].attributes["told_speed"] == speeds[3]


def test_a_description_of_ones_own_has_its_name_and_its_limits(tmp_path) -> None:
    panda = load_embodiment("panda")
    folder = tmp_path / "my robots"
    folder.mkdir()
    (folder / panda.mjcf.name).write_text(panda.mjcf.read_text())
    text = panda.mjcf.with_suffix(".yaml").read_text().replace("2.175", "4.35").replace("2.61", "5.22")
    (folder / "mine.yaml").write_text(text)
    told = {"policy": "random", "speed": (20.0,), "processes": 1}
    made = rollout("parcel_stow", tmp_path / "o", embodiment=str(folder / "mine.yaml"), **told)
    assert made.outcomes[0].episode_id == "parcel_stow/seed=0/episode=0/mine/random/speed=20"
    bundled = rollout("parcel_stow", tmp_path / "b", embodiment="panda", **told)
    mine, theirs = (score(None, open_source(r.store.path)).columns for r in (made, bundled))
    assert mine["hand.arm_utilisation"][0] == pytest.approx(theirs["hand.arm_utilisation"][0] / 2, rel=1e-6)
    (folder / "mine.yaml").write_text(text + "# changed\n")
    with pytest.raises(InputError, match="run with embodiment_sha256"):
        rollout("parcel_stow", tmp_path / "o", embodiment=str(folder / "mine.yaml"), **told)
    (folder / "mine.yaml").write_text("actuators: [")
    with pytest.raises(InputError, match=r"mine\.yaml: not readable as YAML"):
        rollout("parcel_stow", tmp_path / "o", embodiment=str(folder / "mine.yaml"), **told)
    (folder / "mine.yaml").unlink()
    gone = score(None, open_source(made.store.path)).columns
    assert gone["hand.arm_utilisation"] == [None]
    assert gone["hand.arm_status"] == ["no joint has a finite velocity limit"]


def test_a_pandas_joints_are_not_taken_for_an_xarms_and_inspect_tells_of_stages(made) -> None:
    (found,) = inspect(open_source(made.store.path))
    assert found.robot is None and found.missing["kinematic"] and found.missing["stages"] == ""
    with pytest.raises(InputError, match=r"expected kinematic\.robot=NAME"):
        score(None, open_source(made.store.path), metrics=["kinematic"])
    assert robot_with(tuple(f"joint{k}" for k in range(1, 8))) == "xarm7"


def test_told_speeds_are_told_as_given_and_frames_of_stages_are_refused_in_words(tmp_path) -> None:
    made = rollout(
        "parcel_stow", tmp_path / "o", embodiment="panda", policy="random", speed=(19.3,), told_speed=(2.3,),
        processes=1,
    )  # fmt: skip
    scores = score(None, open_source(made.store.path), out=tmp_path / "s", frames=True)
    assert scores.columns["told_speed"] == [2.3] and "no file of frames is written" in scores.notes[-1]
    page = report(tmp_path / "s", None, None).read_text()
    titles = re.findall(r"<h2[^>]*>([^<]+)</h2>", page)
    assert {"How far executions came", "How it was grasped"} <= set(titles), titles
    with pytest.raises(InputError, match="batch_n is 0"):
        score(None, open_source(made.store.path), batch_n=0)
    for bad in ({"friction": "abc"}, {"edges_n": 2.5}, {"edges_n": 2}, {"torque_length_m": 0}):
        with pytest.raises(ValueError, match=f"grasp.{next(iter(bad))} is"):
            GraspSetting(**bad).check()
    with pytest.raises(ValueError, match=r"stages.rise_m is 'abc'; expected a number"):
        StageParams(rise_m="abc").check()  # type: ignore[arg-type]


def test_stages_are_printed_beside_q(made) -> None:
    columns = score(None, open_source(made.store.path)).columns
    columns |= {"Q": [0.5] * 2 * N, "gate": [True] * 2 * N, "worst_pair": ["parcel | tcp"] * 2 * N}
    printed = print_scores(Scores(columns, (), (), ()))
    assert "mean Q" in printed and "settled at a wrong orientation" in printed


@pytest.mark.parametrize("to", ["lerobot", "tum"])
def test_a_format_without_a_place_for_signals_says_so(made, tmp_path, to) -> None:
    told = convert(open_source(made.store.path), tmp_path / "o", to=to).actions
    assert any("signals" in f.found for f in told)


@pytest.mark.slow
def test_a_killed_rollout_goes_on_with_the_same_result(made, tmp_path) -> None:
    """SIGKILL of the parent when a first part is there; the same again ends with the same store and none run twice."""
    out = tmp_path / "killed"
    words = [sys.executable, "-m", "jaxeval.cli", "rollout", "task=parcel_stow", "embodiment=panda", "speed=2,3",
             f"episodes={N}", "seed=5", "processes=2", "batch_n=1", "observations=true", f"out={out}"]  # fmt: skip
    running = subprocess.Popen(words, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not (kept := list(out.with_name("killed.parts").glob("[0-9a-f]*/meta.json"))) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert kept and not out.exists()
    metas = (
        json.loads(p.read_text())["configuration"] for p in out.with_name("killed.parts").glob("[0-9a-f]*/meta.json")
    )
    told = {outcome["episode_id"]: outcome["seconds"] for meta in metas for outcome in meta["outcomes"]}
    subprocess.run(words, env=os.environ, check=True, capture_output=True, timeout=400)
    store = open_store(out)
    seconds = {row["episode_id"]: row["seconds"] for row in map(json.loads, (out / "rollout.jsonl").open())}
    assert {name: seconds[name] for name in told} == told  # finished episodes were not run again
    assert store.hash == made.store.hash
