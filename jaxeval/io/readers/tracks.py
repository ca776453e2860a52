"""Tracks: the poses of one body on its own clock, and how several come onto one (host, float64, NumPy).

Stamps are int64 nanoseconds until differences are taken: seconds since 1970 in a float64 resolve only 0.24 us.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxeval.io.cleaning import order_of
from jaxeval.io.poses import composed, interpolated, unit
from jaxeval.types import Finding

Stamps = Int[np.ndarray, " n"]
MAX_GAP_N = 5
"""Between two samples more than this many median steps of a track apart, nothing is interpolated."""


@dataclass(frozen=True)
class Track:
    """Poses ``T_frame_body`` (wxyz_xyz) of one body at increasing stamps."""

    name: str
    stamps_ns: Stamps
    poses: Float[np.ndarray, "n 7"]

    @property
    def step_ns(self) -> float:
        """Median step; 0 for a single sample."""
        return float(np.median(np.diff(self.stamps_ns))) if len(self.stamps_ns) > 1 else 0.0

    @property
    def rate_hz(self) -> float:
        """Samples a second by the median step; 0 for a single sample."""
        return 1e9 / self.step_ns if self.step_ns else 0.0


def seconds_from(stamps_ns: Stamps, start_ns: int) -> Float[np.ndarray, " n"]:
    """Seconds after `start_ns`, subtracted as integers."""
    return (stamps_ns - start_ns) / 1e9


def recordings_of(track: Track, *, where: str) -> tuple[list[Track], list[Finding]]:
    """The track's rows in order, one track a recording where its stamps step back for good, and findings about
    what was changed.

    Raises:
        InputError: the stamps are in no order at all.
    """
    order = order_of(track.stamps_ns, where=where)
    different = sum(not np.array_equal(track.poses[a], track.poses[b], equal_nan=True) for a, b in order.repeated)
    actions = order.actions(where, track.stamps_ns, different, unit_s=1e-9)
    return [Track(track.name, track.stamps_ns[rows], track.poses[rows]) for rows in order.recordings], actions


# ------------------------------------------------------------------------------------------------------ one clock


def nearest_rows(track: Track, base_ns: Stamps, *, within_ns: float) -> tuple[np.ndarray, np.ndarray]:
    """(rows of the track, frames of the clock) that belong together: nearest stamps, at most `within_ns` apart.

    A row belongs to one frame, and of several rows nearest to a frame the closest counts.
    """
    after = np.clip(np.searchsorted(base_ns, track.stamps_ns), 0, len(base_ns) - 1)
    before = np.maximum(after - 1, 0)
    distance = np.abs(np.stack([base_ns[before], base_ns[after]]) - track.stamps_ns[None])
    frame = np.where(distance[0] < distance[1], before, after)
    distance = distance.min(axis=0)
    rows = np.flatnonzero(distance <= within_ns)
    closest = rows[np.lexsort((distance[rows], frame[rows]))]
    _, first = np.unique(frame[closest], return_index=True)
    return closest[first], frame[closest[first]]


def on_stamps(
    track: Track, wanted_ns: Stamps, *, max_gap_n: int = MAX_GAP_N
) -> tuple[Float[np.ndarray, "m 7"], Bool[np.ndarray, " m"]]:
    """([m, 7] poses at the wanted stamps, where known); NaN before the first sample, after the last, within gaps.

    A stamp that is a sample's is that sample. Between two samples at most `max_gap_n` median steps apart, positions
    are linear and rotations follow the great circle.
    """
    before, after, f, known = _brackets(track.stamps_ns, wanted_ns, max_gap_n * track.step_ns)
    p, r = (np.concatenate([unit(T[:, :4]), T[:, 4:]], axis=-1) for T in (track.poses[before], track.poses[after]))
    poses = interpolated(p, r, f[:, None])
    poses = np.where((before == after)[:, None], track.poses[after], poses)
    return np.where(known[:, None], poses, np.nan), known


def values_on_stamps(
    stamps_ns: Stamps, values: Float[np.ndarray, " n"], wanted_ns: Stamps, *, max_gap_n: int = MAX_GAP_N
) -> Float[np.ndarray, " m"]:
    """[m] values at the wanted stamps, linear between samples; NaN outside and within gaps as in `on_stamps`."""
    step = float(np.median(np.diff(stamps_ns))) if len(stamps_ns) > 1 else 0.0
    before, after, f, known = _brackets(stamps_ns, wanted_ns, max_gap_n * step)
    between = np.where(before == after, values[after], (1 - f) * values[before] + f * values[after])
    return np.where(known, between, np.nan)


def _brackets(stamps: Stamps, wanted: Stamps, max_gap: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(sample before, sample after, fraction between, whether known) for each wanted stamp; an exact one is both."""
    after = np.clip(np.searchsorted(stamps, wanted), 0, len(stamps) - 1)
    before = np.where(stamps[after] == wanted, after, np.maximum(after - 1, 0))
    gap = stamps[after] - stamps[before]
    known = (wanted >= stamps[0]) & (wanted <= stamps[-1]) & (gap <= max_gap)
    fraction = (wanted - stamps[before]) / np.maximum(gap, 1)
    return before, after, np.where(known, fraction, 0.0), known


def compose(T_a_b: Float[np.ndarray, "n 7"], T_b_c: Float[np.ndarray, "n 7"]) -> Float[np.ndarray, "n 7"]:
    """``T_a_c`` row by row, of quaternions that are normalised first; a row of zero quaternions becomes NaN."""
    return composed(*(np.concatenate([unit(T[:, :4]), T[:, 4:]], axis=-1) for T in (T_a_b, T_b_c)))
