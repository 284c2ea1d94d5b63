"""Chat completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from specpilot.engines.base import CancelToken, Chunk
from specpilot.errors import RequestError
from specpilot_service.formats.base import AnswerHead, finish_reason
from specpilot_service.logprobs import TokenLabels, chat_logprobs
from specpilot_service.planning import ChoicePlan, plan_choices
from specpilot_service.runtime import ServiceRuntime
from specpilot_service.schemas import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatRequest,
    SpeculationReport,
    Usage,
)
from specpilot_service.schemas.chat import ChatAnswerMessage

__all__ = ["ChatFormat"]


class ChatFormat:
    """``AnswerFormat`` of ``/v1/chat/completions``."""

    def __init__(self, body: ChatRequest) -> None:
        if body.top_logprobs is not None and not body.logprobs:
            raise RequestError("top_logprobs: needs logprobs to be true", param="top_logprobs")
        limits = {body.max_tokens, body.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise RequestError("max_tokens and max_completion_tokens differ: send one", param="max_tokens")
        self._body = body
        self._max_new_tokens = next(iter(limits), None)
        self.includes_usage = bool(body.stream_options and body.stream_options.include_usage)

    def plan(self, runtime: ServiceRuntime, request_id: str) -> list[ChoicePlan]:
        body = self._body
        messages = [
            {"role": "system" if turn.role == "developer" else turn.role, "content": turn.content}
            for turn in body.messages
        ]
        return plan_choices(
            runtime,
            body,
            [runtime.engine.apply_chat_template(messages)],
            prompt_param="messages",
            max_new_tokens=self._max_new_tokens,
            top_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            request_id=request_id,
        )

    def writer(self, runtime: ServiceRuntime, plan: ChoicePlan, cancel: CancelToken) -> _ChatWriter:
        labels = TokenLabels(runtime.engine, are_ids=bool(self._body.return_tokens_as_token_ids))
        return _ChatWriter(labels if self._body.logprobs else None, plan.index)

    def frame(self, head: AnswerHead, part: ChatChunkChoice, report: SpeculationReport | None) -> str:
        return self._json(ChatChunk(**asdict(head), choices=[part], specpilot=report))

    def usage_frame(self, head: AnswerHead, usage: Usage, report: SpeculationReport) -> str:
        return self._json(ChatChunk(**asdict(head), choices=[], usage=usage, specpilot=report))

    def _json(self, chunk: ChatChunk) -> str:
        # With include_usage every frame has the field, null until the last; without it no frame has it.
        return chunk.model_dump_json(exclude=None if self.includes_usage else {"usage"})

    def whole(
        self,
        head: AnswerHead,
        choices: Sequence[Sequence[ChatChunkChoice]],
        usage: Usage,
        report: SpeculationReport,
    ) -> str:
        answer = ChatCompletion(
            **asdict(head), choices=[self._join(parts) for parts in choices], usage=usage, specpilot=report
        )
        return answer.model_dump_json()

    def _join(self, parts: Sequence[ChatChunkChoice]) -> ChatChoice:
        logprobs = None
        if self._body.logprobs:
            entries = [entry for part in parts if part.logprobs for entry in part.logprobs.content]
            logprobs = ChatLogprobs(content=entries)
        reason = parts[-1].finish_reason
        assert reason is not None  # the last chunk of an answer has one, see generation.decoding
        return ChatChoice(
            index=parts[0].index,
            message=ChatAnswerMessage(content="".join(part.delta.content or "" for part in parts)),
            logprobs=logprobs,
            finish_reason=reason,
        )


class _ChatWriter:
    """``labels`` is None when no log-probabilities are asked for."""

    def __init__(self, labels: TokenLabels | None, index: int) -> None:
        self._labels, self._index = labels, index

    def opening(self) -> ChatChunkChoice:
        return ChatChunkChoice(
            index=self._index,
            delta=ChatDelta(role="assistant", content=""),
            logprobs=None,
            finish_reason=None,
        )

    def part(self, chunk: Chunk) -> ChatChunkChoice | None:
        logprobs = None
        if self._labels is not None and chunk.logprobs:
            logprobs = chat_logprobs(self._labels, chunk.logprobs)
        if not chunk.text and logprobs is None and chunk.finish_reason is None:
            return None
        return ChatChunkChoice(
            index=self._index,
            delta=ChatDelta(role=None, content=chunk.text or None),
            logprobs=logprobs,
            finish_reason=finish_reason(chunk),
        )
