"""A module's public names are exactly its ``__all__``.

Public is what the module itself defines at its top level without a leading underscore, except its logger
and its type variables. A package's ``__init__`` may also list names it imports (that is how a family
exports its members); any other module exports only its own. Files are parsed, not imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import Module, find_modules


def assigned_names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from assigned_names(element)
    elif isinstance(target, ast.Starred):
        yield from assigned_names(target.value)


def is_machinery(value: ast.expr) -> bool:
    """A logger or a type variable, which every module makes for itself."""
    makers = {"getLogger", "TypeVar", "TypeVarTuple", "ParamSpec"}
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in makers


def top_level_names(body: list[ast.stmt]) -> tuple[set[str], set[str]]:
    """Names a module body defines, and names it imports; conditional blocks count."""
    defined: set[str] = set()
    imported: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign) and is_machinery(node.value):
            continue
        elif isinstance(node, ast.Assign):
            defined.update(name for target in node.targets for name in assigned_names(target))
        elif isinstance(node, ast.AnnAssign):
            defined.update(assigned_names(node.target))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imported.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        for block in ("body", "orelse", "finalbody", "handlers"):
            if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
                for inner in getattr(node, block, []):
                    inner_body = inner.body if isinstance(inner, ast.ExceptHandler) else [inner]
                    more_defined, more_imported = top_level_names(inner_body)
                    defined |= more_defined
                    imported |= more_imported
    return defined, imported


def declared_all(tree: ast.Module) -> list[str] | None:
    """The literal ``__all__`` of a module, None if it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def find_faults(module: Module) -> list[str]:
    tree = ast.parse(module.path.read_text(encoding="utf-8"), str(module.path))
    defined, imported = top_level_names(tree.body)
    public = {name for name in defined if not name.startswith("_")}
    exported = declared_all(tree)
    if exported is None:
        return [f"{module.name}: no __all__, but it defines {sorted(public)}"] if public else []
    faults = []
    if len(exported) != len(set(exported)):
        faults.append(f"{module.name}: __all__ names something twice")
    if missing := public - set(exported):
        faults.append(f"{module.name}: public but not in __all__: {sorted(missing)}")
    if unknown := set(exported) - defined - imported:
        faults.append(f"{module.name}: in __all__ but not defined: {sorted(unknown)}")
    if not module.is_package and (borrowed := set(exported) & imported - defined):
        faults.append(f"{module.name}: in __all__ but imported from elsewhere: {sorted(borrowed)}")
    return faults


@pytest.mark.parametrize("module", find_modules(), ids=lambda module: module.name)
def test_public_names_are_exactly_all(module: Module) -> None:
    assert find_faults(module) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def build(): ...", "no __all__"),
        ("LIMIT: int = 3", "no __all__"),
        ("__all__ = ['build']\ndef build(): ...\nclass Tree: ...", "not in __all__: ['Tree']"),
        ("__all__ = ['build']\ndef build(): ...\nif True:\n    width = 2", "not in __all__: ['width']"),
        ("__all__ = ['build', 'gone']\ndef build(): ...", "not defined: ['gone']"),
        ("__all__ = ['path']\nfrom os import path", "imported from elsewhere: ['path']"),
        ("__all__ = ['build', 'build']\ndef build(): ...", "twice"),
    ],
)
def test_a_wrong_all_is_found(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "made_up.py"
    path.write_text(text, encoding="utf-8")
    (fault,) = find_faults(Module("made_up", path, is_package=False))
    assert complaint in fault


def test_a_right_all_passes(tmp_path: Path) -> None:
    path = tmp_path / "made_up.py"
    text = (
        "import logging\n__all__ = ['build']\n_CACHE = {}\nlog = logging.getLogger(__name__)\n"
        "def build(): ...\ndef _inner(): ...\n"
    )
    path.write_text(text, encoding="utf-8")
    assert find_faults(Module("made_up", path, is_package=False)) == []
