"""Policies by name: a built-in's, an installed package's, or ``package.module:factory`` of one's own.

A factory is ``make(world, **options) -> Policy``; `World` says where the policy will act.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from jaxeval.io.spec import conf_dir
from jaxeval.policies.policy import Policy, World
from jaxeval.types import InputError

GROUP = "jaxeval.policies"
"""Entry points by which installed packages add policies."""
Factory = Callable[..., Policy]


@dataclass(frozen=True)
class Named:
    """A policy that has a name: ``factory`` as ``package.module:function``, its default ``options``.

    ``simulators``: where it acts, empty for anywhere.
    """

    factory: str
    simulators: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@cache
def named_policies() -> Mapping[str, Named]:
    """Policies of installed packages and of ``conf/policy/*.yaml``, by name."""
    import yaml

    found = {point.name: Named(point.value) for point in entry_points(group=GROUP)}
    for path in sorted((conf_dir() / "policy").glob("*.yaml")):
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        found[path.stem] = Named(raw["factory"], tuple(raw.get("simulators") or ()), raw.get("options") or {})
    return found


def policy_named(name: str, simulator: str) -> tuple[Factory, dict[str, Any]]:
    """The factory that a policy's name stands for, or ``package.module:factory``, and its default options.

    Modules in the current folder are found too.

    Raises:
        InputError: no such policy, module or factory, it does not act in this simulator, or it cannot be imported.
    """
    there = {n: p for n, p in named_policies().items() if not p.simulators or simulator in p.simulators}
    named = there.get(name, Named(name))
    module_name, colon, attribute = named.factory.partition(":")
    if not colon or not module_name or not attribute:
        where = f"; '{name}' does not act in {simulator}" if name in named_policies() else ""
        if Path(name).is_dir():
            where = "; a folder is given to the factory that reads it, by policy_options"
        raise InputError(
            f"policy '{name}': expected one of {', '.join(there)}, or package.module:factory of your own{where}; "
            "choose one of these"
        )
    factory: Any = loaded(module_name, attribute, f"policy '{name}'")
    if not callable(factory):
        raise InputError(
            f"policy '{name}': {attribute} is a {type(factory).__name__}; expected a function make(world, **options)"
        )
    make: Any = factory
    return make, dict(named.options)


def loaded(module_name: str, attribute: str, what: str) -> Any:
    """``attribute`` of a module, which may lie in the current folder; InputError begins with ``what``."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and not module_name.startswith(error.name):
            raise InputError(
                f"{what}: {module_name} needs the module '{error.name}', which is not installed"
            ) from error
        raise InputError(
            f"{what}: there is no module '{module_name}' in {here} or among what is installed; correct the name, or "
            "run the command where the file is"
        ) from error
    except Exception as error:
        said = next(iter(str(error).splitlines()), "")
        raise InputError(f"{what}: {module_name} cannot be imported ({type(error).__name__}: {said})") from error
    if not hasattr(module, attribute):
        raise InputError(f"{what}: {module_name} has no '{attribute}'; correct the name")
    return getattr(module, attribute)


def check_options(name: str, factory: Factory, options: Mapping[str, Any]) -> None:
    """InputError where a factory does not take these options, or lacks one."""
    signature = inspect.signature(factory)
    takes = [p.name for p in list(signature.parameters.values())[1:] if p.kind != p.VAR_KEYWORD]
    try:
        signature.bind(None, **options)
    except TypeError as error:
        there = f"it takes {', '.join(takes)}" if takes else "it takes none"
        raise InputError(f"policy_options of '{name}': {error}; {there}; correct the options") from error


def make_policy(name: str, world: World, options: Mapping[str, Any]) -> Policy:
    """A policy for a world; InputError where the factory makes something else."""
    factory, defaults = policy_named(name, world.simulator)
    policy = factory(world, **defaults | dict(options))
    if not isinstance(policy, Policy):
        raise InputError(
            f"policy '{name}': its factory made a {type(policy).__name__}; expected a jaxeval.policies.Policy"
        )
    return policy


def digest_of(name: str, simulator: str) -> dict[str, str]:
    """SHA-256 of the file that a policy outside this package stands in, which may change between two rollouts."""
    factory, _ = policy_named(name, simulator)
    if factory.__module__.split(".")[0] == "jaxeval":
        return {}
    try:
        path = inspect.getsourcefile(factory)
    except TypeError:
        return {}
    return {} if path is None else {"policy_sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
