"""`jaxeval video`: replayed scenes are where the record says, films have its frames, and the rest is refused.

Where things are needs no OpenGL; tests that draw are left out where no off-screen context can be made.
"""

# ruff: noqa: E402
import contextlib
import dataclasses
import io
import os
import stat
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from PIL import Image
from scipy.spatial.transform import Rotation

from jaxeval.cli import main
from jaxeval.io.store import open_store, write_store
from jaxeval.policies.policy import episode_key
from jaxeval.run.video import END_S, STRIP_N, Setting, Story, draw, story_of
from jaxeval.sim.engine import Job
from jaxeval.sim.engine import Setting as Rollout
from jaxeval.sim.film import BAD, GOOD, STRIP_BYTES, Mp4, durations_ms
from jaxeval.sim.mujoco.backend import MuJoCo, run_batch
from jaxeval.sim.mujoco.embodiment import load_embodiment
from jaxeval.sim.mujoco.environment import Environments
from jaxeval.sim.mujoco.pictures import Force, Replay, forces_of_fingers
from jaxeval.sim.mujoco.tasks.named import load_mujoco_task, mujoco_task_names
from jaxeval.types import InputError

pytestmark = pytest.mark.sim
SPEEDS = (1.0, 3.0)  # the Panda's expert succeeds at the first, and not at the second
SMALL = Setting(fps=4, width=128, height=96)


@pytest.fixture(scope="module")
def stow():
    return load_mujoco_task("parcel_stow")


@pytest.fixture(scope="module")
def panda():
    return load_embodiment("panda")


@pytest.fixture(scope="module")
def episodes(stow, panda):
    """Of the expert, at both speeds, judged."""
    rollout = MuJoCo(Rollout("parcel_stow", "expert", embodiment="panda"))
    return [episode for episode, _ in run_batch(rollout, [Job(k, speed) for k, speed in enumerate(SPEEDS)])]


@pytest.fixture(scope="module")
def store(episodes, tmp_path_factory):
    told = {"task": "parcel_stow", "embodiment": "panda", "policy": "expert"}
    path = tmp_path_factory.mktemp("store") / "rollout"
    return write_store(path, episodes, task="parcel_stow", precision="float64", configuration={"rollout": told})


@pytest.fixture(scope="module")
def gl(stow, panda):
    with Replay(stow, panda, width=64, height=64) as replay:
        try:
            replay.draw()
        except InputError as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def drawn(gl, store, tmp_path_factory):
    """Success and failure, small, the latter by the verb."""
    out = tmp_path_factory.mktemp("drawn")
    made = draw(story_of(store, "success"), out, SMALL)
    size = [f"{name}={getattr(SMALL, name)}" for name in ("fps", "width", "height")]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as said:
        patch.setattr(sys, "argv", ["jaxeval"])
        assert main(["video", str(store.path), "episode=failure", f"out={out}", *size]) == 0
    name = "parcel_stow_seed-0_episode-1_panda_expert_speed-3"
    first, *files = said.getvalue().splitlines()
    assert first == f"parcel_stow/seed=0/episode=1/panda/expert/speed=3: {story_of(store, 1).verdict}"
    assert files[0] == f"film: {out}/{name}.gif" and files[-1] == f"key frames: {out}/{name}_keyframes"
    failed = {"gif": out / f"{name}.gif", "strip": out / f"{name}_strip.png", "key_frames": out / f"{name}_keyframes"}
    return made, dataclasses.replace(made, episode_id=first.split(": ")[0], **failed)


# --------------------------------------------------------------------------------------------------- where things are


def test_a_replayed_scene_is_where_the_record_says(store, episodes, stow, panda):
    """To 1e-9 of what was recorded, and to the precision of stored joints, float32, of what a store holds."""
    with Replay(stow, panda) as replay:
        for recorded, row in zip(episodes, range(store.n_episodes), strict=True):
            for episode, off in ((recorded, 1e-9), (story_of(store, row).episode, 1e-6)):
                for frame in range(0, episode.n_frames, 50):
                    Story(episode, stow, "panda").put(replay, frame)
                    for name, at in (("tcp", replay.data.site("tcp")), ("parcel", replay.data.body("parcel"))):
                        pose = recorded.body(name)[frame]
                        R = Rotation.from_quat(pose[:4], scalar_first=True).as_matrix()
                        np.testing.assert_allclose(at.xpos, pose[4:], rtol=0, atol=off, err_msg=f"{name} {frame}")
                        np.testing.assert_allclose(at.xmat.reshape(3, 3), R, rtol=0, atol=off)
            assert np.ptp(recorded.body("parcel")[:, 6]) > 0.1  # it was carried: not one place for all frames


