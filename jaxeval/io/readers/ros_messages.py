"""ROS 2 messages, from whatever file, made into episodes: pose topics and transforms are one tree of frames.

PoseStamped, PoseWithCovarianceStamped, Odometry, TransformStamped and TFMessage each say where one frame is in
another. Every frame that the root of the largest tree reaches is a body, its chain composed; a frame is called by its
``child_frame_id``, or after its topic where a message has none. Time is ``header.stamp``, never the recorder's clock.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxeval.io.cleaning import in_order, order_of
from jaxeval.io.errors import InputError
from jaxeval.io.findings import FileFindings
from jaxeval.io.readers.tracks import (
    MAX_GAP_N,
    Track,
    compose,
    on_stamps,
    recordings_of,
    seconds_from,
    values_on_stamps,
)
from jaxeval.types import Episode, Finding

KINDS = (
    "geometry_msgs/PoseStamped",
    "geometry_msgs/PoseWithCovarianceStamped",
    "nav_msgs/Odometry",
    "geometry_msgs/TransformStamped",
    "tf2_msgs/TFMessage",
    "sensor_msgs/JointState",
)
"""The messages that are read; topics of others are passed over."""
POSES = "poses (PoseStamped, Odometry, TransformStamped or TFMessage)"
WIDEST_M = 0.2
"""Finger joints that go beyond are no metres of a gripper's width."""

ROS_FINDINGS: dict[str, tuple[str, str]] = {
    "damaged": ("warning", "the file is cut or damaged: messages up to there are read"),
    "undecodable": ("warning", "messages of a topic cannot be decoded: they are left out"),
    "no_stamp": ("warning", "header stamps of a topic are all zero: it has no time and is left out"),
    "clocks_differ": ("info", "the recorder's clock is not the header's: the header's is used"),
    "resampled": ("info", "bodies on other stamps are interpolated onto those of one body"),
    "unmatched": ("warning", "a body has no sample near some frames: those frames are invalid"),
    "other_root": ("warning", "frames that no transform ties to the root: they are left out"),
    "several_sources": ("info", "several topics tell of one frame: the one with the most samples counts"),
    "rebased": ("info", "stamps do not start at zero: time counts from the first, subtracted as integers"),
    "gripper_width": ("info", "finger joints that are summed to the gripper's width"),
    "joints_left_out": ("warning", "joints that cannot be put on the clock of the poses: they are left out"),
}
"""Findings of `read_mcap` and `read_rosbag2`: code -> (severity, meaning)."""


class RosMessage(NamedTuple):
    """A decoded message; ``kind`` is its type as the file writes it, ``log_ns`` when the recorder got it."""

    topic: str
    log_ns: int
    kind: str
    message: Any


def plain_kind(kind: str) -> str:
    """``geometry_msgs/msg/PoseStamped`` -> ``geometry_msgs/PoseStamped``."""
    return kind.replace("/msg/", "/")


def episodes_of_messages(
    path: Path,
    messages: Iterable[RosMessage],
    findings: FileFindings,
    *,
    bodies: tuple[str, ...] | None = None,
    others: Iterable[str] = (),
) -> tuple[list[Episode], list[Finding]]:
    """Episodes of messages in the order of the file: one, or one a part where stamps step back or pause.

    The clock is that of the frame with the most samples (then the most even steps); the others are interpolated onto
    it within gaps of at most `MAX_GAP_N` of their own steps, and frames that some body lacks are invalid. `bodies`
    names the frames that count (by default all of the largest tree); `others` are types of the topics passed over,
    for the message of a refusal.

    Raises:
        InputError: no stamped pose at all, no such body, bodies of two trees, no frame that moves, a loop of frames, or
            topics that step back a different number of times.
    """
    heard = _Heard()
    for m in messages:
        try:
            heard.add(m)
        except (AttributeError, TypeError, ValueError) as error:
            found = f"a message is no {m.kind} ({error})"[:300]
            findings.add("undecodable", found, "its fields", "left out", where=f"{path} {m.topic}")
    links = _links(path, heard, findings, others)
    chains = _chains(path, links, bodies, findings)
    used = {name for chain in chains.values() for name in chain}
    moving = {name: link for name, link in links.items() if name in used and not link.static}
    if not moving:
        raise InputError(f"{path}: no frame moves, all come from static transforms; record the topics of the bodies")
    _compare_clocks(heard, findings)
    actions: list[Finding] = []
    recordings: dict[str, list[Track]] = {}
    for name, link in moving.items():
        recordings[name], done = recordings_of(link.track(name), where=f"{path} {link.topic} {name}")
        actions += done
    if len({len(tracks) for tracks in recordings.values()}) > 1:
        steps_back = ", ".join(f"{name} {len(tracks) - 1} times" for name, tracks in recordings.items())
        raise InputError(
            f"{path}: stamps step back {steps_back}; expected topics of one clock; record one episode a file"
        )
    recordings_n = len(next(iter(recordings.values())))
    joints = _joints(path, heard, recordings_n, findings, actions)
    episodes: list[Episode] = []
    split: list[Finding] = []
    for k in range(recordings_n):
        tracks = {name: parts[k] for name, parts in recordings.items()}
        values = {name: pairs[k] for name, pairs in joints.items()}
        whole = _episode(path, chains, links, tracks, values, findings)
        name = path.stem if recordings_n == 1 else f"{path.stem}/part={k}"
        ordered = in_order(dataclasses.replace(whole, episode_id=name, mended=tuple(actions)))
        split += ordered.actions
        episodes += ordered.episodes
    return episodes, [*findings.found, *actions, *split]


