"""Trials 3 to 7: records that make a paired comparison wrong without a word, and what is said of them here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jaxeval.io.errors import InputError
from jaxeval.io.records import Records
from jaxeval.io.records.pairing import pair_runs
from jaxeval.run.compare import Settings, compare

QUICK = Settings(resamples_n=2000)
Row = dict[str, Any]


def rows(policy: str, n: int, make: Callable[[int], Row]) -> list[Row]:
    """Runs 0 .. n - 1 of a policy, with what ``make`` says of each."""
    known = {"policy": policy, "training_seed": None, "task": "t", "success_once": None, "success_at_end": None,
             "initial_condition_id": None, "initial_condition_hash": None}  # fmt: skip
    return [known | {"episode": k} | make(k) for k in range(n)]


def records(*parts: list[Row]) -> Records:
    every = tuple(row for part in parts for row in part)
    return Records(every, tuple(f"row {k}" for k in range(len(every))))


def test_trial_3_episodes_of_two_speeds_joined_on_their_index() -> None:
    """Speed 1 ran with seeds 1000, 1001, ..., speed 2 with 2000, ...: episode 17 is not episode 17."""

    def runs(policy: str, first: int, hashed: bool) -> list[Row]:
        def make(k: int) -> Row:
            hash_ = {"initial_condition_hash": f"{first + k:x}"} if hashed else {}
            return {"seed": first + k, "success_at_end": k % 3 > 0} | hash_

        return rows(policy, 100, make)

    slow, fast = runs("slow", 1000, hashed=True), runs("fast", 2000, hashed=True)
    joined = pair_runs(slow, fast, key="episode")
    assert not joined.pairs and len(joined.mismatched) == 100
    assert (
        "100 of 100 pairs of equal episode did not begin alike: initial_condition_hash differs at 0, 1"
        in joined.problem
    )
    # without hashes the environment's seeds tell as much
    bare = pair_runs(runs("slow", 1000, hashed=False), runs("fast", 2000, hashed=False), key="episode")
    assert not bare.pairs and "seed differs at 0, 1, 2, 3, 4 and 95 more" in bare.problem
    with pytest.raises(InputError, match=r"cannot be paired.*pairing=auto"):
        compare(records(slow, fast), "slow", "fast", pair_on="episode", settings=QUICK)


def test_trial_3_the_refusal_names_the_key_that_would_match() -> None:
    expert = rows("expert", 100, lambda k: {"initial_condition_id": f"run1/{k}", "initial_condition_hash": f"{k:x}",
                                            "success_at_end": True})  # fmt: skip
    act = rows("act", 100, lambda k: {"initial_condition_id": f"run2/{k}", "initial_condition_hash": f"{99 - k:x}",
                                      "success_at_end": k % 2 == 0})  # fmt: skip
    with pytest.raises(InputError) as refused:
        compare(records(expert, act), "expert", "act", settings=QUICK)
    assert "no initial_condition_id of expert is one of act" in str(refused.value)
    assert "initial_condition_hash matches in 100 of 100" in str(refused.value)
    assert "episode matches but its starts differ in 100 of 100" in str(refused.value)
    told = compare(records(expert, act), "expert", "act", pair_on="initial_condition_hash", settings=QUICK).cells[0]
    assert told["pairing"] == "paired" and (told["both"], told["a_only"]) == (50, 50)


def test_trial_4_excluded_episodes_and_unequal_denominators() -> None:
    def make(failures: int, excluded: int) -> Callable[[int], Row]:
        return lambda k: {"initial_condition_id": str(k), "initial_condition_hash": str(k), "success_at_end":
                          k >= failures, "excluded": "sensor lost" if k < excluded else None}  # fmt: skip

    told = compare(records(rows("a", 100, make(33, 2)), rows("b", 100, make(33, 0))), "a", "b", settings=QUICK).cells[0]
    assert (told["a_k"], told["a_n"], told["b_k"], told["b_n"]) == (67, 98, 67, 100)
    assert (told["a_recorded_n"], told["a_excluded_n"], told["b_excluded_n"]) == (100, 2, 0)
    assert told["a_rate"] == pytest.approx(67 / 98) and told["b_rate"] == pytest.approx(0.67)
    assert told["pairs_n"] == 98 and told["difference"] == 0  # over the 98 that both counted, not .684 - .67
    for part in (
        "a: 2 excluded (sensor lost) of 100 (were they failures: 67/100)",
        "unequal denominators, 67/98 and 67/100: the difference is over the 98 pairs",
    ):
        assert part in told["note"]


def test_trial_5_stages_that_are_not_nested() -> None:
    def make(k: int) -> Row:
        return {"initial_condition_id": str(k), "initial_condition_hash": str(k), "success_at_end": True,
                "stage.lifted": True, "stage.pre_insertion": k < 88, "stage.inserted": True}  # fmt: skip

    made = compare(records(rows("a", 100, make), rows("b", 100, make)), "a", "b", settings=QUICK)
    told = {r["stage"]: (r["k"], r["n"]) for r in made.stages if r["policy"] == "a"}
    assert told == {"lifted": (100, 100), "pre_insertion": (88, 100), "inserted": (100, 100), "success": (100, 100)}
    notes = [n for n in made.notes if n.startswith("stages are not nested")]
    assert len(notes) == 1 and "88 pre_insertion, 100 inserted" in notes[0] and "as they are" in notes[0]


def test_trial_5_a_stage_that_nobody_recorded_is_not_one_that_was_not_reached() -> None:
    def make(k: int) -> Row:
        return {"initial_condition_id": str(k), "success_at_end": True, "stage.grasped": None if k < 8 else True,
                "stage.lifted": k != 9}  # fmt: skip

    made = compare(records(rows("a", 10, make), rows("b", 10, make)), "a", "b", settings=QUICK)
    told = {r["stage"]: (r["k"], r["n"], r["unknown_n"]) for r in made.stages if r["policy"] == "a"}
    assert told["grasped"] == (2, 2, 8) and told["lifted"] == (9, 10, 0)
    assert not [n for n in made.notes if "not nested" in n]  # of the 2 that say both, 2 grasped and 1 lifted


def test_trial_4_training_seeds_that_only_one_side_ran() -> None:
    """a with seeds 0, 1, 2 and b with 2, 3, 4: 50 of 150 runs a side have a partner."""

    def runs(policy: str, first: int) -> list[Row]:
        return [r for seed in range(first, first + 3) for r in rows(policy, 50, lambda k: {
            "initial_condition_id": str(k), "training_seed": seed, "success_at_end": (k + seed) % 3 > 0})]  # fmt: skip  # noqa: B023

    told = compare(records(runs("a", 0), runs("b", 2)), "a", "b", settings=QUICK).cells[0]
    assert (told["pairs_n"], told["a_n"], told["b_n"]) == (50, 150, 150) and told["test"] == "exact McNemar"
    assert "100 of a's 150 runs (training seed 0, 1) are in no pair" in told["note"]
    assert "100 of b's 150 runs (training seed 3, 4) are in no pair" in told["note"]
    assert "unequal denominators" in told["note"] and "the difference is over the 50 pairs" in told["note"]
    # starts that the other did not run count with all their runs
    alone = [r | {"initial_condition_id": f"x{r['initial_condition_id']}"} for r in runs("a", 0)]
    told = compare(records([*runs("a", 0), *alone], rows("b", 50, lambda k: {
        "initial_condition_id": str(k), "success_at_end": k % 2 == 0})), "a", "b", settings=QUICK).cells[0]  # fmt: skip
    assert "50 of a's starts (150 runs) were not run by the other" in told["note"]


def test_trial_6_success_that_flickers() -> None:
    def make(once: int, at_end: int) -> Callable[[int], Row]:
        return lambda k: {"initial_condition_id": str(k), "initial_condition_hash": str(k), "success_once": k < once,
                          "success_at_end": k < at_end}  # fmt: skip

    both = records(rows("a", 40, make(30, 30)), rows("b", 40, make(30, 18)))
    by_end = compare(both, "a", "b", settings=QUICK)
    told = by_end.cells[0]
    assert told["success"] == "success_at_end" and (told["b_k"], told["b_success_once_k"]) == (18, 30)
    assert any("12 of 80 episodes succeeded once and not at the end" in n and "success_at_end is used" in n
               for n in by_end.notes)  # fmt: skip
    once = compare(both, "a", "b", success="success_once", settings=QUICK).cells[0]
    assert once["success"] == "success_once" and (once["b_k"], once["b_success_at_end_k"]) == (30, 18)
    assert told["difference"] == pytest.approx(0.3) and once["difference"] == 0


def test_trial_7_same_index_another_start() -> None:
    """68 of 100 starts differ, as where a batch collects the first episodes to finish."""
    expert = rows("expert", 100, lambda k: {"initial_condition_id": str(k), "initial_condition_hash": f"h{k}",
                                            "success_at_end": k < 84})  # fmt: skip
    policy = rows("dp", 100, lambda k: {"initial_condition_id": str(k), "success_at_end": k % 2 == 0,
                                        "initial_condition_hash": f"h{k}" if k < 32 else f"x{k}"})  # fmt: skip
    with pytest.raises(InputError) as refused:
        compare(records(expert, policy), "expert", "dp", settings=QUICK)
    assert "68 of 100 pairs of equal initial_condition_id did not begin alike" in str(refused.value)
    assert "initial_condition_hash differs at 32, 33, 34, 35, 36 and 63 more" in str(refused.value)
    told = compare(records(expert, policy), "expert", "dp", pairing="auto", settings=QUICK).cells[0]
    assert told["pairing"] == "unpaired" and told["interval"] == "Newcombe" and told["test"] == "Boschloo"
    assert "68 of 100 pairs" in told["note"] and told["note"].startswith("unpaired")
    assert (told["a_k"], told["b_k"]) == (84, 50) and told["low"] < 0.34 < told["high"]
    assert "both" not in told and "bootstrap_low" not in told
    # asked for nothing: unpaired, and said
    told = compare(records(expert, policy), "expert", "dp", pairing="none", settings=QUICK).cells[0]
    assert told["pairing"] == "unpaired" and "unpaired as asked" in told["note"]