@pytest.mark.parametrize("task", mujoco_task_names())
def test_every_embodiment_and_task_by_joint_names_in_any_order(task):
    task, embodiment = load_mujoco_task(task), load_embodiment("g1")
    signals = Environments(task, embodiment).reset([episode_key(0, 7)], 1.0).signals
    order = np.random.default_rng(0).permutation(len(embodiment.joints))
    names = [embodiment.joints[k] for k in order]
    with Replay(task, embodiment) as replay:
        replay.put(signals.joint_position[0][order], names, signals.object_pose[0])
        np.testing.assert_allclose(replay.data.site(embodiment.tcp).xpos, signals.hand_pose[0, 4:], rtol=0, atol=1e-9)
        np.testing.assert_allclose(
            replay.data.body(task.thing.name).xpos, signals.object_pose[0, 4:], rtol=0, atol=1e-9
        )
        with pytest.raises(InputError, match=r"joint 'elbow' was recorded, expected one of waist_yaw_joint, .*\?$"):
            replay.put(signals.joint_position[0], ["elbow", *names[1:]], signals.object_pose[0])


def test_what_is_drawn_beside_the_scene_weighs_and_touches_nothing(stow, panda):
    bare = stow.model(panda)
    with Replay(stow, panda) as replay:
        model = replay.model
    np.testing.assert_array_equal(model.body_mass, bare.body_mass)
    np.testing.assert_array_equal(model.body_inertia, bare.body_inertia)
    names = {bare.geom(g).name for g in range(bare.ngeom)}
    added = [g for g in range(model.ngeom) if model.geom(g).name not in names]
    assert {model.geom(g).name for g in added} == {"tape", "label", "rim_left", "rim_right", "rim_top", "rim_bottom"}
    assert not model.geom_contype[added].any() and not model.geom_conaffinity[added].any()
    # one looks through the top and the side towards the camera; floor, back and the other side are solid
    clear = {b.name for b in stow.boxes if model.geom(b.name).rgba[3] < 1}
    assert clear == {"receptacle_top", "receptacle_side_a"}


def test_the_force_of_a_finger_acts_at_the_mean_of_its_contacts():
    point = np.array([[0, 0, 0], [4, 0, 0], [0, 1, 0], [9, 9, 9], [5, 5, 5.0]])
    force = np.array([[0, 0, 3], [0, 0, 1], [0, -2, 0], [9, 9, 9], [0, 0.1, 0.0]])
    found = forces_of_fingers(
        point, force, np.array([0, 0, 2, -1, 3])
    )  # the fourth is no contact, the last is too weak
    assert [f.point.tolist() for f in found] == [[1, 0, 0], [0, 1, 0]]
    assert [f.force.tolist() for f in found] == [[0, 0, 4], [0, -2, 0]]


# --------------------------------------------------------------------------------------------------------- its frames


def test_frames_are_the_newest_at_every_instant(store):
    story = story_of(store, 0)
    time_s = np.arange(6) * 0.02  # 50 Hz, .1 s
    episode = dataclasses.replace(story.episode, time_s=time_s, poses=story.episode.poses[:6])
    story = dataclasses.replace(story, episode=episode)
    end = round(END_S * 25)
    for fps, playback, frames, times in (
        (25, 1.0, [0, 2, 4, 5], [1, 1, 1, end]),  # every second one, and the last, at .10 s, though no instant is on it
        (25, 0.25, [0, 1, 2, 3, 4, 5], [2, 2, 2, 2, 2, end]),  # an instant every .01 s
        (25, 2.0, [0, 4, 5], [1, 1, end]),
    ):
        shown = story.shown(fps, playback)
        assert [x.tolist() for x in shown] == [frames, times], (fps, playback)


def test_a_gifs_frames_keep_in_step_in_hundredths_of_a_second():
    assert durations_ms([1, 1, 1, 30], 30) == [30, 40, 30, 1000]
    assert durations_ms([1, 2], 25) == [40, 80]


def test_the_cause_is_told_from_when_it_began(store):
    failed, worked = story_of(store, "failure"), story_of(store, "success")
    assert not failed.succeeded and worked.succeeded
    at = failed.decided
    assert at > 0 and failed.caption(at - 1).verdict == "" and failed.caption(at).verdict == failed.verdict
    assert failed.verdict not in ("", "success") and not failed.caption(at).good
    last = worked.episode.n_frames - 1
    assert worked.caption(last - 1).verdict == "" and worked.caption(last).verdict == "success"
    lift = worked.ends["LIFT"]  # 6.9 s at nominal speed, the last frame before REORIENT
    told = worked.caption(lift)
    assert (told.label, round(told.time_s, 2)) == ("LIFT", 6.88)
    fingers = worked.episode.signals["fingertip_force"][lift].sum()
    assert fingers > 5 and told.note.startswith(f"fingers {fingers:.1f} N")
    for story in (failed, worked):
        phases = [phase for phase, _ in story.phase_frames]
        assert len(phases) == STRIP_N and phases[0] == "PARK" and phases[-1] == "SETTLE" and "INSERT" in phases
        frames = [frame for _, frame in story.phase_frames]
        assert frames == sorted(frames)
    assert at in [frame for _, frame in failed.phase_frames]