# ------------------------------------------------------------------------------------------------------- messages


@dataclass
class _Link:
    """Samples of one frame in its parent, from one topic."""

    parent: str
    topic: str
    static: bool
    stamps_ns: list[int] = field(default_factory=list)
    poses: list[list[float]] = field(default_factory=list)

    def track(self, name: str) -> Track:
        return Track(name, np.array(self.stamps_ns, np.int64), np.array(self.poses, np.float64))


@dataclass
class _Heard:
    """What the messages say, by frame and topic."""

    links: dict[tuple[str, str, str], _Link] = field(default_factory=dict)  # (child, parent, topic)
    joints: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    joint_topic: dict[str, str] = field(default_factory=dict)
    clocks_ns: list[tuple[int, int]] = field(default_factory=list)  # (header, log)
    unnamed: set[str] = field(default_factory=set)  # topics whose messages name no child

    def add(self, m: RosMessage) -> None:
        kind, message = plain_kind(m.kind), m.message
        if kind == "tf2_msgs/TFMessage":
            for transform in message.transforms:
                self._transform(m, transform)
        elif kind == "geometry_msgs/TransformStamped":
            self._transform(m, message)
        elif kind == "sensor_msgs/JointState":
            self._joint_state(m)
        else:
            pose = message.pose if kind == "geometry_msgs/PoseStamped" else message.pose.pose
            child = getattr(message, "child_frame_id", "")
            self._link(m, child, message.header, pose.position, pose.orientation)

    def _transform(self, m: RosMessage, message: Any) -> None:
        T = message.transform
        self._link(m, message.child_frame_id, message.header, T.translation, T.rotation)

    def _link(self, m: RosMessage, child: str, header: Any, xyz: Any, q: Any) -> None:
        child, parent = child.strip("/"), header.frame_id.strip("/")
        self.unnamed |= {m.topic} if not child else set()
        static = m.topic.endswith("tf_static")
        stamp, log_ns = _stamp_ns(header), int(m.log_ns)
        pose = [float(v) for v in (q.w, q.x, q.y, q.z, xyz.x, xyz.y, xyz.z)]
        link = self.links.setdefault((child, parent, m.topic), _Link(parent, m.topic, static))
        link.stamps_ns.append(stamp)
        link.poses.append(pose)
        if not static and stamp:
            self.clocks_ns.append((stamp, log_ns))

    def _joint_state(self, m: RosMessage) -> None:
        names, positions = list(m.message.name), list(m.message.position)
        stamp = _stamp_ns(m.message.header)
        if len(positions) != len(names) or not stamp:
            return
        for name, position in zip(names, positions, strict=True):
            if self.joint_topic.setdefault(name, m.topic) == m.topic:
                stamps, values = self.joints.setdefault(name, ([], []))
                stamps.append(stamp)
                values.append(float(position))


def _stamp_ns(header: Any) -> int:
    stamp_ns = int(header.stamp.sec) * 10**9 + int(header.stamp.nanosec)
    if abs(stamp_ns) >= 2**63:
        raise ValueError(f"a header stamp of {stamp_ns / 1e9:.3g} s")
    return stamp_ns


def topic_body(topic: str) -> str:
    """Body of a topic whose messages name none: its last part that says more than the kind of message.

    >>> topic_body("/cube/pose"), topic_body("/objects/red_cube"), topic_body("/tcp_pose")
    ('cube', 'red_cube', 'tcp')
    """
    parts = [re.sub(r"_?(pose|poses|pose_stamped|odom|odometry|state)$", "", p) for p in topic.split("/")]
    return next((p for p in reversed(parts) if p), topic.strip("/"))


