"""One verb from its arguments to its exit code: 0 all is well, 2 the call was wrong, 1 everything else."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specpilot_console.client import ApiError, ConsoleClient, Session
from specpilot_console.command.show import show_text
from specpilot_console.command.verbs import JOB_STARTS, Usage, body_of, build_parser, path_names
from specpilot_console.job_view import job_line
from specpilot_console.playground import Question, compare, curl_code, find_model, python_code
from specpilot_console.switch_view import ENDED
from specpilot_service.schemas.admin import SwitchView
from specpilot_service.schemas.admin_jobs import JobView
from specpilot_service.schemas.admin_routes import find_route

__all__ = ["main"]

_PAUSE_S = 0.5


def main(arguments: Sequence[str]) -> int:
    is_json = "--json" in arguments
    try:
        given = vars(build_parser().parse_args(list(arguments)))
        client = ConsoleClient(given["admin_url"], given.get("gateway_url", ""))
        try:
            report, exit_code = _run(client.session(_read_key(given["key_file"])), given)
        finally:
            client.close()
    except (Usage, ValidationError, OSError, UnicodeError) as error:
        return _fail(_words(error), "UsageError", 2, is_json)
    except ApiError as error:
        # The API's own words for a call that can never work as it stands.
        exit_code = 2 if error.status in (400, 422) else 1
        return _fail(str(error), "ApiError", exit_code, is_json, status=error.status, code=error.code)
    except KeyboardInterrupt:
        return _fail("interrupted", "Interrupted", 1, is_json)
    if is_json:
        print(json.dumps(report, ensure_ascii=False, allow_nan=False))
    elif report:
        show_text(report)
    return exit_code


def _run(session: Session, given: dict[str, Any]) -> tuple[dict[str, Any], int]:
    name = given["route"]
    if name == "playground.compare":
        return _compare(session, given), 0
    if name == "events":
        return _events(session, given), 0
    route = find_route(name)
    if "body_document" in given:
        given["body_document"] = _read_text(given["body_document"])
    answer = session.call(
        name,
        body=body_of(route, given),
        query={query: given[f"query_{query}"] for query in route.query},
        **{word: given[word] for word in path_names(route)},
    )
    if route.text is not None:
        return {"text": answer}, 0
    if given.get("wait"):
        return (_wait_for_job if name in JOB_STARTS else _wait)(session, answer["id"])
    return answer, 0 if answer.get("is_intact", True) else 1


def _wait(session: Session, switch_id: str) -> tuple[dict[str, Any], int]:
    """Until the switch ends; its states go to stderr as they come."""
    seen = 0
    while True:
        view = session.fetch(SwitchView, "switches.show", switch_id=switch_id)
        for step in view.steps[seen:]:
            print(f"{step.at:%H:%M:%S} {step.state} {step.message}", file=sys.stderr)
        seen = len(view.steps)
        if view.state in ENDED:
            return view.model_dump(mode="json"), 0 if view.state == "applied" else 1
        time.sleep(_PAUSE_S)


def _wait_for_job(session: Session, job_id: str) -> tuple[dict[str, Any], int]:
    """Until the job ends; its progress goes to stderr as it comes."""
    shown = ""
    while True:
        view = session.fetch(JobView, "jobs.show", job_id=job_id)
        line = job_line(view)
        if line != shown:
            print(line, file=sys.stderr)
        shown = line
        if view.ended_at is not None:
            has_passed = view.result is not None and view.result["passed"] is True
            return view.model_dump(mode="json"), 0 if has_passed else 1
        time.sleep(_PAUSE_S)


def _events(session: Session, given: dict[str, Any]) -> dict[str, Any]:
    if given["json"] and given["limit"] is None:
        raise Usage("events: --json prints one object, so it needs --limit")
    if given["limit"] is not None and given["limit"] < 1:
        raise Usage(f"events: --limit: got {given['limit']}, expected 1 or more")
    found: list[dict[str, Any]] = []
    for event in islice(session.events(), given["limit"]):
        if given["json"]:
            found.append(event)
        else:
            print(json.dumps(event, ensure_ascii=False), flush=True)
    return {"events": found} if given["json"] else {}


def _compare(session: Session, given: dict[str, Any]) -> dict[str, Any]:
    question = Question(given["prompt"], given["max_tokens"], given["temperature"], given["seed"])
    client = session.client
    if given["code"] is not None:
        code = python_code if given["code"] == "python" else curl_code
        return {"text": code(client, find_model(client, session.key), question)}
    stock, profile = compare(client, session.key, question)
    return {
        "is_same_text": stock.text == profile.text,
        "stock": stock.content(),
        "profile": profile.content(),
    }


def _read_key(path: Path) -> str:
    try:
        key = (sys.stdin.read() if str(path) == "-" else path.expanduser().read_text()).strip()
    except OSError as error:
        raise Usage(
            f"--key-file {path}: {error.strerror}; the sidecar writes its first key to admin.key in its state folder "
            "(--state), readable by its own user: name that file with --key-file"
        ) from None
    if not key or not key.isascii() or not key.isprintable():
        raise Usage(f"--key-file {path}: expected one key of the admin API")
    return key


def _read_text(path: str) -> str:
    return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")


def _words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc'])) or error.title}: {e['msg']}" for e in error.errors())
    return str(error)


def _fail(message: str, kind: str, exit_code: int, is_json: bool, **more: Any) -> int:
    line = " ".join(message.split())
    print(f"specpilot admin: {line}", file=sys.stderr)
    if is_json:
        print(json.dumps({"error": {"message": line, "type": kind, **more}}, ensure_ascii=False))
    return exit_code