# --------------------------------------------------------------------------------------------------------- the pictures


def test_the_gif_has_the_episodes_frames_and_each_differs(drawn, store):
    for made in drawn:
        frames, times = story_of(store, made.episode_id).shown(SMALL.fps, SMALL.playback)
        with Image.open(made.gif) as gif:
            assert gif.n_frames == len(frames) and gif.size == (SMALL.width, SMALL.height)
            pictures, stood = [], 0
            for k in range(gif.n_frames):
                gif.seek(k)
                stood += gif.info["duration"]
                pictures.append(np.asarray(gif.convert("RGB"), int))
        assert stood == pytest.approx(1000 * times.sum() / SMALL.fps, abs=10)
        scene = [p[: round(0.8 * SMALL.height)] for p in pictures]  # without the line of text
        changed = [np.abs(a - b).max() > 30 for a, b in pairwise(scene)]
        moving = len(changed) - 3 * SMALL.fps  # in SETTLE, and in dwells, nothing moves
        assert sum(changed) > 0.5 * moving
        assert all((a != b).any() for a, b in pairwise(pictures))


def test_pictures_show_the_end_in_its_colour(drawn):
    for made, colour, other in zip(drawn, (GOOD, BAD), (BAD, GOOD), strict=True):
        names = sorted(p.name for p in made.key_frames.iterdir())
        assert names[0] == "00_PARK.png" and names[6] == "06_REORIENT.png" and names[-1] == "13_SETTLE.png"
        first, last = (np.asarray(Image.open(made.key_frames / names[k])) for k in (0, -1))
        assert last.shape == (SMALL.height, SMALL.width, 3)

        def share(picture, c):
            return (picture == c).all(-1).mean()

        assert share(last, colour) > 0.05 and max(share(last, other), share(first, colour)) < 0.01
        assert made.strip.stat().st_size < STRIP_BYTES
        with Image.open(made.strip) as strip:
            assert strip.width == 4 * 320 + 5 * 8
    assert not [p for p in drawn[0].gif.parent.iterdir() if p.name.startswith(".")]


def test_forces_are_arrows_and_the_camera_counts(gl, stow, panda, episodes):
    e = episodes[0]
    with Replay(stow, panda, width=320, height=240) as replay:
        replay.put(e.joints[0], e.joint_names, e.body("parcel")[0])
        bare, again = replay.draw(), replay.draw()
        np.testing.assert_array_equal(bare, again)
        pushed = replay.draw([Force(e.body("parcel")[0, 4:] + [0, 0, 0.02], np.array([0.0, 0.0, -10.0]))])  # from above
        red = (pushed[..., 0].astype(int) - pushed[..., 1] > 100) & (pushed != bare).any(-1)
        assert 20 < red.sum() < 800  # 8 cm of 4 mm
        fine = replay.draw(fine=True)
        assert fine.shape == bare.shape and np.abs(fine.astype(int) - bare).mean() < 10
    assert np.ptp(bare) > 150
    parcel = (bare[..., 0] > 150) & (bare[..., 2] < 70)
    assert parcel.sum() > 50  # it is in the picture, and orange


# ------------------------------------------------------------------------------------------------------------- ffmpeg


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for ffmpeg")
def test_frames_go_to_ffmpeg_where_there_is_one(tmp_path, monkeypatch):
    program = tmp_path / "ffmpeg"

    def is_now(script):
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    picture = Image.fromarray(np.arange(3 * 5 * 3, dtype=np.uint8).reshape(3, 5, 3))
    is_now('for last; do :; done; cat > "$last"; echo "$@" >> "$last"')
    film = Mp4(tmp_path / "a.mp4", picture.size, 25)
    film.add(picture)
    film.add(picture, 2)
    film.close()
    written = (tmp_path / "a.mp4").read_bytes()
    assert film.problem == "" and written.startswith(3 * picture.tobytes()) and b"-s 5x3 -r 25 " in written
    is_now("echo no such encoder >&2; exit 3")
    film = Mp4(tmp_path / "b.mp4", picture.size, 25)
    for _ in range(3000):
        film.add(picture)
    film.close()
    assert film.problem == "ffmpeg made no MP4 (no such encoder); the GIF shows the same"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mp4", "ffmpeg"]
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    film = Mp4(tmp_path / "c.mp4", picture.size, 25)
    film.add(picture)
    film.close()
    assert film.problem.startswith("no program ffmpeg on the PATH")


# ------------------------------------------------------------------------------------------------------------ refusals


