"""Every package that is imported is declared in pyproject.toml, and the lock files hold it."""

import ast
import re
import sys
import tomllib

import pytest

from tests.architecture.sources import (
    ROOT,
    Source,
    all_imports,
    imports_by_name,
    read_sources,
)

# Files whose calls that import by name pass on a name from elsewhere, or name no other package.
PASS_ON = {
    "benchmarks/__main__.py",
    "maskwright/__init__.py",
    "maskwright/cli/main.py",
    "maskwright/extras.py",
    "maskwright/corpus/readers/pydocs.py",
    "maskwright/data/masking.py",
    "maskwright/interop/targets.py",
    "maskwright/objectives/config.py",
    "tests/interop/test_export.py",
    "tests/preparation/test_engines.py",
    "tests/test_public_interface.py",
}
OWN = {"maskwright", "benchmarks", "docs", "examples", "tests"}
INVENTED = {"broken_package", "nowhere"}  # by tests about packages that are not there
DISTRIBUTIONS = {
    "google": "google-auth",
    "llama_cpp": "llama-cpp-python",
    "markdown_it": "markdown-it-py",
    "sklearn": "scikit-learn",
    "triton": "torch",  # whose builds for GPUs bring it
    "yaml": "pyyaml",
}
FOR_DEVELOPERS = ("dev", "docs", "golden", "parity", "lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# Read once for all tests of this kind.
SOURCES = read_sources("maskwright", "examples", "benchmarks", "docs/tools", "tests")
LOCKS = {"requirements.lock": ["plots"], "requirements-dev.lock": ["plots", "dev"]}


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> set[str]:
    """Return the distributions that pip installs for these extras, those of the core included."""
    found: set[str] = set()
    for requirement in [*PROJECT["dependencies"], *(r for e in extras for r in EXTRAS[e])]:
        name, inner = re.findall(r"^([\w.-]+)(?:\[([^]]*)\])?", requirement)[0]
        if name == "maskwright":
            found |= declared(*inner.split(","))
        else:
            found.add(normalize(name))
    return found


def package_of(module: str) -> str:
    """Return the distribution that brings a module of somebody else."""
    top = module.partition(".")[0]
    return DISTRIBUTIONS.get(top, normalize(top))


def modules_of(source: Source) -> set[str]:
    """Return the modules of others that a file imports, at its top, late or by name."""
    ours = OWN | INVENTED | sys.stdlib_module_names
    return {module for module in all_imports(source) if module.partition(".")[0] not in ours}


@pytest.mark.parametrize(
    ("folders", "extras"),
    [
        (("maskwright",), set(EXTRAS) - set(FOR_DEVELOPERS)),
        (("benchmarks", "docs/tools", "examples", "tests"), set(EXTRAS)),
    ],
)
def test_every_import_is_declared(folders: tuple[str, ...], extras: set[str]) -> None:
    known = declared(*extras)
    missing = {
        f"{source.name} imports {module}: declare {package_of(module)} in pyproject.toml"
        for source in SOURCES
        if source.module.partition(".")[0] in folders
        for module in modules_of(source)
        if package_of(module) not in known
    }
    assert missing == set()


def test_an_extra_that_a_message_names_brings_the_package() -> None:
    calls = [
        (source.name, call, modules)
        for source in SOURCES
        if source.module.startswith("maskwright.")
        for call, modules in imports_by_name(source)
        if len(call.args) > 2 and isinstance(call.args[1], ast.Constant)
    ]
    assert len(calls) > 5
    wrong = [
        (name, module, ast.unparse(call.args[1]))
        for name, call, modules in calls
        for module in modules
        if package_of(module) not in declared(ast.literal_eval(call.args[1]))
    ]
    assert wrong == []


def test_no_helper_hides_what_it_imports() -> None:
    hidden = [
        f"{source.name}:{call.lineno}"
        for source in SOURCES
        if source.name not in PASS_ON
        for call, modules in imports_by_name(source)
        if not modules
    ]
    assert hidden == []


def test_imports_of_every_kind_are_found() -> None:
    lines = [
        "import a.b",
        "def f():",
        "    from c import d",
        "    import_library('e.f', 'onnx', 'x')",
        "    importlib.import_module('g')",
        "    for module in ('h', 'i'):",
        "        find_spec(module)",
    ]
    text = "\n".join(lines)
    source = Source(ROOT / "x.py", "x", text)
    assert modules_of(source) == {"a.b", "c.d", "e.f", "g", "h", "i"}


def read_pins(name: str) -> dict[str, set[str]]:
    """Return the versions of each distribution in a file of pins; by marker there may be two."""
    pins: dict[str, set[str]] = {}
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if found := re.match(r"([\w.-]+)==([\w.+!]+)", line):
            pins.setdefault(normalize(found[1]), set()).add(found[2])
    return pins


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_is_up_to_date(name: str) -> None:
    locked, constraints = read_pins(name), read_pins("constraints.txt")
    assert declared(*LOCKS[name]) - {"torch"} - locked.keys() == set(), "run: make lock"
    differing = {p for p in locked.keys() & constraints.keys() if locked[p] != constraints[p]}
    assert differing == set(), "run: make lock"


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_holds_hashes_and_no_place(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"://|^-|^/|@ ", text, re.MULTILINE)
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if not entry.startswith("#")]
    assert entries
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("name", LOCKS)
def test_torch_and_what_it_needs_on_a_gpu_is_left_to_pip(name: str) -> None:
    """CPU and CUDA builds have one version and different hashes."""
    of_torch = re.compile("torch|triton|cuda-.*|nvidia-.*")
    assert [package for package in read_pins(name) if of_torch.fullmatch(package)] == []


def test_both_lock_files_agree() -> None:
    core, dev = (read_pins(name) for name in LOCKS)
    assert {name for name, versions in core.items() if dev.get(name) != versions} == set()
