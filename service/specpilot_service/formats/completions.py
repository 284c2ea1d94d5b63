"""Text completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from specpilot.engines.base import CancelToken, Chunk, Engine, ScoreResult
from specpilot.errors import Cancelled
from specpilot_service.errors import AnswerCut
from specpilot_service.formats.base import AnswerHead, finish_reason
from specpilot_service.logprobs import CompletionLogprobWriter, TokenLabels, prompt_logprobs
from specpilot_service.planning import ChoicePlan, plan_choices
from specpilot_service.runtime import ServiceRuntime
from specpilot_service.schemas import (
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionChunkChoice,
    CompletionLogprobs,
    CompletionRequest,
    SpeculationReport,
    Usage,
)

__all__ = ["CompletionFormat"]


class CompletionFormat:
    """``AnswerFormat`` of ``/v1/completions``; ``echo`` with ``logprobs`` teacher-forces the prompt."""

    def __init__(self, body: CompletionRequest) -> None:
        self._body = body
        self._scores: dict[int, ScoreResult | None] = {}
        self.includes_usage = bool(body.stream_options and body.stream_options.include_usage)

    def plan(self, runtime: ServiceRuntime, request_id: str) -> list[ChoicePlan]:
        body = self._body
        prompts = [runtime.engine.tokenize(p) if isinstance(p, str) else p for p in body.prompt]
        return plan_choices(
            runtime,
            body,
            prompts,
            prompt_param="prompt",
            max_new_tokens=body.max_tokens,
            top_logprobs=body.logprobs,
            is_echo_only=body.echo and body.max_tokens == 0,
            request_id=request_id,
        )

    def writer(self, runtime: ServiceRuntime, plan: ChoicePlan, cancel: CancelToken) -> _CompletionWriter:
        return _CompletionWriter(self, runtime.engine, self._body, plan, cancel)

    def score_prompt(self, engine: Engine, plan: ChoicePlan, cancel: CancelToken) -> ScoreResult | None:
        """Scores of a prompt, computed once for all its choices; None when there is nothing to score."""
        if plan.prompt_index not in self._scores:
            ids = plan.prompt_ids
            try:
                num_top = self._body.logprobs or 0
                score = engine.score(ids, 1, cancel, num_top=num_top) if len(ids) > 1 else None
            except Cancelled as error:
                raise AnswerCut from error
            self._scores[plan.prompt_index] = score
        return self._scores[plan.prompt_index]

    def frame(self, head: AnswerHead, part: CompletionChunkChoice, report: SpeculationReport | None) -> str:
        return self._json(CompletionChunk(**asdict(head), choices=[part], specpilot=report))

    def usage_frame(self, head: AnswerHead, usage: Usage, report: SpeculationReport) -> str:
        return self._json(CompletionChunk(**asdict(head), choices=[], usage=usage, specpilot=report))

    def _json(self, chunk: CompletionChunk) -> str:
        # With include_usage every frame has the field, null until the last; without it no frame has it.
        return chunk.model_dump_json(exclude=None if self.includes_usage else {"usage"})

    def whole(
        self,
        head: AnswerHead,
        choices: Sequence[Sequence[CompletionChunkChoice]],
        usage: Usage,
        report: SpeculationReport,
    ) -> str:
        answer = Completion(
            **asdict(head), choices=[self._join(parts) for parts in choices], usage=usage, specpilot=report
        )
        return answer.model_dump_json()

    def _join(self, parts: Sequence[CompletionChunkChoice]) -> CompletionChoice:
        logprobs = None
        if self._body.logprobs is not None:
            lists = [part.logprobs for part in parts if part.logprobs]
            logprobs = CompletionLogprobs(
                tokens=[item for part in lists for item in part.tokens],
                token_logprobs=[item for part in lists for item in part.token_logprobs],
                top_logprobs=[item for part in lists for item in part.top_logprobs],
                text_offset=[item for part in lists for item in part.text_offset],
            )
        reason = parts[-1].finish_reason
        assert reason is not None  # the last chunk of an answer has one, see generation.decoding
        text = "".join(part.text for part in parts)
        choice = CompletionChoice(index=parts[0].index, text=text, logprobs=logprobs, finish_reason=reason)
        if self._body.return_token_ids:
            choice.prompt_token_ids = next(p.prompt_token_ids for p in parts if p.prompt_token_ids)
            choice.token_ids = [token_id for part in parts for token_id in part.token_ids or ()]
        return choice


class _CompletionWriter:
    def __init__(
        self,
        answer: CompletionFormat,
        engine: Engine,
        body: CompletionRequest,
        plan: ChoicePlan,
        cancel: CancelToken,
    ) -> None:
        self._answer, self._engine, self._body, self._plan = answer, engine, body, plan
        self._cancel = cancel
        labels = TokenLabels(engine, are_ids=bool(body.return_tokens_as_token_ids))
        self._logprobs = CompletionLogprobWriter(engine, labels)

    def opening(self) -> CompletionChunkChoice | None:
        has_ids = bool(self._body.return_token_ids)
        if not self._body.echo:
            return self._ids_of_prompt() if has_ids else None
        prompt, ids = self._body.prompt[self._plan.prompt_index], self._plan.prompt_ids
        text = prompt if isinstance(prompt, str) else self._engine.detokenize(ids)
        logprobs = None
        if self._body.logprobs is not None:
            score = self._answer.score_prompt(self._engine, self._plan, self._cancel)
            logprobs = self._logprobs.write(prompt_logprobs(ids, score))
        choice = CompletionChunkChoice(
            index=self._plan.index, text=text, logprobs=logprobs, finish_reason=None
        )
        choice.prompt_token_ids = list(ids) if has_ids else None
        return choice

    def _ids_of_prompt(self) -> CompletionChunkChoice:
        return CompletionChunkChoice(
            index=self._plan.index,
            text="",
            logprobs=None,
            finish_reason=None,
            prompt_token_ids=list(self._plan.prompt_ids),
        )

    def part(self, chunk: Chunk) -> CompletionChunkChoice | None:
        logprobs = None
        if self._body.logprobs is not None and chunk.logprobs:
            logprobs = self._logprobs.write((e.token_id, e.logprob, e.top) for e in chunk.logprobs)
        ids = list(chunk.token_ids) if self._body.return_token_ids else None
        if not chunk.text and logprobs is None and chunk.finish_reason is None and not ids:
            return None
        return CompletionChunkChoice(
            index=self._plan.index,
            text=chunk.text,
            logprobs=logprobs,
            finish_reason=finish_reason(chunk),
            token_ids=ids,
        )
