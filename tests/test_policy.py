"""Rules of the house that a machine can check: layers, sizes, docstrings, names, the one jit policy."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYERS = ("isa", "fabric", "programs")  # each may import itself and those before it
MOST_LINES = 450
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
ALL_PYTHON = sorted([*MODULES, *(ROOT / "tests").glob("*.py"), *(ROOT / "benches").rglob("*.py")])
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "cfunc", "stencil", "prange"}
JIT = ROOT / "fabric/engine/jit.py"
TEXT_SUFFIXES = {".py", ".md", ".toml", ".loom", ".lark", ".json", ".yml", ".txt", ""}
LEFT_OUT = {".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imported(path: Path) -> set[str]:
    """Layers of this project that a module imports, however it writes it."""
    parts = path.relative_to(ROOT).parts
    package = ("waferloom", *parts[:-1])
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            modules = [".".join([*above, *([node.module] if node.module else [])])]
            modules += [f"{modules[0]}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        found |= {m.split(".")[1] for m in modules if m.startswith("waferloom.") and m.count(".")}
    return found & set(LAYERS)


def line_of(path: Path, node: ast.AST) -> str:
    return f"{name(path)}:{getattr(node, 'lineno', 1)}"


def test_nothing_imports_upwards():
    bad = []
    for path in MODULES:
        layer = path.relative_to(ROOT).parts[0]
        upwards = imported(path) - set(LAYERS[: LAYERS.index(layer) + 1])
        bad += [f"{name(path)} imports {other}" for other in sorted(upwards)]
    assert not bad


def test_imports_inside_the_project_are_relative():
    bad = []
    for path in MODULES:
        for node in ast.walk(tree(path)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            bad += [name(path) for n in names if n.split(".")[0] == "waferloom"]
    assert not bad


def test_modules_are_short():
    lengths = {name(path): path.read_text("utf-8").count("\n") for path in MODULES}
    assert not {path: lines for path, lines in lengths.items() if lines > MOST_LINES}


def test_every_file_says_what_it_is():
    """Its first statement is a docstring; its name is a noun of the machine, not a drawer."""
    assert not [
        name(p) for p in ALL_PYTHON if p.read_text("utf-8").strip() and not ast.get_docstring(tree(p))
    ]
    assert not [name(p) for p in ALL_PYTHON if p.stem in FORBIDDEN_NAMES]


def is_record(node: ast.stmt) -> bool:
    """A class of fields only (dataclass, NamedTuple, enum): its fields say what it is."""
    return isinstance(node, ast.ClassDef) and all(
        isinstance(statement, ast.Assign | ast.AnnAssign | ast.Pass) for statement in node.body
    )


def test_every_public_function_and_class_has_a_docstring():
    bad = []
    for path in MODULES:
        for node in tree(path).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                if not ast.get_docstring(node) and not is_record(node):
                    bad.append(f"{name(path)} {node.name}")
    assert not bad


def test_no_bare_except():
    handlers = [(p, n) for p in ALL_PYTHON for n in ast.walk(tree(p)) if isinstance(n, ast.ExceptHandler)]
    assert not [line_of(path, node) for path, node in handlers if node.type is None]


def test_everything_compiled_comes_from_the_one_policy():
    """`njit` and its like are numba's in jit.py only; there is no fastmath and no prange anywhere."""
    bad = []
    for path in MODULES:
        for node in ast.walk(tree(path)):
            words: set[str] = set()
            if (
                isinstance(node, ast.ImportFrom)
                and not node.level
                and (node.module or "").startswith("numba")
            ):
                words = {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                words = {node.attr} if node.value.id in ("numba", "nb") else set()
            if isinstance(node, ast.keyword) and node.arg in ("fastmath", "parallel"):
                bad.append(f"{name(path)}: {node.arg}")
            if words & COMPILERS and (path != JIT or "prange" in words):
                bad.append(line_of(path, node))
    assert not bad


def project_files() -> list[Path]:
    """Text files of the project, without what tools leave behind."""
    found = []
    for path in sorted(ROOT.rglob("*")):
        if (
            not LEFT_OUT & set(path.relative_to(ROOT).parts)
            and path.is_file()
            and path.suffix in TEXT_SUFFIXES
        ):
            if not any(part.endswith(".egg-info") for part in path.parts):
                found.append(path)
    return found


def test_no_paths_of_one_machine():
    """A path that exists on one computer only has no place in the project."""
    pattern = re.compile(r"/(?:home|Users|root|work)/[a-z]\w*", re.I)
    bad = []
    for path in project_files():
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
            if pattern.search(line):
                bad.append(f"{name(path)}:{number}: {line.strip()[:80]}")
    assert not bad


def test_every_example_says_what_it_is():
    """The first line of an example program is a comment."""
    for path in sorted((ROOT / "tests" / "run").glob("*.loom")):
        assert path.read_text("utf-8").startswith("; "), name(path)
