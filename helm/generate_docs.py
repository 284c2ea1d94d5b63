"""Writes ``values.schema.json`` and ``README.md`` of the chart from the comments of ``values.yaml``.

A value's comment has a line ``# -- text`` and may have a line ``# @schema {...}``, which is merged into the schema that
follows from the default. Every object is closed to unknown keys unless its ``@schema`` gives additionalProperties.

    python helm/generate_docs.py            # write both files
    python helm/generate_docs.py --check    # exit code 1 when they are stale
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent / "specpilot"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][0-9]+)?$"
_AMOUNTS = {
    "type": "object",
    "patternProperties": {
        "^([a-z0-9.-]+/)?[A-Za-z0-9._-]+$": {"type": ["string", "number"], "pattern": QUANTITY, "minimum": 0}
    },
    "additionalProperties": False,
}
_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
DEFINITIONS: dict[str, dict[str, Any]] = {
    "host": {
        "type": "string",
        "pattern": rf"^((\*\.)?{_LABEL}(\.{_LABEL})*)?$",
        "maxLength": 253,
    },
    "size": {"type": "string", "pattern": QUANTITY},
    "resources": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"requests": _AMOUNTS, "limits": _AMOUNTS, "claims": {"type": "array"}},
    },
}
"""What several values share; a comment names one by ``@schema {"$ref": "#/definitions/NAME"}``."""
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


@dataclass(frozen=True)
class Value:
    """A value of ``values.yaml``: ``path`` is dotted, ``text`` its description, ``extra`` its ``@schema``."""

    path: str
    default: Any
    text: str
    extra: dict[str, Any]


def read_values(text: str) -> list[Value]:
    """Every documented value, in order; an undocumented one is an error."""
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise SystemExit("values.yaml: expected a mapping")
    return list(_walk(root, "", lines))


def _walk(node: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[Value]:
    for key, item in node.value:
        path = f"{prefix}{key.value}"
        comment = _comment_above(key.start_mark.line, lines)
        text = " ".join(line[3:].strip() for line in comment if line.startswith("-- "))
        schemas = [json.loads(line[len("@schema ") :]) for line in comment if line.startswith("@schema ")]
        if isinstance(item, yaml.MappingNode) and item.value and not text:
            yield from _walk(item, f"{path}.", lines)
            continue
        if not text:
            raise SystemExit(f"values.yaml:{key.start_mark.line + 1}: {path} has no '# --' comment")
        default = yaml.load(yaml.serialize(item), Loader=yaml.SafeLoader)
        yield Value(path, default, text, schemas[0] if schemas else {})


def _comment_above(line: int, lines: list[str]) -> list[str]:
    found: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("# "):
        line -= 1
        found.insert(0, lines[line].lstrip()[2:])
    return found


def make_schema(values: list[Value]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the specpilot chart",
        "type": "object",
        "additionalProperties": False,
        # Helm hands `global` to every chart, so a schema without it refuses to be a subchart.
        "properties": {"global": {"type": "object"}},
        "definitions": DEFINITIONS,
    }
    for value in values:
        place = schema
        *parents, last = value.path.split(".")
        for parent in parents:
            new = {"type": "object", "additionalProperties": False, "properties": {}}
            place = place["properties"].setdefault(parent, new)
        place["properties"][last] = _schema_of(value)
    return schema


def _schema_of(value: Value) -> dict[str, Any]:
    if "$ref" in value.extra:  # draft 7 ignores what stands beside a $ref
        return {"description": value.text, "allOf": [value.extra]}
    if isinstance(value.default, dict):
        own: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}
        if "additionalProperties" in value.extra:
            del own["properties"]
    else:
        own = {"type": TYPES[type(value.default)]}
    return own | {"description": value.text} | value.extra


def make_readme(values: list[Value], chart: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| `{value.path}` | `{json.dumps(value.default)}` | {value.text.replace('|', chr(92) + '|')} |"
        for value in values
    )
    head = (CHART / "README.header.md").read_text(encoding="utf-8")
    return f"{head}\n## Values of version {chart['version']}\n\n| value | default | meaning |\n|---|---|---|\n{rows}\n"


def make_files() -> dict[Path, str]:
    """Path -> what it must contain."""
    values = read_values((CHART / "values.yaml").read_text(encoding="utf-8"))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    return {
        CHART / "values.schema.json": json.dumps(make_schema(values), indent=2) + "\n",
        CHART / "README.md": make_readme(values, chart),
    }


def main() -> int:
    files = make_files()
    if "--check" in sys.argv[1:]:
        stale = [
            path.name for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text
        ]
        print(
            "\n".join(f"{name} is stale; run python helm/generate_docs.py" for name in stale), file=sys.stderr
        )
        return 1 if stale else 0
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
