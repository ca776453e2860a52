"""What every estimator returns: a value, its interval and a status that is a sentence; and what it is given."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, Shaped

Scalar = int | float | np.number | Num[Array, ""] | Num[np.ndarray, ""]
"""One number: a count, a probability, a setting. Mapped over many with jax.vmap."""


class Status(Enum):
    """Why a value is what it is. A member's value is the sentence that people read; traced code holds its ``code``."""

    OK = "ok"
    NO_DATA = "no data: nothing was observed"
    CONSTANT = "constant: the values do not vary"
    ONE_CLASS = "one class: successes and failures are both needed"
    NO_DISCORDANT = "no discordant pairs: the two never differed on the same start"
    DEGENERATE = "degenerate: no finite value fits these data"
    NOT_ENOUGH = "not enough: more observations are needed"
    BAD_INPUT = "bad input: counts or values that cannot be"

    @property
    def code(self) -> int:
        """The member's place in the list, which is what arrays of statuses hold."""
        return _MEMBERS.index(self)

    @classmethod
    def of(cls, code: int | np.integer | Int[Array, ""]) -> Status:
        """The member with this code."""
        return _MEMBERS[int(code)]


_MEMBERS = tuple(Status)


class Estimate(NamedTuple):
    """A value with its interval. All NaN where the status says that there is none.

    With NO_DISCORDANT (and, where a docstring says so, others) value and interval are numbers: the status is a warning.
    """

    value: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    status: Int[Array, ""]


class Test(NamedTuple):
    """A p-value with its status; NaN where there is none."""

    __test__ = False  # pytest: not a test case

    p: Float[Array, ""]
    status: Int[Array, ""]


class PairCounts(NamedTuple):
    """Outcomes of a and b on the same starts: both succeeded, a alone, b alone, neither."""

    both: Scalar
    a_only: Scalar
    b_only: Scalar
    neither: Scalar

    @property
    def n(self) -> Shaped[Array, ""]:
        """Pairs."""
        return jnp.asarray(self.both) + self.a_only + self.b_only + self.neither


def is_level(level: Scalar) -> Bool[Array, ""]:
    """Whether a confidence level is one: between 0 and 1, both left out, as the float in use holds it."""
    level = jnp.asarray(level, jnp.result_type(float))
    return (level > 0) & (level < 1)


def status_of(*cases: tuple[Array | bool, Status]) -> Int[Array, ""]:
    """The code of the first case whose condition holds, OK when none does; conditions broadcast."""
    code = jnp.asarray(Status.OK.code, jnp.int32)
    for condition, status in reversed(cases):
        code = jnp.where(condition, jnp.int32(status.code), code)
    return code
