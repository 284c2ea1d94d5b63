"""The command line, built from the table of routes: a route without a verb cannot be."""

from __future__ import annotations

import argparse
import json
import types
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from specpilot_service.schemas.admin_routes import ADMIN_ROUTES, AdminRoute

__all__ = ["DEFAULT_KEY_FILE", "JOB_STARTS", "Usage", "body_of", "build_parser", "path_names"]

DEFAULT_KEY_FILE = Path("~/.local/state/specpilot/admin.key")
"""Where a sidecar with its default state folder leaves the first admin key."""

_NOUNS = {
    "profiles": "what can run here",
    "switches": "change what runs",
    "revisions": "what ran, and the way back",
    "keys": "who may do what",
    "audit-log": "every change of state",
    "engine": "the engine's processes",
    "jobs": "checks beside the service",
    "ceilings": "the gap to what the hardware allows",
    "audits": "token forcing",
    "rounds": "optimization rounds",
    "memory": "mechanisms that were found",
    "playground": "stock beside the profile",
}
_WAITING = {"switches.start", "switches.promote", "switches.cancel", "revisions.rollback"}
JOB_STARTS = frozenset({"jobs.start", "audits.start", "ceilings.check"})


_PROGRAM = "specpilot admin"


class Usage(Exception):
    """The command line is wrong. Who says so names the program."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        verb = self.prog.removeprefix(_PROGRAM).strip()
        raise Usage(f"{verb}: {message}" if verb else message)


def build_parser() -> argparse.ArgumentParser:
    """Parsed arguments hold ``route`` (its name, or ``playground.compare``) and one entry for each option given."""
    about = "The admin API of a sidecar as commands; every button of the console is one."
    parser = _Parser(prog=_PROGRAM, description=about, allow_abbrev=False)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    nouns: dict[str, Any] = {}
    for route in ADMIN_ROUTES:
        noun, _, verb = route.name.replace("_", "-").partition(".")
        if not verb:
            _fill(verbs.add_parser(noun, help=_help(route), description=_help(route)), route)
            continue
        group = nouns.get(noun)
        if group is None:
            group = nouns[noun] = _group(verbs, noun)
        _fill(group.add_parser(verb, help=_help(route), description=_help(route)), route)
    _fill_compare(_group(verbs, "playground"))
    return parser


def _group(verbs: Any, noun: str) -> Any:
    return verbs.add_parser(noun, help=_NOUNS[noun]).add_subparsers(required=True, metavar="VERB")


def _help(route: AdminRoute) -> str:
    return f"{route.summary} ({route.role})"


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("--admin-url", "--sidecar"), default="http://127.0.0.1:8001", help="default: %(default)s"
    )
    parser.add_argument(
        "--key-file",
        type=Path,
        default=DEFAULT_KEY_FILE,
        help="file with the key; - reads stdin; default: %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print exactly one JSON object")


def _fill(parser: argparse.ArgumentParser, route: AdminRoute) -> None:
    parser.set_defaults(route=route.name)
    _common(parser)
    for name in path_names(route):
        parser.add_argument(name, metavar=name.upper())
    for name in route.query:
        # Which ones a route needs, and their ranges, the sidecar knows and says.
        parser.add_argument(f"--{name.replace('_', '-')}", dest=f"query_{name}", default=None)
    if route.request is not None:
        for name, field in route.request.model_fields.items():
            _add_option(parser, name, field)
    if route.name == "events":
        parser.add_argument("--limit", type=int, help="end after so many events; needed with --json")
    if route.name in _WAITING:
        parser.add_argument(
            "--wait", action="store_true", help="until the switch ends; exit code 0 only when applied"
        )
    if route.name in JOB_STARTS:
        parser.add_argument(
            "--wait", action="store_true", help="until the job ends; exit code 0 only when it passed"
        )


def _fill_compare(group: Any) -> None:
    parser = group.add_parser("compare", help="the same prompt and seed, stock and as the profile answers")
    parser.set_defaults(route="playground.compare")
    _common(parser)
    parser.add_argument("prompt", metavar="PROMPT")
    parser.add_argument("--gateway-url", default="http://127.0.0.1:8000", help="default: %(default)s")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--code", choices=("python", "curl"), help="print the request's code in place of asking"
    )


def path_names(route: AdminRoute) -> list[str]:
    """Path parameters in their order."""
    return [name for _, name, _, _ in Formatter().parse(route.path) if name]


def _add_option(parser: argparse.ArgumentParser, name: str, field: FieldInfo) -> None:
    kind = _bare(field.annotation)
    options: dict[str, Any] = {
        "dest": f"body_{name}",
        "required": field.is_required(),
        "help": field.description,
        "default": argparse.SUPPRESS,
    }
    if name == "document":
        options |= {"metavar": "FILE", "help": f"file with {field.description}; - reads stdin"}
    elif kind is bool:
        options |= {"action": argparse.BooleanOptionalAction}
    elif get_origin(kind) is dict:
        options |= {"type": _json_object, "metavar": "JSON"}
    elif get_origin(kind) is list:
        (item,) = get_args(kind)
        options |= {"action": "append"} | _value(item)
    else:
        options |= _value(kind)
    parser.add_argument(f"--{name.replace('_', '-')}", **options)


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a JSON object such as {{}}")
    return found


def _value(kind: Any) -> dict[str, Any]:
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    return {"type": kind}


def _bare(annotation: Any) -> Any:
    """``T`` of ``T | None``."""
    if get_origin(annotation) in (Union, types.UnionType):
        (kind,) = (item for item in get_args(annotation) if item is not type(None))
        return kind
    return annotation


def body_of(route: AdminRoute, given: Mapping[str, Any]) -> BaseModel | None:
    """The request's model from parsed arguments; what was not given is the model's default. Raises ValidationError."""
    if route.request is None:
        return None
    fields = {name: given[f"body_{name}"] for name in route.request.model_fields if f"body_{name}" in given}
    return route.request.model_validate(fields)
