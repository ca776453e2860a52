"""`jaxeval <verb> key=value ...`: finds the verb's configuration, hands it to `jaxeval.run`, prints what came of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERBS = {
    "fit": "learn a reference from demonstrations",
    "score": "geometric quality, smoothness, kinematics, tracking: any of them, of every execution",
    "report": "one self-contained HTML of a scored set",
    "demo": "all three on the bundled ManiSkill executions",
    "inspect": "what a file holds, and what each metric would lack",
    "convert": "a store from any file; LeRobotDataset and TUM from any store",
    "propose": "a task spec from demonstrations, to edit",
    "rollout": "run a policy in ManiSkill and keep what it did",
    "compare": "success of two or more policies from the same starts, cell by cell",
    "plan": "how many episodes an evaluation needs",
    "agree": "raters with each other, metrics with raters or with success",
}


OPEN = ("columns.", "records.", "rename.", "options.", "tracking.tracks.")
"""Settings whose keys are the person's own names."""


def main(argv: list[str] | None = None) -> int:
    """Run one verb; returns the exit code. Bad input is one sentence on stderr and exit code 1."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        print("usage: jaxeval <verb> [key=value ...] [-m for a multirun]\n")
        print("\n".join(f"  {verb:8} {means}" for verb, means in VERBS.items()))
        print("\n`jaxeval <verb> --help` shows the verb's settings.")
        return 0
    if argv[0] == "--version":
        from importlib.metadata import version

        print(version("jaxeval"))
        return 0
    if argv[0] not in VERBS:
        print(f"jaxeval: no verb '{argv[0]}'; expected one of {', '.join(VERBS)}", file=sys.stderr)
        return 2
    return _hydra(argv[0], argv[1:])


def _hydra(verb: str, overrides: list[str]) -> int:
    import hydra

    from jaxeval.io.errors import InputError
    from jaxeval.io.spec import conf_dir

    code = 0

    def task(config: Any) -> None:
        nonlocal code
        try:
            _compilation_cache()
            code = max(code, _WORK[verb](config) or 0)
        except InputError as error:
            print(f"jaxeval {verb}: {error}", file=sys.stderr)
            code = 1
        except KeyboardInterrupt:
            print(f"jaxeval {verb}: interrupted; nothing half-written was left", file=sys.stderr)
            raise SystemExit(130) from None  # and so that a multirun does not go on

    if verb in ("inspect", "convert"):  # a path may stand alone: jaxeval inspect FILE
        overrides = [f"episodes='{o}'" if "=" not in o and not o.startswith("-") else o for o in overrides]
    overrides = [f"++{o}" if o.startswith(OPEN) else o for o in overrides]
    sys.argv = [f"jaxeval {verb}", *overrides]
    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=verb)(task)()
    except SystemExit as stop:  # hydra ends so on a bad override, after saying which
        return stop.code if isinstance(stop.code, int) else 1
    return code


def _compilation_cache() -> None:
    """Keep compiled code between runs; JAX_COMPILATION_CACHE_DIR moves it."""
    import jax

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        jax.config.update("jax_compilation_cache_dir", str(home / "jaxeval"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _required(config: Any, *keys: str) -> None:
    from omegaconf import OmegaConf

    from jaxeval.io.errors import InputError

    if missing := [k for k in keys if OmegaConf.is_missing(config, k)]:
        wanted = " ".join(f"{k}=..." for k in missing)
        raise InputError(f"{', '.join(missing)} is not given; expected {wanted}; see `{sys.argv[0]} --help`")


def _out(config: Any) -> Path:
    """Output folder: `out`, or the job's own subfolder of it in a multirun."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    hydra_config = HydraConfig.get()
    return Path(hydra_config.runtime.output_dir) if hydra_config.mode == RunMode.MULTIRUN else Path(config.out)


def _params(config: Any) -> Any:
    from omegaconf import OmegaConf

    from jaxeval.io.errors import InputError
    from jaxeval.metrics.geometric import GeometricParams

    try:
        return GeometricParams(**OmegaConf.to_container(config.metric, resolve=True)).check()  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InputError(f"{error}; correct the setting") from error


