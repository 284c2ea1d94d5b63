"""The reference engine: several requests at a time, plain or speculative, each as if it were alone."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping, Sequence

from specpilot.draft.drafter import Drafter
from specpilot.draft.recording import StepRecorder
from specpilot.draft.step_cost import StepCost
from specpilot.engines.base import (
    CancelToken,
    Chunk,
    EngineDescription,
    EngineHealth,
    GenerateRequest,
    ScoreResult,
)
from specpilot.engines.mechanisms import BatchMechanisms
from specpilot.errors import ConfigError, RequestError, Unsupported
from specpilot.refengine.batch_step import run_step
from specpilot.refengine.copies import TargetCopies
from specpilot.refengine.generation import Generation
from specpilot.refengine.jobs import Job
from specpilot.refengine.scheduler import Limits, Scheduler
from specpilot.refengine.scoring import Scoring
from specpilot.refengine.speculation import plan_speculation
from specpilot.refengine.target import Target
from specpilot.refengine.tokenizer import ChatTokenizer
from specpilot.sampling import JsonGrammars, TokenChooser, new_chooser
from specpilot_kernels.cpu_jit import num_threads

__all__ = ["ReferenceEngine"]


class ReferenceEngine:
    """Implements ``specpilot.engines.base.Engine`` over one target and its drafters.

    Parameters
    ----------
    drafters
        By name. ``default_drafter`` is what the description recommends to callers that name none.
    limits
        Requests that run and wait, and the room they may take; what is beyond is refused.
    num_lanes
        Threads that run steps at the same time (:mod:`specpilot.refengine.lanes`), at most as many as kernels may use.
        One only where all requests must meet in a step: for a shared node budget, and for a recorder.
    batch
        How the requests of a step share its rows.
    recorder
        Is told every verify step of requests that draft.
    step_costs
        What a step costs by its rows, by drafter, for trees that stop by it.
    """

    def __init__(
        self,
        model_id: str,
        target: Target,
        drafters: dict[str, Drafter],
        tokenizer: ChatTokenizer,
        *,
        default_drafter: str | None,
        limits: Limits,
        num_lanes: int = 1,
        batch: BatchMechanisms | None = None,
        recorder: StepRecorder | None = None,
        step_costs: Mapping[str, StepCost] | None = None,
    ) -> None:
        batch = batch or BatchMechanisms()
        _check_prompt_rows(batch, limits)
        self._limits, self._rows = limits, _StepRows(target, batch)
        self.target, self.drafters, self.tokenizer = target, drafters, tokenizer
        self.copies = TargetCopies(target)
        self._recorder, self._num_requests = recorder, itertools.count()
        self.step_costs = step_costs
        self._model_id, self._default_drafter = model_id, default_drafter
        # The scheduler knows the target and not the engine, so that it can end when nobody holds the engine any more.
        is_single = batch.node_budget is not None or recorder is not None
        self._scheduler = Scheduler(self._rows, limits, 1 if is_single else num_lanes)
        weakref.finalize(self, self._scheduler.stop)
        self._grammars = JsonGrammars(tokenizer, target.config.vocab_size, target.config.eos_ids)

    @property
    def batch(self) -> BatchMechanisms:
        return self._rows.batch

    def change_batch(self, batch: BatchMechanisms) -> None:
        """Share rows like this from the next step on; requests that run keep their own plans.

        Raises
        ------
        Unsupported
            The shared node budget differs: it decides how many threads run steps, which is fixed at the start.
        """
        if batch.node_budget != self.batch.node_budget:
            raise Unsupported(
                f"node_budget: got {batch.node_budget} on an engine that was started with {self.batch.node_budget}; "
                "start it again with this one"
            )
        _check_prompt_rows(batch, self._limits)
        self._rows.batch = batch

    def describe(self) -> EngineDescription:
        config = self.target.config
        return EngineDescription(
            engine="reference",
            model_id=self._model_id,
            architecture=self.target.architecture,
            numeric_mode=self.target.mode,
            context_length=config.context_length,
            vocab_size=config.vocab_size,
            eos_ids=config.eos_ids,
            drafters=tuple(self.drafters),
            default_drafter=self._default_drafter,
            device="cpu",
            dtype="float32",
            num_threads=num_threads(),
        )

    def health(self) -> EngineHealth:
        running, waiting = self._scheduler.counts()
        is_draining = self._scheduler.is_draining
        return EngineHealth(not is_draining, is_draining, running, waiting)

    def tokenize(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return self.tokenizer.token_bytes(token_id)

    def apply_chat_template(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self.tokenizer.encode_chat(messages)

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        self._check_ids(request.prompt_ids, request.sampling.max_new_tokens)
        if request.drafter is not None and request.drafter not in self.drafters:
            known = ", ".join(self.drafters) or "none"
            raise RequestError(f"drafter: got {request.drafter!r}, expected one of: {known}", param="drafter")
        drafter = None if request.drafter is None else self.drafters[request.drafter]
        plan = plan_speculation(
            self.target, drafter, request.mechanisms, self.batch, self.step_costs, self.copies
        )
        chooser = self._new_chooser(request)
        # Callers may use an id twice.
        record_id = f"{next(self._num_requests)}-{request.request_id}"
        job = Generation(
            self.target,
            plan,
            self.tokenizer,
            request,
            chooser,
            cancel or CancelToken(),
            self._recorder,
            record_id,
        )
        self._scheduler.submit(job)
        return _Answer(self, job)

    def score(
        self,
        token_ids: Sequence[int],
        start: int,
        cancel: CancelToken | None = None,
        *,
        num_top: int = 0,
    ) -> ScoreResult:
        self._check_ids(token_ids, 0)
        if not 1 <= start <= len(token_ids):
            raise RequestError(
                f"start: got {start}, expected 1 to {len(token_ids)} (the first token has no context)"
            )
        if not 0 <= num_top <= 20:
            raise RequestError(f"num_top: got {num_top}, expected 0 to 20", param="logprobs")
        job = Scoring(self.target, token_ids, start, num_top, cancel or CancelToken())
        self._scheduler.submit(job)
        try:
            return job.outbox.get()
        finally:
            self._scheduler.give_up(job)

    def drain(self, timeout_s: float) -> bool:
        return self._scheduler.drain(timeout_s)

    def _new_chooser(self, request: GenerateRequest) -> TokenChooser:
        return new_chooser(
            request.sampling,
            request.prompt_ids,
            vocab_size=self.target.config.vocab_size,
            grammars=self._grammars,
        )

    def _check_ids(self, ids: Sequence[int], max_new_tokens: int) -> None:
        config = self.target.config
        if not ids:
            raise RequestError("prompt: got no tokens, expected at least one", param="prompt")
        wrong = next((token for token in ids if not 0 <= token < config.vocab_size), None)
        if wrong is not None:
            raise RequestError(
                f"prompt: got token id {wrong}, expected 0 to {config.vocab_size - 1}", param="prompt"
            )
        if len(ids) + max_new_tokens > config.context_length:
            raise RequestError(
                f"got {len(ids)} prompt tokens and up to {max_new_tokens} new ones, expected at most "
                f"{config.context_length} together; shorten the prompt or lower max_tokens",
                param="messages",
                code="context_length_exceeded",
            )


class _StepRows:
    """A step with the batch options of the moment; it knows the target and not the engine."""

    def __init__(self, target: Target, batch: BatchMechanisms) -> None:
        self._target, self.batch = target, batch

    def __call__(self, jobs: Sequence[Job]) -> None:
        run_step(self._target, jobs, batch=self.batch)


def _check_prompt_rows(batch: BatchMechanisms, limits: Limits) -> None:
    if batch.prompt_rows is not None and limits.max_running > batch.prompt_rows:
        raise ConfigError(
            f"prompt_rows: got {batch.prompt_rows} with max_running {limits.max_running}, expected at least as "
            "many, so that every prompt gets a row in every step"
        )


class _Answer(Iterator[Chunk]):
    """Chunks of one request, read by one thread; the request runs until it ends or this is closed."""

    def __init__(self, engine: ReferenceEngine, job: Generation) -> None:
        # The engine stops when nobody holds it.
        self._engine, self._job, self._has_ended = engine, job, False

    def __next__(self) -> Chunk:
        if self._has_ended:
            raise StopIteration
        job, scheduler = self._job, self._engine._scheduler
        if job.cancel.is_cancelled:
            self.close()
            return Chunk((), "", finish_reason="cancelled")
        was_blocked = job.is_blocked
        try:
            chunk = job.outbox.get()
        except BaseException:
            self.close()
            raise
        if chunk.finish_reason is not None:
            self._has_ended = True
        elif was_blocked:
            scheduler.wake()
        return chunk

    def close(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._engine._scheduler.give_up(self._job)

    def __del__(self) -> None:
        self.close()
