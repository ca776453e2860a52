"""`jaxeval <verb> key=value ...`: finds the verb's configuration, hands it to `jaxeval.run`, prints what came of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERBS = {
    "fit": "learn a reference from demonstrations",
    "score": "measure every execution: geometric quality, smoothness, kinematics, tracking, stages, grasp",
    "report": "write one HTML page of a scored set, which needs no network",
    "demo": "fit, score and report on bundled ManiSkill executions",
    "inspect": "say what a file holds, and what each metric would lack",
    "convert": "write a store from any file; a LeRobotDataset, TUM files or a training file from any store",
    "propose": "draft a task spec from demonstrations, to edit",
    "rollout": "run a policy in ManiSkill or MuJoCo and keep what it did",
    "video": "draw an episode of a MuJoCo rollout as a film and pictures",
    "compare": "compare success, or any number, of two or more policies from the same starts, cell by cell",
    "plan": "say how many episodes an evaluation needs",
    "gather": "make one table and one figure of the runs of a multirun",
    "agree": "say whether raters agree with each other, and metrics with raters or with success",
}
TOLD_N = 8
"""Sentences about what was left out that are printed; the report has more."""


def main(argv: list[str] | None = None) -> int:
    """Run one verb; returns the exit code. Bad input is one sentence on stderr and exit code 1."""
    try:
        code = _main(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        code = _unread()
    return code


def _main(argv: list[str]) -> int:
    from jaxeval.cli_words import help_of

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
    if {"-h", "--help"} & set(argv[1:]):
        print(help_of(argv[0]))
        return 0
    return _hydra(argv[0], argv[1:])


def _unread() -> int:
    """Nobody reads what is printed: nothing more is, also not by the interpreter as it ends; returns the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    try:
        sys.stderr.flush()
    except BrokenPipeError:
        os.dup2(nowhere, sys.stderr.fileno())
    return 1


def _hydra(verb: str, words: list[str]) -> int:
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from jaxeval.cli_sweep import given as given_words
    from jaxeval.cli_sweep import keep_swept, register_resolvers
    from jaxeval.cli_words import check_experiment, overrides, what_hydra_says
    from jaxeval.io.compile_cache import keep_compiled_code
    from jaxeval.io.errors import InputError
    from jaxeval.io.spec import conf_dir

    code = 0

    def task(config: Any) -> None:
        nonlocal code
        try:
            keep_compiled_code()
            failed = _WORK[verb](_chosen(verb, config)) or 0
            code = max(code, failed)
            if _several() and verb == "score" and not failed:
                keep_swept(Path(_out(config)), verb)
        except InputError as error:
            print(f"jaxeval {verb}: {error}", file=sys.stderr)
            code = 1
        except OmegaConfBaseException as error:
            print(f"jaxeval {verb}: {what_hydra_says(error)}", file=sys.stderr)
            code = 1
        except KeyboardInterrupt:
            print(f"jaxeval {verb}: interrupted; nothing half-written was left", file=sys.stderr)
            raise SystemExit(130) from None  # and so that a multirun does not go on
        except BrokenPipeError:
            raise SystemExit(_unread()) from None

    try:
        given = overrides(verb, words)
        check_experiment(verb, given)
        given_words[:] = given
        register_resolvers()
        sys.argv = [f"jaxeval {verb}", *given]
        os.environ["HYDRA_FULL_ERROR"] = "1"  # its errors come here, and are not printed
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=verb)(task)()
    except InputError as error:
        print(f"jaxeval {verb}: {error}", file=sys.stderr)
        return 1
    except (HydraException, OmegaConfBaseException) as error:
        print(f"jaxeval {verb}: {what_hydra_says(error)}", file=sys.stderr)
        return 1
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    return code


# ---------------------------------------------------------------------------------------------------------- settings


def _number(options: dict[str, Any], key: str) -> float:
    """A setting that is a number, or one sentence."""
    from jaxeval.io.errors import InputError

    if not isinstance(value := options[key], (int, float)) or isinstance(value, bool):
        raise InputError(f"{key} is {value!r}, expected a number; correct the setting")
    return value


def _whole(options: dict[str, Any], key: str, most: int = 2**32 - 1) -> int:
    """A setting that is a whole number from 0, or one sentence."""
    from jaxeval.io.errors import InputError

    value = options[key]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= most or value != int(value):
        raise InputError(f"{key} is {value!r}, expected a whole number from 0 to {most}; correct the setting")
    return int(value)