def _settings(config: Any) -> Any:
    from omegaconf import OmegaConf

    from jaxeval.io.errors import InputError
    from jaxeval.metrics.kinematic import KinematicParams
    from jaxeval.metrics.smoothness import SmoothnessParams
    from jaxeval.metrics.tracking import TrackingParams
    from jaxeval.run.score import Settings
    from jaxeval.run.score_motion import ArmSetting

    told: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    smoothness, kinematic, tracking = (dict(told[k]) for k in ("smoothness", "kinematic", "tracking"))
    base = kinematic.pop("T_world_base")
    try:
        arm = ArmSetting(
            T_world_base=None if base is None else tuple(map(float, base)),
            **{k: kinematic.pop(k) for k in ("robot", "base_link", "tip_link", "pool")},
        )
        return Settings(
            body=smoothness.pop("body"),
            tracks=tuple((tracking.pop("tracks") or {}).items()),
            smoothness=SmoothnessParams(**smoothness).check(),
            kinematic=KinematicParams(**kinematic).check(),
            tracking=TrackingParams(**tracking).check(),
            arm=arm,
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"{error}; correct the setting") from error


def _source(episodes: Any, options: Any = None) -> Any:
    from omegaconf import ListConfig, OmegaConf

    from jaxeval.io.source import open_source

    given: dict[str, Any] = {} if options is None else OmegaConf.to_container(options, resolve=True)  # type: ignore[assignment]
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    source = open_source(list(episodes) if isinstance(episodes, ListConfig) else str(episodes), **given)
    for _, sentence in source.refused:
        print(f"refused: {sentence}", file=sys.stderr)
    return source


def _propose(config: Any) -> None:
    from jaxeval.run import propose as run

    _required(config, "episodes", "out")
    keys = ("by", "name", "instruction", "gripper", "support", "demonstrations_n", "overwrite")
    given = {k: config[k] for k in keys} | dict(config.language_model)
    made = run.propose(_source(config.episodes, config.options), out=config.out, **given)
    for episode, why in made.left_out:
        print(f"left out: {episode}: {why}")
    for note in made.notes:
        print(f"note: {note}")
    print(run.table(made))
    print(f"spec: {made.path}")


def _fit(config: Any) -> None:
    from omegaconf import OmegaConf

    from jaxeval.io.reference import save_reference
    from jaxeval.io.spec import load_spec, spec_from_dict
    from jaxeval.run import fit as run

    _required(config, "episodes")
    source = _source(config.episodes)
    if config.spec is not None:
        spec = load_spec(Path(config.spec))
    elif config.get("task") is not None:
        spec = spec_from_dict(OmegaConf.to_container(config.task, resolve=True), where="task")
    else:
        spec = load_spec(source.task)
    made = run.fit_source(
        source, spec, demonstrations_n=config.demonstrations_n, bins_n=config.bins_n, deviation=config.deviation
    )
    for episode, why in made.left_out:
        print(f"left out: {episode}: {why}")
    for note in made.notes:
        print(f"note: {note}")
    path = save_reference(
        _out(config), made.reference, about=run.provenance(made, source, OmegaConf.to_container(config))
    )
    print(run.table(made))
    print(f"reference: {path}")


def _score(config: Any) -> None:
    from jaxeval.io.reference import load_reference
    from jaxeval.run import score as run

    _required(config, "episodes")
    params, settings = _params(config), _settings(config)
    reference, about = (None, {}) if config.reference is None else load_reference(config.reference)
    source = _source(config.episodes, config.options)
    out = _out(config)
    chosen = config.metrics
    scores = run.score(
        reference,
        source,
        params,
        metrics=None if chosen is None else [chosen] if isinstance(chosen, str) else list(chosen),
        settings=settings,
        out=out,
        frames=config.frames,
        batch_n=config.batch_n,
        progress=True,
        about={} if reference is None else {"reference": str(config.reference), "demonstrations": about},
    )
    for note in scores.notes:
        print(f"note: {note}", file=sys.stderr)
    print(run.table(scores))
    print(f"scores: {out / run.SCORES}")


