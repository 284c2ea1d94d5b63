"""Imports point one way, between the four packages and between the parts of ``specpilot``.

``specpilot_kernels`` <- ``specpilot`` <- ``specpilot_service`` <- ``specpilot_console``; the console knows
the service only over HTTP and by ``specpilot_service.schemas``. Inside ``specpilot`` a part may import
parts of lower levels, and of its own level as long as parts do not import each other in a ring. All files
are parsed, so imports inside functions and under ``TYPE_CHECKING`` count.
"""

from __future__ import annotations

import ast
import graphlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import PACKAGE_DIRS, REPO, Module, find_modules

PACKAGE_LEVELS = {"specpilot_kernels": 0, "specpilot": 1, "specpilot_service": 2, "specpilot_console": 3}
CONSOLE_MAY_IMPORT = "specpilot_service.schemas"
PART_LEVELS = {
    part: level
    for level, parts in enumerate(
        [
            ["errors", "types", "config", "metrics", "hash_chain", "engines"],
            ["w12", "draft", "verify", "cost"],
            ["sampling"],
            ["refengine"],
            ["models"],
            ["replay", "forcing", "profiles", "requests"],
            ["controller", "memory"],
            ["rounds"],
            ["sglang_plugin", "bench", "cli", "conformance"],
        ]
    )
    for part in parts
}


def imported_names(module: Module) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import; ``from a import b`` gives ``a.b``."""
    for node in ast.walk(ast.parse(module.path.read_text(encoding="utf-8"), str(module.path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.name.split(".")
                parents = parents[: len(parents) - node.level + (1 if module.is_package else 0)]
                base = ".".join([*parents, base]) if base else ".".join(parents)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in {"import_module", "importlib.import_module", "__import__"}
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ):
            yield node.lineno, node.args[0].value


def part_of(name: str) -> str | None:
    """The part of ``specpilot`` a dotted name lies in; None for the package itself and its attributes."""
    pieces = name.split(".")
    is_part = pieces[0] == "specpilot" and len(pieces) > 1 and not pieces[1].startswith("_")
    return pieces[1] if is_part else None


def find_violations(root: Path) -> list[str]:
    """Every import under ``root`` that points the wrong way, as ``file:line: what``."""
    found: list[str] = []
    edges: dict[str, set[str]] = {}
    for module in find_modules(root):
        package, part = module.name.split(".")[0], part_of(module.name)
        if part is not None and part not in PART_LEVELS:
            found.append(f"{module.path}: part {part!r} has no level; give it one in PART_LEVELS")
        for line, name in imported_names(module):
            where = f"{module.path}:{line}: {module.name} imports {name}"
            other = name.split(".")[0]
            if other == "tests":
                found.append(f"{where}: packages do not import tests")
            elif other == "sglang" and part != "sglang_plugin":
                found.append(f"{where}: only specpilot.sglang_plugin imports sglang")
            elif other not in PACKAGE_LEVELS:
                continue
            elif package == "specpilot_console" and other != package:
                if not f"{name}.".startswith(f"{CONSOLE_MAY_IMPORT}."):
                    found.append(f"{where}: the console may import only {CONSOLE_MAY_IMPORT}")
            elif PACKAGE_LEVELS[other] > PACKAGE_LEVELS[package]:
                found.append(f"{where}: {other} stands above {package}")
            elif part is not None and other == "specpilot":
                target = part_of(name)
                if target is None or target == part:
                    continue
                edges.setdefault(part, set()).add(target)
                if PART_LEVELS.get(target, 0) > PART_LEVELS.get(part, len(PART_LEVELS)):
                    found.append(f"{where}: {target} stands above {part}")
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        found.append(f"parts of specpilot import each other in a ring: {' -> '.join(error.args[1])}")
    return found


def test_every_import_points_down() -> None:
    assert find_violations(REPO) == []


def test_kernels_folder_is_no_package() -> None:
    assert not (REPO / "kernels" / "__init__.py").exists(), (
        "the name `kernels` belongs to another project's package"
    )


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        package, _, rest = name.partition("/")
        path = root / PACKAGE_DIRS[package] / rest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        (
            "specpilot_kernels/device.py",
            "import specpilot.errors",
            "specpilot stands above specpilot_kernels",
        ),
        (
            "specpilot/cli.py",
            "def main():\n    from specpilot_service.app import x",
            "stands above specpilot",
        ),
        ("specpilot/draft/tree.py", "from specpilot.refengine import engine", "refengine stands above draft"),
        ("specpilot/draft/tree.py", "from ..refengine.engine import run", "refengine stands above draft"),
        ("specpilot/draft/__init__.py", "from .. import refengine", "refengine stands above draft"),
        (
            "specpilot/errors.py",
            "import importlib\nimportlib.import_module('specpilot.w12')",
            "w12 stands above errors",
        ),
        ("specpilot/refengine/engine.py", "import specpilot.models", "models stands above refengine"),
        ("specpilot/verify/greedy.py", "from tests.strategies import trees", "do not import tests"),
        ("specpilot/refengine/engine.py", "import sglang.srt", "only specpilot.sglang_plugin"),
        ("specpilot/misc/thing.py", "import specpilot.errors", "'misc' has no level"),
        ("specpilot_service/app.py", "import specpilot_console", "stands above specpilot_service"),
        ("specpilot_console/app.py", "from specpilot_service import app", "may import only"),
        ("specpilot_console/app.py", "import specpilot_service.schemas_private", "may import only"),
        ("specpilot_console/app.py", "from specpilot.errors import ConfigError", "may import only"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    write_tree(tmp_path, {file: text})
    violations = find_violations(tmp_path)
    assert len(violations) == 1, violations
    assert complaint in violations[0]


def test_a_ring_on_one_level_is_found(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "specpilot/draft/tree.py": "from specpilot.verify import greedy",
            "specpilot/verify/greedy.py": "from specpilot.draft import tree",
        },
    )
    (violation,) = find_violations(tmp_path)
    assert "ring" in violation and "draft" in violation and "verify" in violation


def test_imports_that_point_down_pass(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "specpilot/__init__.py": "from specpilot.errors import SpecPilotError",
            "specpilot/models/train/target.py": "import torch\nfrom specpilot.refengine.gdn import chunk",
            "specpilot/verify/greedy.py": "from specpilot import __version__\nimport specpilot.draft.tree",
            "specpilot/w12/ops.py": "import specpilot_kernels.device",
            "specpilot/sglang_plugin/entry.py": "import sglang",
            "specpilot_service/app.py": "from specpilot.engines.base import Engine\nfrom . import schemas",
            "specpilot_console/app.py": "from specpilot_service.schemas import Model",
        },
    )
    assert find_violations(tmp_path) == []


def test_every_module_imports_without_a_gpu() -> None:
    """In a fresh process with no device visible, so that nothing another test imported can help."""
    names = [module.name for module in find_modules() if not module.name.endswith("__main__")]
    script = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "if 'torch' in sys.modules:\n"
        "    assert not sys.modules['torch'].cuda.is_initialized()\n"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", script, *names], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
