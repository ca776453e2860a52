"""The words behind `jaxeval <verb>`: which settings there are, and what a person typed as Hydra reads it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from jaxeval.io.errors import InputError
from jaxeval.io.readers.text_tables import number
from jaxeval.io.spec import conf_dir
from jaxeval.io.tables import name_of

OPEN = ("columns.", "records.", "rename.", "options.", "tracking.tracks.", "policy_options.")
"""Settings whose keys are the person's own names."""
PATHS = ("episodes", "records", "ratings", "metrics", "reference", "scores", "spec", "out", "runs")
TEXTS = {
    "compare": ("a", "b", "by", "conditions", "success", "value", "better", "pairing", "pair_on"),
    "agree": ("columns", "lower", "success", "holdout", "given"),
    "video": ("episode", "camera"),
    "convert": ("task_name", "group", "bodies"),
    "propose": ("name", "instruction", "gripper", "support"),
    "rollout": ("policy", "embodiment", "robot", "env_id", "spec", "own_task", "own_policy"),
    "score": ("smoothness.body", "kinematic.robot", "kinematic.base_link", "kinematic.tip_link"),
}
"""Settings of a verb that are text however they look: a policy may be called 10000."""
LEVELS = {"compare": ("nominal", "last"), "agree": ("fit",)}
"""Settings that are numbers where they are written as numbers are, and text where not: a version may be called 1.10."""
LISTS = {"tilt_deg", "fault", "speed", "told_speed"}
"""Settings of a rollout that are one value or several, with commas or in brackets."""
BARE = {"inspect": True, "convert": True, "video": False, "gather": False}
"""Verbs in which a path may stand alone, `jaxeval inspect FILE`, and whether several may."""
PATH_KEY = {"gather": "runs"}
"""The setting that a path which stands alone is, where it is not ``episodes``."""
MULTIRUN = ("-m", "--multirun")
"""The options there are."""
CLOSEST_N = 3


def overrides(verb: str, words: list[str]) -> list[str]:
    """The words of a verb as Hydra reads them; InputError where one is no setting, no known one, or given twice."""
    asked = bool(set(MULTIRUN) & set(words))
    settings = [w for w in words if w not in MULTIRUN]
    presets = experiments(settings)
    several = asked or any((p.get("hydra") or {}).get("mode") == "MULTIRUN" for p in presets.values())
    added = {key for preset in presets.values() for key in preset}  # what a preset sweeps that is no setting by itself
    if options := [s for s in settings if s.startswith("-") and not Path(s).exists()]:
        raise InputError(f"{options[0]}: no such option, expected key=value, -m for a multirun, or --help; correct it")
    settings = _with_paths(verb, settings)
    _once(settings)
    for setting in settings:
        if setting.partition("=")[0] not in added - settings_of(verb).keys() - {"hydra", "verb"}:
            _known(verb, setting, several)
    settings = [_as_text(verb, s, several) for s in settings]
    for setting in settings:
        _readable(setting)
    settings = [f"++{s}" if s.startswith(OPEN) else s for s in settings]
    return [*MULTIRUN[:asked], *settings, *(_of_other_packages() if verb == "score" else ())]


def outside_metrics() -> dict[str, tuple[str, dict[str, Any]]]:
    """Of every metric of another package: block of settings -> (one line about them, settings with their defaults)."""
    from dataclasses import fields

    from jaxeval.metrics.registry import all_metrics

    own, out = __name__.split(".")[0] + ".", {}
    for metric in all_metrics().values():
        if not metric.measure.__module__.startswith(own):
            about = (metric.Params.__doc__ or metric.name).strip().splitlines()[0]
            out[metric.block] = about, {f.name: getattr(metric.Params(), f.name) for f in fields(metric.Params)}
    return out


def _of_other_packages() -> list[str]:
    """Overrides that bring in the settings of other packages' metrics, each a Hydra group of the block's name."""
    from hydra.core.config_store import ConfigStore

    for block, (_, defaults) in outside_metrics().items():
        ConfigStore.instance().store(group=block, name="default", node=defaults)
    return [f"+{block}=default" for block in outside_metrics()]