def _compare_clocks(heard: _Heard, findings: FileFindings) -> None:
    header, log = np.array(heard.clocks_ns, np.int64).T
    lead_s = float(np.median(log - header)) / 1e9
    spans = (float(np.ptp(header)), float(np.ptp(log)))
    ratio = spans[1] / spans[0] if spans[0] else 1.0
    if abs(lead_s) > 1.0 or abs(ratio - 1) > 0.01:
        found = f"log time is {lead_s:.6g} s ahead of header.stamp and runs {ratio:.3g} times as fast"
        findings.add("clocks_differ", found, "one clock", "header.stamp is used, log time is not")


# ----------------------------------------------------------------------------------------------------------- tree


def _links(path: Path, heard: _Heard, findings: FileFindings, others: Iterable[str]) -> dict[str, _Link]:
    """One link a frame: of several, the one with the most samples; links without time are left out."""
    chosen: dict[str, _Link] = {}
    short = Counter(topic_body(topic) for topic in heard.unnamed)
    for (child, _, topic), link in heard.links.items():
        if not child:
            child = topic_body(topic) if short[topic_body(topic)] == 1 else topic.strip("/")
        if not link.static and not any(link.stamps_ns):
            where = f"{path} {topic} {child}"
            findings.add("no_stamp", "all header stamps are 0", "seconds", "left out; set header.stamp", where=where)
            continue
        if child == link.parent:
            continue
        if child not in chosen:
            chosen[child] = link
            continue
        kept, left = sorted((chosen[child], link), key=lambda x: (x.static, -len(x.poses)))
        chosen[child] = kept
        found = f"{child} is told by {kept.topic} in {kept.parent} and by {left.topic} in {left.parent}"
        done = f"{kept.topic} counts, with {len(kept.poses)} samples"
        findings.add("several_sources", found, "one source a frame", done, where=f"{path} {child}")
    if not chosen:
        if any(f.code == "no_stamp" for f in findings.found):
            raise InputError(f"{path}: every header stamp is 0, so no time; set header.stamp when you publish")
        if damaged := [f.found for f in findings.found if f.code == "damaged"]:
            raise InputError(f"{path}: the file is damaged before its first pose ({damaged[0]}); copy it again")
        held = ", ".join(sorted({plain_kind(k) for k in others})) or ("joints" if heard.joints else "nothing")
        raise InputError(f"{path}: no {POSES} to read; it holds {held[:200]}; record the topics of the bodies")
    return chosen


def _chains(
    path: Path, links: dict[str, _Link], bodies: tuple[str, ...] | None, findings: FileFindings
) -> dict[str, list[str]]:
    """For each body asked for, or of the largest tree, the frames from the root down to it."""
    chains: dict[str, list[str]] = {}
    roots: dict[str, str] = {}
    for name in links:
        chain = [name]
        while (parent := links[chain[0]].parent) in links:
            if parent in chain:
                raise InputError(f"{path}: frames {', '.join(chain)} form a loop; expected a tree; fix the transforms")
            chain.insert(0, parent)
        chains[name], roots[name] = chain, parent
    if bodies:
        if absent := [b for b in bodies if b not in chains]:
            raise InputError(f"{path}: no frame {', '.join(absent)}; it has {', '.join(chains)[:300]}")
        if len({roots[b] for b in bodies}) > 1:
            roots_found = ", ".join(f"{b} in '{roots[b]}'" for b in bodies)
            raise InputError(f"{path}: {roots_found}, which nothing ties together; record the transform between them")
        return {b: chains[b] for b in bodies}
    counts = Counter(roots.values())
    root = max(counts, key=lambda r: (sum(not links[n].static for n in links if roots[n] == r), counts[r], r))
    for other in counts:
        if other != root:
            names = ", ".join(n for n in links if roots[n] == other)
            found = f"{names[:200]} in frame '{other}', which nothing ties to '{root}'"
            findings.add("other_root", found, "one tree of frames", "left out", where=f"{path} frame '{other}'")
    return {name: chain for name, chain in chains.items() if roots[name] == root}


# -------------------------------------------------------------------------------------------------------- episode