def _text(options: dict[str, Any], key: str, *, needed: bool = False) -> str | None:
    """A setting that is one name; None where it may be left out and is."""
    from jaxeval.io.errors import InputError
    from jaxeval.io.tables import name_of

    value = options[key]
    name = None if isinstance(value, (list, dict)) else name_of(value)
    if name is None and (needed or value is not None):
        found = "null" if value is None else repr(value)
        raise InputError(f"{key} is {found}, expected one name; give {key}=NAME")
    return name


def _texts(options: dict[str, Any], key: str) -> list[str] | None:
    """A setting that is a list of names, of which one may stand alone; None where it is left out."""
    from jaxeval.io.errors import InputError
    from jaxeval.io.tables import name_of

    value = options[key]
    values = value if isinstance(value, list) or value is None else [value]
    if bad := [v for v in values or () if isinstance(v, (list, dict)) or name_of(v) is None]:
        raise InputError(f"{key} holds {bad[0]!r}, expected names; give {key}=NAME or {key}=[NAME,NAME]")
    return None if values is None else [str(name_of(v)) for v in values]


def _required(config: Any, *keys: str) -> None:
    from omegaconf import OmegaConf

    from jaxeval.io.errors import InputError

    if missing := [k for k in keys if OmegaConf.is_missing(config, k)]:
        wanted = " ".join(f"{k}=..." for k in missing)
        raise InputError(f"{', '.join(missing)} is not given; expected {wanted}; see `{sys.argv[0]} --help`")


def _out(config: Any) -> Path:
    """Output folder: `out`, or the job's own subfolder of it in a multirun."""
    from hydra.core.hydra_config import HydraConfig

    from jaxeval.io.errors import InputError

    if _several():
        return Path(HydraConfig.get().runtime.output_dir)
    if not isinstance(config.out, str) or not config.out:
        raise InputError(
            f"out is {'null' if config.out is None else config.out}, expected a folder or file to write; give out=PATH"
        )
    return Path(config.out)


def _chosen(verb: str, config: Any) -> Any:
    """The configuration without what only Hydra reads, as `debug=` cuts it down for this verb."""
    from omegaconf import OmegaConf, open_dict

    with open_dict(config):
        for key in ("verb", "experiment"):
            config.pop(key, None)
        less = config.pop("debug", None)
    return OmegaConf.merge(config, less.get(verb) or {}) if less else config


def _several() -> bool:
    """Whether this job is one of a multirun's."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return HydraConfig.get().mode == RunMode.MULTIRUN


def _params(config: Any) -> Any:
    from omegaconf import OmegaConf

    from jaxeval.io.errors import InputError
    from jaxeval.metrics.geometric import GeometricParams

    try:
        return GeometricParams(**OmegaConf.to_container(config.metric, resolve=True)).check()  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InputError(f"{error}; correct the setting") from error


def _settings(config: Any) -> dict[str, Any]:
    """Params of every metric whose settings the configuration holds, by the metric's name."""
    from omegaconf import OmegaConf

    from jaxeval.io.errors import InputError
    from jaxeval.metrics.registry import all_metrics

    options: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    out: dict[str, Any] = {}
    for metric in all_metrics().values():
        if (given := options.get(metric.block)) is None:
            continue
        try:
            params = metric.Params(**{k: _frozen(v) for k, v in given.items()})
            out[metric.name] = params.check() if hasattr(params, "check") else params
        except (TypeError, ValueError) as error:
            raise InputError(f"{error}; correct the setting", code="setting", key=metric.block) from error
    return out


