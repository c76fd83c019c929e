"""Imports run downward only, and heavy packages load late."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# From the bottom up; a part may import what stands on lower lines, and itself.
LAYERS = [
    "layouts gett.codec gett.console gett.typing gett.version",
    "gett.errors",
    "gett.hw gett.epilogue",
    "gett.env gett.measure",
    "gett.ir",
    "gett.cpu gett.schedule",
    "gett.codegen",
    "gett.jit",
    "gett.runtime",
    "gett.tune",
    "gett.arrays",
    "gett.network",
    "gett.graphs",
    "gett.explain",
    "gett.plans",
    "gett.slices",
    "gett.reuse",
    "gett.groups",
    "gett.api",
    "gett.cotengra gett.jax gett.distributed",
    "gett",
    "gett.cli",
    "gett.__main__",
]
# The same for the modules of a package.
INSIDE = {
    "gett.epilogue": ["special expression", "operations", "types", "evaluate cpp traced", "ops", "gradient"],
    "gett.ir": ["subscripts tensors", "contraction", "build gemm pairs", "packing"],
    "gett.arrays": [
        "dynamo torch_inductor torch_modes",
        "bfloat16 derivatives kinds jax",
        "exponents exported torch",
        "interop torch_operator",
        "held",
        "torch_autograd",
        "torch_chain torch_checkpoint torch_epilogue",
    ],
    "gett.network": [
        "optimize search",
        "asking limits",
        "request",
        "cutting steps forms",
        "pairs",
        "path",
        "products running slicing together",
    ],
    "gett.console": ["formatting", "progress"],
    "gett.explain": ["launches path schedule", "detail roofline", "advice network record", "plot summary"],
    "gett.plans": [
        "checks plan_cache precision",
        "call executables fit",
        "standing_in",
        "bindings",
        "bound_steps unsliced",
        "compiling recording plan_figures plan_graph",
        "plan_text",
        "contraction_plan",
        "planner",
    ],
    "gett.slices": [
        "links sums views",
        "sharded work",
        "sliced_plan",
        "limited",
        "finder",
        "recipe",
        "distributed_plan",
        "cuts engine",
        "shared",
        "stepwise",
        "devices",
    ],
    "gett.reuse": ["division path", "constant_plan remembering_plan", "making"],
    "gett.api": [
        "devices entries numpy_route reuse tracing",
        "plan",
        "einsum precompile",
        "backend contract tensordot",
        "paths",
        "autotune expression grouped launching",
    ],
    "gett.graphs": ["places seen", "branches", "replay"],
    "gett.groups": [
        "layouts",
        "reading tiles ragged",
        "loop ragged_plans table",
        "launches overlaps ragged_tiles",
        "plan ragged_launch",
    ],
    "gett.distributed": [
        "transport",
        "channel mpi places reports saved torch_frames",
        "executors torch_group",
        "ranks",
        "contract",
    ],
    "gett.jax": ["primitive", "running", "functions"],
}
# The same for folders of a package, and modules beside them.
FOLDERS = {
    "gett.schedule": ["spec lower packed", "rules grouped", "mainloops", "legality", "known tile", "cost", "search"]
}
LEVEL = {part: level for level, line in enumerate(LAYERS) for part in line.split()}
LEVEL_INSIDE = {
    f"{package}.{module}": level
    for package, lines in INSIDE.items()
    for level, line in enumerate(lines)
    for module in line.split()
}
LEVEL_FOLDER = {
    f"{package}.{folder}": level
    for package, lines in FOLDERS.items()
    for level, line in enumerate(lines)
    for folder in line.split()
}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(p): p for top in ("layouts", "gett") for p in sorted((ROOT / top).rglob("*.py"))}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def part_of(module: str) -> str:
    """The line of LAYERS that a module belongs to: its top-level package or file."""
    return "layouts" if module.split(".")[0] == "layouts" else ".".join(module.split(".")[:2])


@cache
def imports(tree: ast.AST) -> tuple[tuple[ast.AST, str], ...]:
    """Every import with the full name of what it imports, modules inside packages resolved."""
    return tuple(_imports(tree))


def _imports(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node, inner if inner in MODULES else str(node.module)


def test_the_order_names_what_exists() -> None:
    assert set(LEVEL) == set(map(part_of, MODULES))
    assert set(LEVEL_INSIDE) == {m for m in MODULES if part_of(m) in INSIDE and m != part_of(m)}
    in_folders = {".".join(m.split(".")[:3]) for m in MODULES if part_of(m) in FOLDERS and m != part_of(m)}
    assert set(LEVEL_FOLDER) == in_folders


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_downward(module: str) -> None:
    own = part_of(module)
    assert own in LEVEL, f"{own} has no place in the order of imports"
    for node, target in imports(tree_of(MODULES[module])):
        other = part_of(target)
        if target.split(".")[0] not in ("layouts", "gett") or other == own:
            continue
        assert other in LEVEL, f"{module}, line {getattr(node, 'lineno', 0)}: {other} has no place in the order"
        assert LEVEL[other] < LEVEL[own], f"{module}, line {getattr(node, 'lineno', 0)}: {own} may not import {other}"


@pytest.mark.parametrize("module", LEVEL_INSIDE)
def test_imports_inside_a_package_run_downward(module: str) -> None:
    for node, target in imports(tree_of(MODULES[module])):
        if part_of(target) == part_of(module):
            place = f"{module}, line {getattr(node, 'lineno', 0)}"
            assert LEVEL_INSIDE[target] < LEVEL_INSIDE[module], f"{place}: may not import {target}"


@pytest.mark.parametrize("folder", LEVEL_FOLDER)
def test_imports_between_the_folders_of_a_package_run_downward(folder: str) -> None:
    own = {m: p for m, p in MODULES.items() if m == folder or m.startswith(f"{folder}.")}
    assert own
    for module, path in own.items():
        for node, target in imports(tree_of(path)):
            other = ".".join(target.split(".")[:3])
            if part_of(target) == part_of(module) and other != folder:
                place = f"{module}, line {getattr(node, 'lineno', 0)}"
                assert other in LEVEL_FOLDER, f"{place}: {other} has no place in the order of imports"
                assert LEVEL_FOLDER[other] <= LEVEL_FOLDER[folder], f"{place}: may not import {target}"


@pytest.mark.parametrize("module", MODULES)
def test_cupy_is_imported_late_if_at_all(module: str) -> None:
    tree = tree_of(MODULES[module])
    names = {target.split(".")[0] for _, target in imports(tree)}
    if part_of(module) in ("layouts", "gett.schedule", "gett.codegen"):
        assert not names & {"cupy", "cupyx", "cupy_backends"}
    if part_of(module) == "layouts":
        assert names <= sys.stdlib_module_names | {"layouts"}
    top = ast.Module([n for n in tree.body if not isinstance(n, ast.FunctionDef | ast.ClassDef)], [])
    guarded = [n for n in top.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    top.body = [n for n in top.body if n not in guarded]
    assert "cupy" not in {target.split(".")[0] for _, target in imports(top)}


@pytest.mark.parametrize("package", ["layouts", "gett"])
def test_importing_loads_no_heavy_package(package: str) -> None:
    program = (
        f"import sys, {package}; print([m for m in ('cupy', 'jax', 'opt_einsum', 'torch', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_test_module_imports_another() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not re.search(r"^\s*(from|import) .*\btest_", path.read_text(encoding="utf-8"), re.MULTILINE):
            continue
        parts = {part for _, target in imports(tree_of(path)) for part in target.split(".")}
        assert not [part for part in parts if part.startswith("test_")], path