def _episode(
    path: Path,
    chains: dict[str, list[str]],
    links: dict[str, _Link],
    tracks: dict[str, Track],
    joints: dict[str, tuple[np.ndarray, np.ndarray]],
    findings: FileFindings,
) -> Episode:
    clock = min(tracks.values(), key=_preference)
    base_ns = clock.stamps_ns
    at_base, missing = {}, {}
    for name, track in tracks.items():
        at_base[name], known = on_stamps(track, base_ns)
        missing[name] = ~known
    for name, link in links.items():
        if link.static:
            at_base[name] = np.tile(np.array(link.poses[-1], np.float64), (len(base_ns), 1))
    poses = np.stack([_composed([at_base[name] for name in chain]) for chain in chains.values()], axis=1)
    _say_resampled(path, clock, tracks, missing, findings)
    start_ns = int(base_ns[0])
    if start_ns:
        findings.add("rebased", f"the first stamp is {start_ns / 1e9:.9g} s", "0", "time counts from there")
    values = {name: values_on_stamps(stamps, q, base_ns) for name, (stamps, q) in joints.items()}
    return Episode.of(
        poses=poses,
        time_s=seconds_from(base_ns, start_ns),
        valid=np.stack([_known(chain, missing, len(base_ns)) for chain in chains.values()], axis=1),
        gripper_width_m=_gripper_width(values, findings),
        joints=np.stack(list(values.values()), axis=1) if values else None,
        bodies=tuple(chains),
        joint_names=tuple(values),
        source=str(path),
        start_ns=start_ns,
    )


def _known(chain: list[str], missing: dict[str, np.ndarray], frames_n: int) -> np.ndarray:
    """[T] frames in which every link of a chain is known; static ones always are."""
    return ~np.logical_or.reduce([np.zeros(frames_n, bool), *(missing[name] for name in chain if name in missing)])


def _preference(track: Track) -> tuple[int, float, str]:
    """Order in which tracks are taken as the clock: most samples, then most even steps, then name."""
    steps = np.diff(track.stamps_ns)
    return -len(track.stamps_ns), float(steps.std()) if steps.size else 0.0, track.name


def _composed(chain: list[np.ndarray]) -> np.ndarray:
    poses = chain[0]
    for child in chain[1:]:
        poses = compose(poses, child)
    return poses


def _say_resampled(
    path: Path, clock: Track, tracks: dict[str, Track], missing: dict[str, np.ndarray], findings: FileFindings
) -> None:
    moved = [t for t in tracks.values() if not np.array_equal(t.stamps_ns, clock.stamps_ns)]
    if moved:
        rates = ", ".join(f"{t.name} ({t.rate_hz:.4g} Hz)" for t in moved)
        found = f"{rates} put on the {len(clock.stamps_ns)} stamps of {clock.name} ({clock.rate_hz:.4g} Hz)"
        done = f"interpolated within gaps of at most {MAX_GAP_N} steps"
        findings.add("resampled", found, "one clock", done)
    for track in moved:
        if n := int(missing[track.name].sum()):
            found = f"{track.name} has no pose at {n} of {len(clock.stamps_ns)} frames"
            where, done = f"{path} {track.name}", "those frames are invalid; name the bodies that count to leave it out"
            findings.add("unmatched", found, "every body at every frame", done, where=where)


# --------------------------------------------------------------------------------------------------------- joints


def _joints(
    path: Path, heard: _Heard, recordings_n: int, findings: FileFindings, actions: list[Finding]
) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """(stamps, positions) of every joint, one pair a recording; what is done to its rows joins `actions`."""
    out: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    left: list[str] = []
    for name, (stamps, values) in heard.joints.items():
        stamps_ns, positions = np.array(stamps, np.int64), np.array(values, np.float64)
        try:
            order = order_of(stamps_ns, where=f"{path} joint {name}")
        except InputError:
            left.append(name)
            continue
        if len(order.recordings) != recordings_n:
            left.append(name)
            continue
        different_n = sum(positions[a] != positions[b] for a, b in order.repeated)
        actions += order.actions(f"{path} joint {name}", stamps_ns, different_n, unit_s=1e-9, what="position")
        out[name] = [(stamps_ns[rows], positions[rows]) for rows in order.recordings]
    if left:
        found = f"stamps of {', '.join(left)[:200]} step back otherwise than those of the poses"
        findings.add("joints_left_out", found, "one clock", "left out")
    return out


def _gripper_width(joints: dict[str, np.ndarray], findings: FileFindings) -> np.ndarray | None:
    """Sum of the sliding finger joints; None where there are none. Hinged fingers (Robotiq's) tell no width."""
    sliding = re.compile(r"finger.*\d|(left|right).*finger|finger.*(left|right)|finger_.*slid")
    hinged = re.compile("robotiq|knuckle")
    names = [n for n in joints if sliding.search(n.lower()) and not hinged.search(n.lower())]
    if not names:
        return None
    summed, fingers = " + ".join(names), np.stack([joints[n] for n in names])
    known = fingers[~np.isnan(fingers)]
    reach = float(np.abs(known).max()) if known.size else np.inf
    if not reach <= WIDEST_M:
        findings.add("gripper_width", f"{summed} reach {reach:.3g}", f"metres up to {WIDEST_M:g}", "width is unknown")
        return None
    findings.add("gripper_width", summed, "sliding finger joints in metres", "their sum is the gripper's width")
    return fingers.sum(axis=0)
