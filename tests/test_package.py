"""The package as a whole: what importing it loads, what may import what, what travels in the wheel."""

import ast
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "jaxeval"
MODULES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = sorted(p for folder in ("experiments", "benchmarks", "tools") for p in (ROOT / folder).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

CORE = ("types", "linalg", "door", "se3", "align", "metrics", "stats")
CORE_MAY_IMPORT = {"jax", "jaxlie", "jaxtyping", "numpy", "jaxeval"}
HOST_MAY_IMPORT = {"scipy", "sklearn", "statsmodels"}  # inside functions of files named *_host.py
HEAVY = {"h5py", "hydra", "jinja2", "matplotlib", "mujoco", "omegaconf", "pandas", "pyarrow", "ray", "scipy", "torch"}
VAGUE = {"utils", "helpers", "common", "base"}
OPENS_NO_TEXT = ("jaxeval/io/readers/rosbag2.py", "jaxeval/io/readers/mcap.py")
"""They open bags, by methods of that name."""
MAX_LINES = 600


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node, node.module.split(".")[0]


# ------------------------------------------------------------------------------------------------------- import


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    return set(json.loads(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)))


def test_importing_jaxeval_loads_nothing_heavy() -> None:
    loaded = loaded_by("import jaxeval") - loaded_by("import jax, jaxlie, jaxtyping")
    assert not loaded & HEAVY


def test_importing_jaxeval_changes_no_jax_setting() -> None:
    code = "import jax; before = dict(jax.config.values); import jaxeval; assert dict(jax.config.values) == before"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# ------------------------------------------------------------------------------------------- the dependency rule


def core_modules() -> list[Path]:
    return [p for p in MODULES if p.relative_to(PACKAGE).parts[0].removesuffix(".py") in CORE]


@pytest.mark.parametrize("path", core_modules(), ids=name)
def test_core_imports_only_arrays(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    at_top = {id(node) for node in tree.body}
    for node, module in imports(tree):
        lazy_host = path.stem.endswith("_host") and id(node) not in at_top and module in HOST_MAY_IMPORT
        allowed = module in CORE_MAY_IMPORT or module in sys.stdlib_module_names or lazy_host
        assert allowed, f"{name(path)} imports {module}"


def test_only_se3_imports_jaxlie() -> None:
    found = {name(p) for p in MODULES if "jaxlie" in {m for _, m in imports(ast.parse(p.read_text(encoding="utf-8")))}}
    assert found <= {"jaxeval/se3.py"}


# --------------------------------------------------------------------------------------------------- the sources


def test_no_file_is_over_the_limit() -> None:
    lines = {name(p): len(p.read_text(encoding="utf-8").splitlines()) for p in [*MODULES, *SCRIPTS, *TESTS]}
    assert not {p: n for p, n in lines.items() if n > MAX_LINES}


def test_no_module_has_a_vague_name() -> None:
    named = [p for p in MODULES if VAGUE & set(p.relative_to(PACKAGE).with_suffix("").parts)]
    assert not named


def test_text_is_read_and_written_in_a_named_encoding() -> None:
    """Python's default is the machine's: a name with an accent would be another one elsewhere."""
    found = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            named = {k.arg for k in node.keywords}
            texts = [a.value for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Constant)]
            binary = any(isinstance(t, str) and "b" in t for t in texts) and called == "open"
            if called == "read_text" and not node.args and "encoding" not in named:
                found.append(f"{name(path)}:{node.lineno}")
            if called == "write_text" and isinstance(node.func, ast.Attribute) and "encoding" not in named:
                found.append(f"{name(path)}:{node.lineno}")
            is_file = called == "open" and (isinstance(node.func, ast.Name) or not node.args or texts)
            if is_file and not binary and "encoding" not in named and name(path) not in OPENS_NO_TEXT:
                found.append(f"{name(path)}:{node.lineno}")
    assert not found


def test_nothing_is_left_unfinished() -> None:
    unfinished = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")))
    found = {name(p): m.group() for p in [*MODULES, *SCRIPTS] if (m := unfinished.search(p.read_text("utf-8")))}
    assert not found


# ----------------------------------------------------------------------------------------------------- the locks


def test_locks_are_exact_hashed_and_free_of_addresses() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        entries = lock.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
        assert all(re.match(r"[\w.\-\[\]]+==[\w.+!]+ .*--hash=sha256:[0-9a-f]{64}", entry) for entry in entries), lock
        assert "://" not in lock.read_text(encoding="utf-8")


def test_the_core_lock_is_part_of_the_dev_lock_and_has_no_torch() -> None:
    core, dev = (
        set(re.findall(r"^\S+==[^\s;]+", (ROOT / "requirements" / lock).read_text("utf-8"), re.MULTILINE))
        for lock in ("core.txt", "dev.txt")
    )
    assert core
    assert core <= dev
    assert not [pin for pin in core if pin.startswith("torch")]


# ----------------------------------------------------------------------------------------------------- the wheel


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel, built from the source archive, and that archive."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT], check=True)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


@pytest.mark.slow
def test_the_wheel_holds_configuration_and_data(built: tuple[Path, Path]) -> None:
    members = set(zipfile.ZipFile(built[0]).namelist())
    here = {f"jaxeval/{name(p)}" for p in (ROOT / "conf").rglob("*.yaml")}
    here |= {name(p) for p in (PACKAGE / "data").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert here
    assert here <= members


@pytest.mark.slow
def test_archives_name_no_place_on_anybodys_machine(built: tuple[Path, Path]) -> None:
    place = re.compile(rb"/(?:home|root|Users|work)/\w|pypi\.(?:org)|files\.python(?:hosted)")
    with zipfile.ZipFile(built[0]) as wheel:
        contents = {member: wheel.read(member) for member in wheel.namelist()}
    with tarfile.open(built[1]) as source:
        contents |= {m.name: file.read() for m in source if (file := source.extractfile(m))}
    found = {member: m.group() for member, content in contents.items() if (m := place.search(content))}
    assert not found


@pytest.mark.slow
def test_the_wheel_runs_the_demo_in_an_empty_folder(
    built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a new environment that sees the installed dependencies but not the clone."""
    monkeypatch.setenv("JAX_NUMPY_RANK_PROMOTION", "allow")  # as a user runs it
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    environment, work = tmp_path / "env", tmp_path / "work"
    work.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.check_output([python, "-c", ask], text=True).strip())
    # A folder named in a .pth file is searched, but its own .pth files (the editable install) are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python]
    subprocess.run([*install, built[0]], check=True)

    where = subprocess.check_output([python, "-c", "import jaxeval; print(jaxeval.__file__)"], text=True, cwd=work)
    assert Path(where.strip()).is_relative_to(environment)
    done = subprocess.run([python, "-m", "jaxeval.cli", "demo"], cwd=work, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1].startswith("report: ")
    assert subprocess.run([environment / "bin" / "jaxeval", "--help"], cwd=work, capture_output=True).returncode == 0
