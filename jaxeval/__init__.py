"""jaxeval: how well a manipulation was done, not only whether it succeeded.

Table of contents: :class:`Episode` (what happened), :class:`TaskSpec` (what the task is), :class:`GeometricParams` (how
a metric is set), :class:`Reference` (what was learned from demonstrations), and the metrics, pure functions of one
episode. Files are read by ``jaxeval.io``, people read ``jaxeval.report``, verbs are ``jaxeval.run``.
"""

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
