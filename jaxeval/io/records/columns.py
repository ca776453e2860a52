"""What columns of records and `scores.parquet` mean: those that no metric owns stand here, others in the registry.

Nothing is guessed from a name: where nobody says which direction is better, `direction_of` is None.
"""

from __future__ import annotations

from typing import Literal

from jaxeval.metrics.registry import Column, described

Direction = Literal["higher", "lower"]

OWN = (
    Column("episode", "text", meaning="name or number of the episode"),
    Column("task", "text", meaning="task that it was scored as"),
    Column("group", "text", meaning="group that the source put it in"),
    Column("findings", "text", meaning="codes of what was noticed about the recording"),
    Column("mended", "text", meaning="what was changed in the recording before it was measured, sentences"),
    Column("length", "count", unit="frames", meaning="frames of the episode, invalid ones included"),
    Column("success_once", "truth", direction="higher", meaning="whether the episode succeeded at any moment"),
    Column("success_at_end", "truth", direction="higher", meaning="whether the episode had succeeded when it ended"),
    Column("seed", "count", meaning="seed of the environment"),
    Column("training_seed", "count", meaning="seed with which the policy was trained"),
    Column("speed", meaning="execution speed, times nominal"),
    Column("told_speed", meaning="execution speed that the policy was told, times nominal"),
    Column("initial_condition_id", "text", meaning="which start it is: equal where starts were meant to be the same"),
    Column("initial_condition_hash", "text", meaning="hash of the start: equal where starts were the same"),
    Column("source", "text", meaning="file that it was read from"),
)
"""Columns that no metric owns."""
_BY_NAME = {c.name: c for c in OWN}


def meaning_of(column: str) -> Column | None:
    """What a column means; None where nobody says.

    >>> meaning_of("length").unit, meaning_of("smoothness.path_m.reach").unit, meaning_of("my_number")
    ('frames', 'm', None)
    """
    return _BY_NAME.get(column) or described(column)


def direction_of(column: str) -> Direction | None:
    """Which values of a column are better: "higher", "lower", or None where neither is or nobody says.

    >>> direction_of("success_at_end"), direction_of("cost.cubeA | table"), direction_of("my_number")
    ('higher', 'lower', None)
    """
    meaning = meaning_of(column)
    return None if meaning is None else meaning.direction  # type: ignore[return-value]