def test_an_episode_is_found_or_those_there_are_are_told(store, episodes):
    ids = [e.episode_id for e in episodes]
    assert ids == [
        "parcel_stow/seed=0/episode=0/panda/expert/speed=1",
        "parcel_stow/seed=0/episode=1/panda/expert/speed=3",
    ]
    for asked, k in ((None, 0), ("success", 0), ("failure", 1), (1, 1), ("1", 1), (ids[1], 1)):
        assert story_of(store, asked).episode.episode_id == ids[k], asked
    with pytest.raises(InputError, match=r"no episode '2'; expected success, failure, a number below 2, or one of p"):
        story_of(store, "2")
    with pytest.raises(InputError, match=rf"no episode 'x'; .* {ids[0]}, {ids[1]}$"):
        story_of(store, "x")


def test_stores_of_other_simulators_are_refused(store, episodes, tmp_path):
    other = [dataclasses.replace(episodes[0], signals=None, success_at_end=True)]
    told = {"task": "stack_cube", "robot": "panda"}
    path = tmp_path / "maniskill"
    write_store(path, other, task="stack_cube", configuration={"rollout": told})
    with pytest.raises(InputError, match=r"it holds episodes of ManiSkill's 'stack_cube', expected .* MuJoCo rollout"):
        story_of(open_store(path))
    write_store(tmp_path / "plain", other, task="stack_cube")
    with pytest.raises(InputError, match=r"it holds no word of how they were run, expected .* MuJoCo"):
        story_of(open_store(tmp_path / "plain"))
    told = {"task": "parcel_stow", "embodiment": "panda"}
    write_store(tmp_path / "mute", other, task="parcel_stow", configuration={"rollout": told})
    with pytest.raises(InputError, match=r"speed=1 lacks joints or signals, expected .* roll it out again"):
        story_of(open_store(tmp_path / "mute"))
    with pytest.raises(InputError, match=r"no failure among its 1 episodes"):
        story_of(open_store(tmp_path / "mute"), "failure")


@pytest.mark.parametrize(
    "setting, says",
    [
        ({"fps": 60}, "fps is 60, expected a number from 1 to 50"),
        ({"playback": 0}, "playback is 0, expected a number from 0.01 to 100"),
        ({"playback": float("nan")}, "playback is nan"),
        ({"width": 12}, "width is 12, expected a whole number of pixels from 64 to 4096"),
        ({"height": 480.5}, "height is 480.5"),
        ({"camera": "wrist"}, "camera 'wrist': there is none in parcel_stow; expected one of overview"),
    ],
)
def test_settings_that_make_no_sense_are_refused(store, tmp_path, setting, says):
    with pytest.raises(InputError, match=says):
        draw(story_of(store), tmp_path, Setting(**setting))
    assert list(tmp_path.iterdir()) == []


def test_no_opengl_is_one_sentence_and_leaves_nothing(store, tmp_path, monkeypatch):
    for kind, why in (("wayland", "it is none of egl, osmesa, glfw"), ("cgl", ".")):
        monkeypatch.setenv("MUJOCO_GL", kind)
        with pytest.raises(
            InputError, match=rf"^MUJOCO_GL={kind}: nothing can be drawn off-screen here \({why}.*osmesa$"
        ):
            draw(story_of(store), tmp_path, SMALL)
        assert list(tmp_path.iterdir()) == []


def test_a_mujoco_that_does_not_load_is_one_sentence(store, tmp_path):
    """It reads MUJOCO_GL as it is imported: a process of its own."""
    verb = [sys.executable, "-c", "import sys; from jaxeval.cli import main; sys.exit(main(sys.argv[1:]))", "video"]
    environment = os.environ | {"MUJOCO_GL": "wayland", "PYTHONPATH": os.pathsep.join(sys.path)}
    made = subprocess.run([*verb, str(store.path), f"out={tmp_path}"], env=environment, capture_output=True, text=True)
    assert made.returncode == 1 and made.stdout == "" and len(made.stderr.splitlines()) == 1
    assert made.stderr.startswith(
        "jaxeval video: MUJOCO_GL=wayland: nothing can be drawn off-screen here (invalid value"
    )


# ------------------------------------------------------------------------------------------------------------- the verb


def test_the_verb_takes_ids_and_answers_in_a_sentence(store, episodes, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["jaxeval"])
    assert main(["video", str(store.path), "episode=parcel_stow/seed=9", "out=films"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"jaxeval video: {store.path}: no episode 'parcel_stow/seed=9'; expected success")
    assert main(["video", str(store.path), "fps=0"]) == 1
    assert "fps is 0, expected a number from 1 to 50" in capsys.readouterr().err
    monkeypatch.setenv("MUJOCO_GL", "off")
    assert main(["video", str(store.path), f"episode={episodes[1].episode_id}"]) == 1
    assert "nothing can be drawn off-screen here" in capsys.readouterr().err