def what_hydra_says(error: Exception) -> str:
    """The first line of an error of Hydra's or OmegaConf's, which go on for many, as the sentence's beginning."""
    key = getattr(error, "full_key", None)
    says = str(error).strip().splitlines()[0].rstrip(".")
    return f"{f'{key}: ' if key else ''}{says}; expected settings as `--help` lists them; correct it"


def _with_paths(verb: str, words: list[str]) -> list[str]:
    """The words, with those that are paths and stand alone as `episodes`."""
    keys = settings_of(verb)

    def is_setting(word: str) -> bool:
        """A path may hold an equals sign; a setting's name comes before the first."""
        key, equals, _ = word.partition("=")
        return bool(equals) and (key.lstrip("+~").split(".")[0] in keys or not (verb in BARE and Path(word).exists()))

    settings = [w for w in words if is_setting(w)]
    paths = [w for w in words if not is_setting(w)]
    if not paths:
        return settings
    if verb not in BARE:
        likely = f", such as episodes={paths[0]}" if "episodes" in keys and Path(paths[0]).exists() else ""
        raise InputError(f"{paths[0]}: no setting, expected key=value{likely}; `jaxeval {verb} --help` lists the keys")
    name = PATH_KEY.get(verb, "episodes")
    if twice := [s for s in settings if s.partition("=")[0].lstrip("+") == name]:
        raise InputError(f"{paths[0]} and {twice[0]}: {name} are given twice, expected once; leave one out")
    if len(paths) > 1 and not BARE[verb]:
        raise InputError(f"{', '.join(paths)}: {len(paths)} paths, expected one; give one")
    if len(paths) == 1 and not Path(paths[0]).exists():
        return [*settings, f"{name}={paths[0]}"]
    value = _plain_text(paths[0]) if len(paths) == 1 else f"[{','.join(map(_plain_text, paths))}]"
    return [*settings, f"{name}={value}"]