def _frozen(value: Any) -> Any:
    """Lists as tuples, {key: value} as a tuple of pairs: what a static setting may be."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return tuple((k, _frozen(v)) for k, v in value.items()) if isinstance(value, dict) else value


def _source(episodes: Any, options: Any = None, *, notes: bool = True) -> Any:
    from omegaconf import ListConfig, OmegaConf

    from jaxeval.io.source import open_source

    given: dict[str, Any] = {} if options is None else OmegaConf.to_container(options, resolve=True)  # type: ignore[assignment]
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    source = open_source(list(episodes) if isinstance(episodes, ListConfig) else str(episodes), **given)
    for _, sentence in source.refused:
        print(f"refused: {sentence}", file=sys.stderr)
    for sentence in source.notes if notes else ():
        print(f"note: {sentence}", file=sys.stderr)
    return source


def _propose(config: Any) -> None:
    from omegaconf import OmegaConf

    from jaxeval.io.errors import InputError
    from jaxeval.run import propose as run
    from jaxeval.segment.change_points import ChangePointParams

    _required(config, "episodes", "out")
    try:
        params = ChangePointParams(**OmegaConf.to_container(config.change_points, resolve=True)).check()  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InputError(f"{error}; correct the setting") from error
    keys = ("by", "name", "instruction", "gripper", "support", "demonstrations_n", "overwrite")
    given = {k: config[k] for k in keys} | dict(config.language_model)
    made = run.propose(_source(config.episodes, config.options), out=config.out, params=params, **given)
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

    chosen = config.metrics
    chosen = None if chosen is None else [chosen] if isinstance(chosen, str) else list(chosen)
    if config.columns:
        print(run.columns_table(chosen))
        return
    _required(config, "episodes")
    settings = _settings(config)
    reference, about = (None, {}) if config.reference is None else load_reference(config.reference)
    source = _source(config.episodes, config.options, notes=False)
    out = _out(config)
    scores = run.score(
        reference,
        source,
        metrics=chosen,
        spec=None if config.spec is None else Path(config.spec),
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


def _gather(config: Any) -> None:
    from jaxeval.run import gather as run

    _required(config, "runs")
    gathered = run.gather(str(config.runs), value=config.value)
    print(run.text(gathered))
    print(f"gathered: {gathered.table}")


def _inspect(config: Any) -> None:
    import json

    from jaxeval.run import inspect as run
    from jaxeval.run.score import open_folder

    _required(config, "episodes")
    found = run.inspect(_source(config.episodes, config.options), episodes_n=config.episodes_n, progress=True)
    print(run.text(found))
    if config.out is not None:
        path = open_folder(config.out) / "inspection.json"
        path.write_text(json.dumps(run.as_json(found), indent=1) + "\n", encoding="utf-8")
        print(f"inspection: {path}")


def _convert(config: Any) -> None:
    from omegaconf import OmegaConf

    from jaxeval.run import convert as run

    _required(config, "episodes", "out")
    options: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    keys = ("to", "group", "rename", "bodies", "clean", "fps", "precision", "overwrite")
    given = {k: options[k] for k in keys} | {"task": options["task_name"]}
    made = run.convert(_source(config.episodes, config.options), config.out, progress=True, **given)
    print(run.text(made))
    print(f"{made.kind}: {made.path}")


def _rollout(config: Any) -> int:
    from omegaconf import OmegaConf

    from jaxeval.cli_sweep import keep_swept
    from jaxeval.cli_words import LISTS
    from jaxeval.io.errors import InputError
    from jaxeval.io.spec import task_names
    from jaxeval.run import rollout as run

    settings: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    for group in ("task", "policy"):
        own, chosen = settings.pop(f"own_{group}"), settings.pop(group, None)
        settings[group] = own if own is not None else chosen["name"] if isinstance(chosen, dict) else chosen
    task, env_id = settings.pop("task"), settings.get("env_id")
    task = env_id if task is None else task
    if not isinstance(task, str):
        raise InputError(
            f"task is not given; expected task=..., one of {', '.join(task_names())}, or env_id= of ManiSkill's; "
            "choose one of these"
        )
    settings.pop("out")
    given = {k: v for k, v in settings.items() if v is not None and v != {}}
    for key in LISTS & given.keys():
        given[key] = given[key] if isinstance(given[key], list) else [given[key]]
    out = _out(config)
    embodiment = given.get("embodiment") or given.get("robot")
    if _several():  # a store is of one task, embodiment and policy
        parts = [Path(str(embodiment)).stem if embodiment else "", str(given.get("policy", "")).replace(":", ".")]
        out = out / name if (name := "_".join(filter(None, parts))) else out
    made = run.rollout(task, out, **given, configuration=given | {"task": task}, progress=True)
    if _several():
        keep_swept(made.store.path, "rollout")
    print(run.table(made))
    print(f"store: {made.store.path}")
    # demonstrations of which none succeeded; of other policies, and where a fault is planted, that may be so
    script = given.get("policy", "oracle") == "oracle" and made.outcomes[0].group == "demonstrations"
    return 1 if script and not made.successes_n else 0


def _video(config: Any) -> None:
    from jaxeval.io.store import open_store
    from jaxeval.run import video as run
    from jaxeval.run.score import open_folder

    _required(config, "episodes")
    setting = run.Setting(**{k: config[k] for k in ("fps", "playback", "width", "height", "camera")}).check()
    store, out = open_store(str(config.episodes)), open_folder(_out(config))
    print(run.text(run.video(store, out, episode=config.episode, setting=setting, progress=True)))


def _compare(config: Any) -> None:
    from omegaconf import OmegaConf

    from jaxeval.io.errors import InputError
    from jaxeval.io.records import read_records
    from jaxeval.report import comparison_values as V
    from jaxeval.report.comparison import printed, write_comparison
    from jaxeval.run import compare as run
    from jaxeval.run.score import open_folder

    _required(config, "records", "a", "b")
    options: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    judged: dict[str, Any] = {
        k: _number(options, k) for k in ("level", "margin") if options[k] is not None or k == "level"
    }
    judged |= {k: _whole(options, k) for k in ("resamples_n", "seed")}
    given: dict[str, Any] = {k: _text(options, k) for k in ("by", "success", "value")}
    given |= {k: _text(options, k, needed=True) for k in ("better", "pairing", "pair_on")}
    settings = run.Settings(**judged, correction=_text(options, "correction", needed=True))  # type: ignore[arg-type]
    settings.check(of_rates=given["value"] is None)
    if bad := [k for k in ("nominal", "last") if isinstance(options[k], (list, dict))]:
        raise InputError(f"{bad[0]} is {options[bad[0]]!r}, expected one level of `by`; correct the setting")
    columns = options["columns"] or {}
    if not isinstance(columns, dict):
        raise InputError(f"columns is {columns!r}, expected a column for a name; give columns.policy=COLUMN")
    given |= {"columns": {k: _text(columns, k, needed=True) for k in columns}}
    a, b = _text(options, "a", needed=True), _texts(options, "b")
    if not a or not b:
        raise InputError("b is empty, expected a policy to compare with; give b=NAME or b=[NAME,NAME]")
    given |= {k: options[k] for k in ("nominal", "last")} | {"conditions": _texts(options, "conditions")}
    out = _out(config)
    records = read_records(options["records"], columns=given.pop("columns"), names=(given["pair_on"],))
    made = run.compare(records, a, b, settings=settings, **given)
    for sentence in made.refused[:TOLD_N]:
        print(f"left out: {sentence}", file=sys.stderr)
    if (more := len(made.refused) - TOLD_N) > 0:
        print(f"left out: {more} more, see the report", file=sys.stderr)
    for note in made.notes:
        print(f"note: {note}", file=sys.stderr)
    if isinstance(made, V.ValueComparison):
        print(V.printed(made))
        print(f"report: {V.write_value_comparison(made, open_folder(out))}")
        return
    print(printed(made))
    print(f"report: {write_comparison(made, open_folder(out))}")


def _plan(config: Any) -> None:
    from omegaconf import OmegaConf

    from jaxeval.report.tables import plain_text
    from jaxeval.run.plan import COLUMNS, plan

    print(plain_text(plan(**OmegaConf.to_container(config, resolve=True)), COLUMNS))  # type: ignore[arg-type]


def _agree(config: Any) -> None:
    from omegaconf import OmegaConf

    from jaxeval.io.errors import InputError
    from jaxeval.io.tables import NAMES
    from jaxeval.report.agreement import table, write
    from jaxeval.run import agree as run
    from jaxeval.run.score import open_folder

    _required(config, "metrics")
    options: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    lower = tuple(_texts(options, "lower") or ())
    settings = run.Settings(_number(options, "level"), _whole(options, "resamples_n"), _whole(options, "seed"), lower)
    files = _texts(options, "metrics")
    if not files:
        raise InputError("metrics is empty, expected at least one table of scores; give metrics=FILE")
    fit, by = options["fit"], _text(options, "holdout")
    if fit is not None:
        fit = _texts(options, "fit") if by in NAMES else fit if isinstance(fit, list) else [fit]
    out = _out(config)
    made = run.agree(
        files,
        _text(options, "ratings"),
        columns=_texts(options, "columns"),
        success=_text(options, "success"),
        holdout=by,
        fit=fit,
        given=_texts(options, "given") or (),
        settings=settings,
    )
    print(table(made))
    print(f"agreement: {write(made, open_folder(out))[0]}")


_WORK: dict[str, Callable[[Any], int | None]] = {"propose": _propose, "rollout": _rollout, "video": _video, "fit": _fit,
    "score": _score, "report": _report, "demo": _demo, "inspect": _inspect, "convert": _convert,
    "compare": _compare, "plan": _plan, "agree": _agree, "gather": _gather}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