def _report(config: Any) -> None:
    from jaxeval.run.report import report

    _required(config, "scores")
    reference, out = (None if given is None else Path(given) for given in (config.reference, config.out))
    print(f"report: {report(Path(config.scores), reference, out)}")


def _demo(config: Any) -> None:
    from jaxeval.run.demo import demo

    print(f"report: {demo(_out(config), _params(config))}")


def _inspect(config: Any) -> None:
    import json

    from jaxeval.run import inspect as run
    from jaxeval.run.score import open_folder

    _required(config, "episodes")
    found = run.inspect(_source(config.episodes, config.options), episodes_n=config.episodes_n, progress=True)
    print(run.text(found))
    if config.out is not None:
        path = open_folder(config.out) / "inspection.json"
        path.write_text(json.dumps(run.as_json(found), indent=1) + "\n")
        print(f"inspection: {path}")


def _convert(config: Any) -> None:
    from omegaconf import OmegaConf

    from jaxeval.run import convert as run

    _required(config, "episodes", "out")
    told: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    keys = ("to", "group", "rename", "bodies", "clean", "fps", "precision", "overwrite")
    given = {k: told[k] for k in keys} | {"task": told["task_name"]}
    made = run.convert(_source(config.episodes, config.options), config.out, progress=True, **given)
    print(run.text(made))
    print(f"{made.kind}: {made.path}")


def _rollout(config: Any) -> int:
    from omegaconf import OmegaConf

    from jaxeval.io.errors import InputError
    from jaxeval.io.spec import task_names
    from jaxeval.run import rollout as run

    told: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    if not isinstance(spec := told.pop("task", None), dict):
        raise InputError(f"task is not given; expected task=..., one of {', '.join(task_names())}; choose one of these")
    told.pop("out")
    for key in ("tilt_deg", "fault"):
        told[key] = told[key] if told[key] is None or isinstance(told[key], list) else [told[key]]
    made = run.rollout(spec["name"], _out(config), **told, configuration=told | {"task": spec["name"]}, progress=True)
    print(run.table(made))
    print(f"store: {made.store.path}")
    return 0 if made.successes_n or told["fault"] else 1  # a stalled run is not meant to succeed


def _compare(config: Any) -> None:
    from omegaconf import OmegaConf

    from jaxeval.report.comparison import printed, write_comparison
    from jaxeval.run import compare as run
    from jaxeval.run.score import open_folder

    _required(config, "records", "a", "b")
    told: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    settings = run.Settings(**{k: told[k] for k in ("level", "margin", "correction", "resamples_n", "seed")})
    keys = ("by", "success", "pairing", "pair_on", "conditions", "nominal", "last", "columns")
    made = run.compare(told["records"], told["a"], told["b"], settings=settings, **{k: told[k] for k in keys})
    for sentence in made.refused:
        print(f"left out: {sentence}", file=sys.stderr)
    for note in made.notes:
        print(f"note: {note}", file=sys.stderr)
    print(printed(made))
    print(f"report: {write_comparison(made, open_folder(_out(config)))}")


def _plan(config: Any) -> None:
    from omegaconf import OmegaConf

    from jaxeval.report.tables import plain_text
    from jaxeval.run.plan import COLUMNS, plan

    print(plain_text(plan(**OmegaConf.to_container(config, resolve=True)), COLUMNS))  # type: ignore[arg-type]


def _agree(config: Any) -> None:
    from omegaconf import OmegaConf

    from jaxeval.report.agreement import table, write
    from jaxeval.run import agree as run
    from jaxeval.run.score import open_folder

    _required(config, "metrics")
    told: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    settings = run.Settings(told["level"], told["resamples_n"], told["seed"], tuple(told["lower"]))
    keys = ("columns", "success", "holdout", "fit", "given")
    made = run.agree(told["metrics"], told["ratings"], **{k: told[k] for k in keys}, settings=settings)
    print(table(made))
    print(f"agreement: {write(made, open_folder(_out(config)))[0]}")


_WORK: dict[str, Callable[[Any], int | None]] = {"propose": _propose, "rollout": _rollout, "fit": _fit,
    "score": _score, "report": _report, "demo": _demo, "inspect": _inspect, "convert": _convert,
    "compare": _compare, "plan": _plan, "agree": _agree}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
