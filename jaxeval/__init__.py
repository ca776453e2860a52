"""jaxeval: how well a manipulation was done, not only whether it succeeded.

Table of contents: :class:`Episode` (what happened), :class:`TaskSpec` (what the task is), :class:`GeometricParams` (how
a metric is set), :class:`Reference` (what was learned from demonstrations), and the metrics, pure functions of one
episode. The verbs of a notebook, loaded when they are first asked for:

    open_source, episode, episodes_from_table     episodes from files, arrays and tables
    load_spec, load_reference, fit                what the task is, and what demonstrations teach of it
    score, score_episode, compare                 how well it was done, and which of two is better
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxeval.align import Alignment as Alignment
from jaxeval.align import align_episode as align_episode
from jaxeval.metrics.geometric import GeometricParams as GeometricParams
from jaxeval.metrics.geometric import GeometricQuality as GeometricQuality
from jaxeval.metrics.geometric import constraints as constraints
from jaxeval.metrics.geometric import fit_reference as fit_reference
from jaxeval.metrics.geometric import geometric_quality as geometric_quality
from jaxeval.metrics.kinematic import KinematicParams as KinematicParams
from jaxeval.metrics.kinematic import kinematic_quality as kinematic_quality
from jaxeval.metrics.kinematic import manipulability as manipulability
from jaxeval.metrics.smoothness import SmoothnessParams as SmoothnessParams
from jaxeval.metrics.smoothness import motion_quality as motion_quality
from jaxeval.metrics.smoothness import sparc as sparc
from jaxeval.metrics.tracking import TrackingParams as TrackingParams
from jaxeval.metrics.tracking import tracking_quality as tracking_quality
from jaxeval.types import Episode as Episode
from jaxeval.types import Finding as Finding
from jaxeval.types import Reference as Reference
from jaxeval.types import TaskSpec as TaskSpec
from jaxeval.types import pad_episodes as pad_episodes

if TYPE_CHECKING:
    from jaxeval.io.in_memory import episode as episode
    from jaxeval.io.in_memory import episodes_from_table as episodes_from_table
    from jaxeval.io.source import open_source as open_source
    from jaxeval.io.spec import load_spec as load_spec
    from jaxeval.run.compare import compare as compare
    from jaxeval.run.names import fit as fit
    from jaxeval.run.names import load_reference as load_reference
    from jaxeval.run.names import score as score
    from jaxeval.run.names import score_episode as score_episode

_LAZY = {
    "open_source": "jaxeval.io.source",
    "episode": "jaxeval.io.in_memory",
    "episodes_from_table": "jaxeval.io.in_memory",
    "load_spec": "jaxeval.io.spec",
    "load_reference": "jaxeval.run.names",
    "fit": "jaxeval.run.names",
    "score": "jaxeval.run.names",
    "score_episode": "jaxeval.run.names",
    "compare": "jaxeval.run.compare",
}
"""Names that need more than JAX, and where they are."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'jaxeval' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
