"""What an installed copy needs is in the package: every data file is listed, every package root is found."""

from __future__ import annotations

import fnmatch
import tomllib

import setuptools

from tests.source_tree import PACKAGE_DIRS, REPO, find_modules, tracked_files

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def test_every_data_file_of_a_package_is_installed() -> None:
    left_out = []
    for package, folder in PACKAGE_DIRS.items():
        patterns = SETUPTOOLS["package-data"].get(package, [])
        for path in tracked_files():
            if (REPO / folder) in path.parents and path.suffix not in {".py", ".md"}:
                name = str(path.relative_to(REPO / folder))
                if not any(fnmatch.fnmatch(name, pattern.replace("**", "*")) for pattern in patterns):
                    left_out.append(f"{folder}/{name}")
    assert left_out == [], "list them in [tool.setuptools.package-data] of pyproject.toml"


def test_every_package_with_modules_is_found() -> None:
    find = SETUPTOOLS["packages"]["find"]
    found = {
        package
        for where in find["where"]
        for package in setuptools.find_packages(str(REPO / where), include=find["include"])
    }
    holders = {
        module.name if module.is_package else module.name.rpartition(".")[0] for module in find_modules()
    }
    assert holders - found == set(), "a folder of modules lacks its __init__.py"


def test_extras_and_python_versions() -> None:
    assert PROJECT["project"]["requires-python"] == ">=3.11,<3.14"
    assert {"serve", "console", "otel", "clients", "lm-eval", "dev"} == set(
        PROJECT["project"]["optional-dependencies"]
    )
