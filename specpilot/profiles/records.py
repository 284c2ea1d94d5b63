"""Reads a mapping into a frozen dataclass that is closed to unknown keys."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from specpilot.errors import ConfigError

__all__ = ["Scalar", "read_record"]

Scalar = str | int | float | bool
"""A value of an option."""

Record = TypeVar("Record")

_NO_DEFAULT: Final = dataclasses.MISSING


def read_record(record: type[Record], data: object, where: str) -> Record:
    """``data`` as a ``record``; nested dataclasses, tuples, mappings, literals and unions with None are read too.

    Raises
    ------
    ConfigError
        A key is unknown or missing, a value has the wrong type, or the dataclass itself refuses it. ``where`` and the
        key's path open the message.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: got {data!r}, expected a mapping")
    hints = get_type_hints(record)
    fields = {field.name: field for field in dataclasses.fields(record) if field.init}  # type: ignore[arg-type]
    unknown = [key for key in data if key not in fields]
    if unknown:
        raise ConfigError(f"{where}: got unknown key {unknown[0]!r}, expected some of: {', '.join(fields)}")
    missing = [
        name
        for name, field in fields.items()
        if name not in data and field.default is _NO_DEFAULT and field.default_factory is _NO_DEFAULT
    ]
    if missing:
        raise ConfigError(f"{where}: key {missing[0]!r} is missing; a {record.__name__} must have it")
    values = {name: _read(hints[name], value, f"{where}.{name}") for name, value in data.items()}
    try:
        return record(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _read(hint: Any, value: object, where: str) -> Any:
    origin = get_origin(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read_record(hint, value, where)
    if origin is Literal:
        if isinstance(value, bool) or value not in get_args(hint):
            raise ConfigError(f"{where}: got {value!r}, expected one of: {get_args(hint)}")
        return value
    if origin in (typing.Union, types.UnionType):
        choices = get_args(hint)
        if value is None and types.NoneType in choices:
            return None
        scalars = [choice for choice in choices if choice in (str, int, float, bool)]
        if len(scalars) > 1:
            if not isinstance(value, tuple(scalars)):
                raise ConfigError(f"{where}: got {value!r}, expected a string, number or boolean")
            return value
        (only,) = [choice for choice in choices if choice is not types.NoneType]
        return _read(only, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where}: got {value!r}, expected a list")
        return tuple(_read(get_args(hint)[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        return _read_mapping(hint, value, where)
    return _read_scalar(hint, value, where)


def _read_mapping(hint: Any, value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: got {value!r}, expected a mapping")
    key_hint, value_hint = get_args(hint)
    return types.MappingProxyType(
        {
            _read(key_hint, key, where): _read(value_hint, item, f"{where}.{key}")
            for key, item in value.items()
        }
    )


def _read_scalar(hint: type, value: object, where: str) -> Any:
    # A bool is an int to Python, and an int is as good as a float to whoever writes one.
    allowed = (int, float) if hint is float else (hint,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where}: got {value!r}, expected {hint.__name__}")
    return float(value) if hint is float and isinstance(value, int) else value
