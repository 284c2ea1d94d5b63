"""Runs single definitions out of an unpacked SGLang 0.5.20 wheel on a machine where the package cannot be
imported.

``SGLANG_WHEEL`` names the folder that holds ``sglang/``. Files are parsed, never imported: the
wanted top-level definitions are executed in a namespace the caller fills, so that no kernel, device or server
code loads.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ENVIRONMENT_VARIABLE = "SGLANG_WHEEL"


def wheel_root() -> Path:
    """The wheel's ``sglang/srt``; skips the calling test where none is given."""
    folder = os.environ.get(ENVIRONMENT_VARIABLE)
    if not folder:
        pytest.skip(f"{ENVIRONMENT_VARIABLE} does not name an unpacked SGLang 0.5.20 wheel")
    root = Path(folder)
    version = (root / "sglang" / "_version.py").read_text(encoding="utf-8")
    assert "0.5.20" in version, f"{root}: expected SGLang 0.5.20, got {version!r}"
    return root / "sglang" / "srt"


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def find_class(module: ast.Module, name: str) -> ast.ClassDef:
    (found,) = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name]
    return found


def methods(node: ast.ClassDef, name: str) -> list[ast.FunctionDef]:
    """Every definition of a method in a class body, in order; Python keeps the last."""
    return [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name]


def execute(file: Path, namespace: dict[str, Any], names: set[str] | None = None) -> dict[str, Any]:
    """Execute definitions of a wheel's file in ``namespace`` and return it.

    Parameters
    ----------
    file
        Python file of the wheel.
    namespace
        Stands in for the file's imports; only those from the standard library, torch and transformers are
        kept.
    names
        Top-level functions, classes and variables to execute; all but Triton kernels when None.
    """
    kept = [node for node in parse(file).body if _is_kept(node, names)]
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    module = ast.Module([future, *kept], type_ignores=[])
    exec(compile(ast.fix_missing_locations(module), str(file), "exec"), namespace)
    return namespace


_IMPORTABLE = sys.stdlib_module_names | {"torch", "transformers"}


def _is_kept(node: ast.stmt, names: set[str] | None) -> bool:
    if isinstance(node, ast.Import):
        return all(alias.name.split(".")[0] in _IMPORTABLE for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and (node.module or "").split(".")[0] in _IMPORTABLE - {"__future__"}
    if isinstance(node, ast.FunctionDef) and any(
        "triton.jit" in ast.unparse(item) for item in node.decorator_list
    ):
        return False
    return names is None or any(name in names for name in _defined(node))


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
