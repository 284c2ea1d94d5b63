"""Reads the profiles folder: the device table and every row, checked; names and ids lead to a row."""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import specpilot
from specpilot.errors import AmbiguousError, ConfigError
from specpilot.profiles.gpus import GpuClass
from specpilot.profiles.records import read_record
from specpilot.profiles.schema import CPU, Profile
from specpilot.profiles.speculation import check_arguments

__all__ = ["ProfileStore", "load_profiles", "profiles_folder"]

_GPU_TABLE = "gpus.yaml"


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is given twice; YAML readers keep the last one without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                line = key_node.start_mark.line + 1
                raise ConfigError(f"line {line}: got the key {key!r} twice, expected it once")
            seen.add(key)
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class ProfileStore:
    """All profiles of a folder, sorted by name, and the device classes they name."""

    profiles: tuple[Profile, ...]
    gpus: tuple[GpuClass, ...]

    def find(self, reference: str, gpu: str | None = None) -> Profile:
        """The profile with this id, name, or name without its folder.

        ``gpu``, a device class, decides between rows of the same short name.

        Raises
        ------
        ConfigError
            No profile answers; the message lists those that exist.
        AmbiguousError
            Several do.
        """
        found = [row for row in self.profiles if reference in (row.name, row.profile_id)]
        if not found:
            found = [row for row in self.profiles if row.name.partition("/")[2] == reference]
            found = [row for row in found if row.deployment.gpu == gpu] or found
        if not found:
            known = ", ".join(row.name for row in self.profiles)
            raise ConfigError(f"profile: got {reference!r}, expected a profile id or one of: {known}")
        if len(found) > 1:
            names = tuple(row.name for row in found)
            raise AmbiguousError(
                f"profile: {reference!r} answers to {', '.join(names)}; give the whole name, or name the GPU",
                candidates=names,
            )
        return found[0]

    def find_gpu(self, name: str) -> GpuClass:
        """The device class of this id.

        Raises
        ------
        ConfigError
            There is none.
        """
        for row in self.gpus:
            if row.id == name:
                return row
        known = ", ".join([CPU, *(row.id for row in self.gpus)])
        raise ConfigError(f"GPU: got {name!r}, expected one of: {known}")


def profiles_folder() -> Path:
    """The repository's ``profiles/``, or ``share/specpilot/profiles`` of an installation.

    Raises
    ------
    ConfigError
        Neither is there.
    """
    places = [
        Path(specpilot.__file__).resolve().parent.parent / "profiles",
        Path(sysconfig.get_path("data")) / "share" / "specpilot" / "profiles",
    ]
    for folder in places:
        if (folder / _GPU_TABLE).is_file():
            return folder
    raise ConfigError(
        f"profiles: found {_GPU_TABLE} in neither of {', '.join(map(str, places))}; name the folder of profiles"
    )


def load_profiles(folder: Path | None = None) -> ProfileStore:
    """Every profile below ``folder`` (default: :func:`profiles_folder`).

    Raises
    ------
    ConfigError
        A file is no YAML or no profile, names an unknown device class, or two rows are the same; the file is named.
    """
    root = profiles_folder() if folder is None else folder
    table = _read_yaml(root / _GPU_TABLE)
    if not isinstance(table, list):
        raise ConfigError(
            f"{root / _GPU_TABLE}: got {type(table).__name__}, expected a list of device classes"
        )
    gpus = tuple(
        read_record(GpuClass, row, f"{root / _GPU_TABLE}[{index}]") for index, row in enumerate(table)
    )
    known = {CPU, *(gpu.id for gpu in gpus)}
    if len(known) != len(gpus) + 1:
        raise ConfigError(f"{root / _GPU_TABLE}: got {[gpu.id for gpu in gpus]}, expected every id once")
    profiles = tuple(_read_profile(path, root) for path in sorted(root.glob("*/*.yaml")))
    ids: dict[str, str] = {}
    for profile in profiles:
        if profile.deployment.gpu not in known:
            raise ConfigError(
                f"{profile.name}: deployment.gpu: got {profile.deployment.gpu!r}, expected one of {sorted(known)}"
            )
        other = ids.setdefault(profile.profile_id, profile.name)
        if other != profile.name:
            raise ConfigError(
                f"{profile.name}: says the same as {other}, expected every row once; remove one"
            )
    return ProfileStore(profiles, gpus)


def _read_profile(path: Path, root: Path) -> Profile:
    """One checked row; its name is its path below ``root``."""
    data = _read_yaml(path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: got {type(data).__name__}, expected a mapping")
    if "name" in data:
        raise ConfigError(f"{path}: got unknown key 'name'; the path is the name")
    profile = read_record(Profile, data | {"name": str(path.relative_to(root).with_suffix(""))}, str(path))
    try:
        check_arguments(profile)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return profile


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from error
