"""An answer for people: lists of objects as tables, the rest as lines of name and value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["show_text"]

_COLUMN_WIDTH = 16
"""Characters that a column should have; on a narrower terminal rows are written as blocks."""


def show_text(report: Mapping[str, Any]) -> None:
    if list(report) == ["text"]:
        print(report["text"], end="" if str(report["text"]).endswith("\n") else "\n")
        return
    # Lines are as long as they are: a terminal wraps them, and what reads a pipe wants a hash in one piece.
    console = Console(highlight=False, soft_wrap=True)
    for name, value in report.items():
        columns = _columns(value) if _is_rows(value) else []
        if columns and console.width >= _COLUMN_WIDTH * len(columns):
            console.print(_table(name, columns, value), soft_wrap=False)
        elif columns:
            console.print(Text(f"{name}:"))
            for row in value:
                first, *others = columns
                console.print(Text(f"  {first}: {_word(row.get(first))}"))
                for column in others:
                    console.print(Text(f"    {column}: {_word(row.get(column))}"))
        elif isinstance(value, dict | list) and value:
            console.print(Text(f"{name}:"))
            for line in _tree(value, 1):
                console.print(Text(line))
        else:
            console.print(Text(f"{name}: {_word(value)}"))


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """Names with something in them in at least one row."""
    return [name for name in rows[0] if any(row.get(name) not in (None, [], {}, "") for row in rows)]


def _table(title: str, columns: list[str], rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_word(row.get(name))) for name in columns))
    return table


_MOST_DEPTH = 2
"""Of what one cell shows: the rows that a list of objects may hold, but no documents."""


def _word(value: Any, depth: int = 0) -> str:
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and "\n" in value.strip():
        return f"({len(value.splitlines())} lines, see --json)"
    if isinstance(value, dict | list) and depth >= _MOST_DEPTH:
        return f"({len(value)} entries, see --json)"
    if isinstance(value, list):
        return "; ".join(_word(item, depth) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_word(item, depth + 1)}" for name, item in value.items())
    return str(value)


def _tree(value: Any, depth: int) -> list[str]:
    pad = "  " * depth
    if isinstance(value, dict):
        lines = []
        for name, item in value.items():
            if isinstance(item, dict | list) and item:
                lines += [f"{pad}{name}:", *_tree(item, depth + 1)]
            else:
                lines.append(f"{pad}{name}: {_word(item)}")
        return lines
    if isinstance(value, list):
        return [line for item in value for line in _item(item, depth)]
    return [f"{pad}{_word(value)}"]


def _item(value: Any, depth: int) -> list[str]:
    """Of a list; one that has several lines begins with a dash, so that it is seen where the next one begins."""
    lines = _tree(value, depth)
    if len(lines) < 2:
        return lines
    pad = "  " * depth
    return [f"{pad}- {lines[0].removeprefix(pad)}", *(f"  {line}" for line in lines[1:])]