def experiments(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Presets that the words choose, by name: ``experiment=NAME``, also with a plus, several, and in brackets."""
    import yaml

    values = [w.partition("=")[2] for w in words if w.partition("=")[0].lstrip("+") == "experiment"]
    names = [name.strip(" '\"") for value in values for name in value.strip("[]").split(",")]
    files = {name: conf_dir() / "experiment" / f"{name}.yaml" for name in names}
    return {name: yaml.safe_load(f.read_text(encoding="utf-8")) for name, f in files.items() if name and f.is_file()}


def check_experiment(verb: str, words: Sequence[str]) -> None:
    """InputError where an experiment on the command line is another verb's."""
    for name, preset in experiments(words).items():
        if (meant := preset["verb"]) != verb:
            raise InputError(f"experiment={name} is one of `jaxeval {meant}`; run `jaxeval {meant} experiment={name}`")


def _once(settings: list[str]) -> None:
    counts = Counter(s.partition("=")[0].lstrip("+") for s in settings)
    for key, times in counts.items():
        if times > 1:
            given = " ".join(s for s in settings if s.partition("=")[0].lstrip("+") == key)
            raise InputError(f"{key} is given {times} times ({given}), expected once; leave {times - 1} out")


@cache
def settings_of(verb: str) -> dict[str, Any]:
    """The settings of a verb as its configuration file has them, with those of the files that its groups choose."""
    import yaml

    settings = yaml.safe_load((conf_dir() / f"{verb}.yaml").read_text(encoding="utf-8"))
    settings = {k: v for k, v in settings.items() if k not in ("defaults", "hydra")}
    for group, chosen in chosen_of(verb).items():
        file = conf_dir() / group / f"{chosen}.yaml"
        settings[group] = None if chosen is None else yaml.safe_load(file.read_text(encoding="utf-8"))
    if verb == "score":
        settings |= {block: defaults for block, (_, defaults) in outside_metrics().items()}
    return settings


@cache
def chosen_of(verb: str) -> dict[str, str | None]:
    """The groups of a verb, and the file that each chooses unless told otherwise: {"task": None}."""
    text = (conf_dir() / f"{verb}.yaml").read_text(encoding="utf-8")
    return {group: None if name == "null" else name for group, name in re.findall(r"(?m)^  - (\w+): (\w+)$", text)}


def _files(group: str) -> list[str]:
    """What a setting that chooses a file may be: its file names without their suffix."""
    return sorted(p.stem for p in (conf_dir() / group).glob("*.yaml"))


def _known(verb: str, setting: str, several: bool) -> None:
    """InputError if the verb has no such setting, or nothing of the name that it is set to."""
    key, _, value = setting.partition("=")
    name, groups = key.lstrip("+"), chosen_of(verb)
    if name.startswith(("hydra.", "hydra/", *OPEN)):
        return
    if name.startswith("~"):
        raise InputError(f"{key}: a setting cannot be taken away, expected key=value; give {name[1:]}=null instead")
    if verb == "rollout" and _is_own(name, value):
        return
    if name in groups:
        for one in value.split(",") if several and not value.startswith(("glob(", "choice(")) else [value]:
            one = one.strip("'\" ")
            if one not in ("null", *_files(name)) and not one.startswith(("glob(", "choice(")):
                own = "; one of your own is given with spec=FILE" if "spec" in settings_of(verb) else ""
                own = (
                    "; one of your own is a YAML file or package.module:TASK, or env_id= and spec="
                    if verb == "rollout"
                    else own
                )
                raise InputError(f"{name}={one}: there is no such {name}, {_there(one, _files(name))}{own}; correct it")
        return
    level: Any = settings_of(verb)
    parts = name.split(".")
    for k, part in enumerate(parts):
        if k and parts[0] in groups and level is None:
            return  # of the file that the group chooses
        if not isinstance(level, dict) or part not in level:
            inside = ".".join(parts[:k])
            here = level if isinstance(level, dict) else {}
            names = [f"{inside}.{n}" if inside else n for n in here] or list(settings_of(verb))
            what = _there(name, names, _all(verb))
            raise InputError(f"{name}: no setting of `jaxeval {verb}`, {what}; `jaxeval {verb} --help` explains them")
        level = level[part]
    if isinstance(level, dict) and level and not value.startswith(("{", "${")):
        one = f"{name}.{next(iter(level))}"
        raise InputError(f"{setting}: {name} holds {', '.join(level)}, expected one of these; give {one}=...")


def _there(name: str, names: list[str], more: list[str] | None = None) -> str:
    """What a name that is not there could have been: those most like it, also among `more`, and all there are."""
    near = get_close_matches(name, list(dict.fromkeys([*names, *(more or ())])), CLOSEST_N)
    likely = f"closest: {', '.join(near)}; " if near else ""
    return f"{likely}expected one of {', '.join(names)}"


def _all(verb: str) -> list[str]:
    """Every setting of a verb, those inside others by their dotted names."""

    def names(level: dict[str, Any], before: str) -> list[str]:
        here = [f"{before}{k}" for k in level]
        return here + [n for k, v in level.items() if isinstance(v, dict) for n in names(v, f"{before}{k}.")]

    return names(settings_of(verb), "")


def _readable(setting: str) -> None:
    """InputError if Hydra cannot read a setting: a bracket that is not closed, say."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(setting)
    except HydraException as error:
        says = [s for s in str(error).splitlines() if s and not s.startswith(("Error parsing override", "See http"))]
        why = says[0].strip() if says else "it breaks off"
        key, _, value = setting.partition("=")
        raise InputError(
            f"{setting}: the value cannot be read ({why}), expected a word, a number, or [a,b]; "
            f"quote what holds brackets, commas or quotes: \"{key}='{value}'\""
        ) from error


def help_of(verb: str) -> str:
    """What a verb does and all its settings with their defaults, as its configuration file says them."""

    def described(path: Path) -> tuple[list[str], list[str]]:
        """The comment at the top, and the settings, without what is Hydra's."""
        lines = path.read_text(encoding="utf-8").splitlines()
        first = next(k for k, line in enumerate(lines) if not line.startswith("#"))
        settings, ours = [], True
        for line in lines[first:]:
            if line[:1].strip():
                ours = not line.startswith(("defaults:", "hydra:"))
            settings += [line] if ours and line.strip() else []
        return [line.removeprefix("#").removeprefix(" ") for line in lines[:first]], settings

    file = conf_dir() / f"{verb}.yaml"
    about, settings = described(file)
    out = [*about, "", "settings (key=value), their defaults, and ??? where one must be given:", *settings]
    for group, chosen in chosen_of(verb).items():
        if chosen is None:
            out += [f"{group}: null               # one of {', '.join(_files(group))}"]
        else:
            about, inner = described(conf_dir() / group / f"{chosen}.yaml")
            out += [f"{group}:{' ' * 18}# {' '.join(about)}", *(f"  {line}" for line in inner)]
    for block, (about, defaults) in (outside_metrics() if verb == "score" else {}).items():
        out += [f"{block}:{' ' * 18}# {about}", *(f"  {k}: {v}" for k, v in defaults.items())]
    return "\n".join(out)


def _as_text(verb: str, override: str, several: bool) -> str:
    """The override, quoted where Hydra would read a path or a name as something else, or not at all."""
    key, equals, value = override.partition("=")
    name = key.lstrip("+")
    if verb == "rollout" and _is_own(name, value):
        key = name = f"own_{name}"
    if verb == "rollout" and name in LISTS and "," in value and value[0] not in "[{'\"" and not several:
        return f"{key}=[{value}]"
    paths = () if verb == "rollout" else PATHS  # its episodes are a number
    if name in LEVELS.get(verb, ()):
        return f"{key}={re.sub(r'[^][,]+', lambda found: _written(found[0]), value)}"
    ours = name in paths or name in TEXTS.get(verb, ()) or name.startswith(("records.", "columns.", "rename."))
    if not equals or override.startswith("-") or not ours:
        return override
    if several and "," in value and value[0] not in "[{'\"" and not Path(value).exists():
        return f"{key}={','.join(map(_quoted, value.split(',')))}"
    return f"{key}={_quoted(value)}"


def _is_own(name: str, value: str) -> bool:
    """Whether a rollout's task or policy is no file of its group, but ``package.module:name`` or a package's policy."""
    if name == "policy":
        return value != "null" and not set(value.split(",")) <= set(_files("policy"))
    return name == "task" and (":" in value or value.endswith((".yaml", ".yml")))


def _quoted(value: str) -> str:
    """The value as Hydra's grammar reads it as text; lists and {key: value} element by element; null stays null."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if "${" in value or value[:1] in "'\"":
        return value
    if flat := re.fullmatch(r"\[([^][{}'\"]*)\]", value):
        return f"[{','.join(map(_quoted, flat[1].split(',')))}]"
    if flat := re.fullmatch(r"\{([^][{}'\"]*)\}", value):
        parts = (part.partition(":") for part in flat[1].split(","))
        return f"{{{','.join(k + colon + _quoted(v) for k, colon, v in parts)}}}"
    try:
        parsed = OverridesParser.create().parse_override(f"x={value}")
        read = parsed.value()
        if read is None or read == value.strip() or isinstance(read, (list, dict)):
            return value
        if parsed.is_sweep_override() and not Path(value).exists():
            return value
    except HydraException:
        if value[:1] in ("[", "{"):
            return value
    return _plain_text(value.strip())


def _written(value: str) -> str:
    """The value in quotes where it is a number that Python would write otherwise, and so a name."""
    try:
        return _plain_text(value) if value not in (name_of(number(value)), str(number(value))) else value
    except ValueError:
        return value


def _plain_text(value: str) -> str:
    """The value in quotes, as Hydra reads text."""
    text = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value)
    return f"'{text}'"
