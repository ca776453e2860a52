"""Interaction pairs by the symmetries of their bodies: each combination of symmetries is one set of formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxeval import se3
from jaxeval.types import Pair, Reference, Symmetry, TaskSpec


class PairGroup(NamedTuple):
    """Pairs that declare the same symmetries (static): one set of formulas for all of them."""

    members: tuple[int, ...]
    symmetry_a: Symmetry
    symmetry_b: Symmetry


def pair_groups(spec: TaskSpec, pairs: tuple[Pair, ...], members: Sequence[int]) -> tuple[PairGroup, ...]:
    """The pairs of these indices by the symmetries of their two bodies, in order of appearance."""
    found: dict[tuple[Symmetry, Symmetry], list[int]] = {}
    for j in members:
        found.setdefault((spec.body(pairs[j].a).symmetry, spec.body(pairs[j].b).symmetry), []).append(j)
    return tuple(PairGroup(tuple(js), a, b) for (a, b), js in found.items())


def over_pairs(f: Callable[..., Any], spec: TaskSpec, pairs: tuple[Pair, ...], scale: Array, *rows: Any) -> Any:
    """``f(geometry, *row)`` for every pair, vmapped over the pairs that declare the same symmetries.

    ``rows`` have the pair axis first. Symmetries are static, so each distinct combination is compiled once.
    """
    groups = pair_groups(spec, pairs, range(len(pairs)))
    parts = []
    for members, a, b in groups:
        index = jnp.asarray(members)
        pick = (lambda x: x) if len(groups) == 1 else (lambda x, i=index: x[i])
        run = jax.vmap(lambda s, *row, a=a, b=b: f(se3.PairGeometry(s, a, b), *row))
        parts.append(run(pick(scale), *jax.tree.map(pick, rows)))
    if len(parts) == 1:
        return parts[0]
    back = np.argsort([j for group in groups for j in group.members])
    return jax.tree.map(lambda *x: jnp.concatenate(x)[back], *parts)


def scored_pairs(reference: Reference, bodies: tuple[str, ...]) -> tuple[int, ...]:
    """Indices of the reference's pairs whose bodies are all among ``bodies``."""
    return tuple(j for j, p in enumerate(reference.pairs) if p.a in bodies and p.b in bodies)
