"""Models and health."""

from __future__ import annotations

from typing import Any, Literal

from specpilot_service.schemas.base import ResponseModel

__all__ = ["Health", "ModelCard", "ModelList"]


class ModelCard(ResponseModel):
    """``specpilot`` is everything the engine says about itself (``EngineDescription``)."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "specpilot"
    specpilot: dict[str, Any]


class ModelList(ResponseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class Health(ResponseModel):
    status: Literal["ok", "not ready"]
    detail: str = ""
    num_running: int | None = None
    num_waiting: int | None = None
