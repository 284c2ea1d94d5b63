"""The OpenAI endpoint. A route checks the body; the work runs in a thread, the writing is in ``formats``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from specpilot.errors import RequestError
from specpilot_service.answers import AnswerJob
from specpilot_service.deps import RuntimeDep
from specpilot_service.formats.base import AnswerFormat
from specpilot_service.formats.chat import ChatFormat
from specpilot_service.formats.completions import CompletionFormat
from specpilot_service.runtime import ServiceRuntime
from specpilot_service.schemas import (
    ChatCompletion,
    ChatRequest,
    Completion,
    CompletionRequest,
    ErrorBody,
    ModelCard,
    ModelList,
)
from specpilot_service.schemas.common import SamplingFields
from specpilot_service.streaming import USAGE_HEADER, EventStream, until_disconnect
from specpilot_service.workers import FrameStream

__all__ = ["create_chat_completion", "create_completion", "get_model", "list_models", "router"]

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (400, 404, 413, 429, 500, 503)
}

router = APIRouter(prefix="/v1", tags=["openai"], responses=_ERRORS)

PartT = TypeVar("PartT")


@router.get("/models")
async def list_models(runtime: RuntimeDep) -> ModelList:
    return ModelList(data=[_model_card(runtime)])


@router.get("/models/{model_id:path}")
async def get_model(model_id: str, runtime: RuntimeDep) -> ModelCard:
    runtime.check_model(model_id)
    return _model_card(runtime)


@router.post("/chat/completions", response_model=ChatCompletion)
async def create_chat_completion(body: ChatRequest, request: Request, runtime: RuntimeDep) -> Response:
    return await _answer(body, ChatFormat(body), request, runtime, id_prefix="chatcmpl")


@router.post("/completions", response_model=Completion)
async def create_completion(body: CompletionRequest, request: Request, runtime: RuntimeDep) -> Response:
    return await _answer(body, CompletionFormat(body), request, runtime, id_prefix="cmpl")


async def _answer(
    body: SamplingFields,
    answer: AnswerFormat[PartT],
    request: Request,
    runtime: ServiceRuntime,
    *,
    id_prefix: str,
) -> Response:
    runtime.check_model(body.model)
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options: only allowed when stream is true", param="stream_options")
    request_id: str = request.state.request_id
    tells_usage = request.headers.get(USAGE_HEADER) == "comment"
    job = AnswerJob(runtime, f"{id_prefix}-{request_id}", request.state.arrived_at, tells_usage)
    frames = runtime.workers.submit(lambda cancel: (job.stream if body.stream else job.whole)(answer, cancel))
    try:
        if not body.stream:
            content = await until_disconnect(_join(frames), request.receive)
            return Response(content, media_type="application/json")
        first = await until_disconnect(anext(frames), request.receive)
    except BaseException as error:
        frames.cancel()
        if isinstance(error, ClientDisconnect):
            runtime.metrics.cancelled.inc()
        raise
    return EventStream(
        first,
        frames,
        request_id=request_id,
        stall_timeout_s=runtime.settings.stall_timeout_s,
        on_disconnect=runtime.metrics.cancelled.inc,
    )


async def _join(frames: FrameStream) -> bytes:
    return b"".join([frame async for frame in frames])


def _model_card(runtime: ServiceRuntime) -> ModelCard:
    description = runtime.description
    return ModelCard(id=description.model_id, created=runtime.started_at_s, specpilot=asdict(description))
