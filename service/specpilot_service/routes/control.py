"""Changing mechanisms while the engine runs. Only for the sidecar that started it: the path needs its secret."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import JSONResponse
from pydantic import Field

from specpilot.errors import ConfigError, RequestError
from specpilot_service.deps import RuntimeDep
from specpilot_service.hot_settings import RestartRequired, change_settings
from specpilot_service.schemas.base import RequestModel, ResponseModel

__all__ = ["CONTROL_HEADER", "CONTROL_PATH", "SettingsChange", "SettingsChanged", "change", "router"]

CONTROL_PATH = "/control/v1/settings"
CONTROL_HEADER = "x-specpilot-control"

router = APIRouter(include_in_schema=False)


class SettingsChange(RequestModel):
    """``arguments`` are the flags that a new process would get."""

    arguments: list[str] = Field(max_length=200)
    is_dry_run: bool = False


class SettingsChanged(ResponseModel):
    """Names of the settings that differ from before; with ``restart_required`` those that need a new process."""

    changed: list[str]


@router.post(CONTROL_PATH)
def change(
    body: SettingsChange,
    runtime: RuntimeDep,
    x_specpilot_control: Annotated[str, Header()] = "",
) -> JSONResponse:
    key = runtime.settings.control_key
    assert key is not None
    if not hmac.compare_digest(x_specpilot_control.encode(), key.get_secret_value().encode()):
        return _error(401, "wrong_key", "this path is for the sidecar that started the engine", [])
    try:
        changed = change_settings(runtime, body.arguments, is_dry_run=body.is_dry_run)
    except RestartRequired as refusal:
        return _error(409, "restart_required", str(refusal), refusal.fields)
    except ConfigError as error:
        raise RequestError(str(error), param="arguments") from None
    return JSONResponse(SettingsChanged(changed=changed).model_dump())


def _error(status: int, code: str, message: str, fields: list[str]) -> JSONResponse:
    detail = {
        "message": message,
        "type": "invalid_request_error",
        "param": None,
        "code": code,
        "fields": fields,
    }
    return JSONResponse({"error": detail}, status)
