"""One enumeration of statuses: a member a sentence, and the sentences that people read in scores.parquet."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval.metrics.registry import Column, Context, Facts, Metric, Needs, all_metrics, columns_of
from jaxeval.metrics.status import SENTENCES, Status
from jaxeval.types import pytree

READ_IN_SCORES = {
    "ok", "fewer than two valid frames", "no pinned direction in any frame: nothing to judge", "insufficient tracking",
    "no motion", "too short", "has gaps", "fps too low", "time stamps repeat or run backward",
    "bad input: a valid frame is not finite, or a speed is negative",
    "more frames in the jerk window than jerk_half_n allows", "no valid frame",
    "no joint angles, and no pose of the tip to find them from", "no frame with both an estimate and a true pose",
    "bad input: a valid pose is not finite", "a signal is not finite, or a rotation is not a unit quaternion",
    "no valid step", "the object was never held before the insertion",
    "the object was never acquired before the release", "no valid step from the lift on",
    "no joint has a finite velocity limit", "no two successive valid steps from the lift on", "closure", "no closure",
    "degenerate: the wrenches span fewer than six directions, see rank",
    "bad input: a valid contact is not finite, has no unit normal or no friction, or none is valid",
    "the episode did not come so far", "no finger touched",
}  # fmt: skip
"""Those of stores that were scored before all stood in one place: scripts may look for them."""


def test_every_sentence_is_one_member_and_ok_is_0() -> None:
    assert len(SENTENCES) == len(set(SENTENCES.values())) == len(Status)
    assert set(SENTENCES.values()) >= READ_IN_SCORES
    assert Status.OK == 0 and all("\n" not in sentence for sentence in SENTENCES.values())


def test_a_code_survives_tracing_and_is_told_as_its_sentence() -> None:
    code = jax.jit(lambda x: jnp.where(x > 0, Status.OK, Status.GAPS))(jnp.array([1.0, -1.0]))
    assert code.dtype == jnp.int32 and Status(int(code[1])) is Status.GAPS

    @pytree
    class Nothing:
        pass

    own = {7: "the moon is up"}
    columns = (Column("a.status", "status"), Column("b.status", "status", sentences=own))
    metric = Metric("a", Nothing, Needs(), lambda *_: {}, columns, section="a")
    measured = {"a.status": np.asarray(code), "b.status": np.array([7, 7])}
    told = columns_of(metric, measured, Facts(Context(), {}, [None, None]))
    assert told == {"a.status": ["ok", "has gaps"], "b.status": ["the moon is up"] * 2}


def test_no_metric_of_the_package_has_sentences_of_its_own() -> None:
    own = [c.name for m in all_metrics().values() for c in m.columns if c.sentences is not None]
    assert own == []
