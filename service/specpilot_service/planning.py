"""From a checked request body to the generations it asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specpilot.engines.base import EngineDescription, GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import STOCK, Builder, Mechanisms
from specpilot.errors import RequestError
from specpilot_service.runtime import Defaults, ServiceRuntime
from specpilot_service.schemas.common import MAX_CHOICES, SamplingFields

__all__ = ["ChoicePlan", "plan_choices", "sampling_of"]


@dataclass(frozen=True)
class ChoicePlan:
    """One choice of the answer. ``request`` is None when the prompt is only echoed."""

    index: int
    prompt_index: int
    prompt_ids: tuple[int, ...]
    request: GenerateRequest | None


def sampling_of(body: SamplingFields, *, max_new_tokens: int, top_logprobs: int | None) -> SamplingParams:
    """OpenAI's defaults where the body says nothing: temperature 1, everything else off."""

    def given(value: float | None, default: float) -> float:
        return default if value is None else value

    return SamplingParams(
        max_new_tokens=max_new_tokens,
        temperature=given(body.temperature, 1.0),
        top_p=given(body.top_p, 1.0),
        top_k=0 if body.top_k in (None, -1) else body.top_k,
        min_p=given(body.min_p, 0.0),
        repetition_penalty=given(body.repetition_penalty, 1.0),
        frequency_penalty=given(body.frequency_penalty, 0.0),
        presence_penalty=given(body.presence_penalty, 0.0),
        logit_bias=body.logit_bias,
        json_schema=None if body.response_format is None else body.response_format.schema_text,
        seed=body.seed,
        stop=tuple(body.stop),
        ignore_eos=body.ignore_eos,
        top_logprobs=top_logprobs,
    )


def plan_choices(
    runtime: ServiceRuntime,
    body: SamplingFields,
    prompts: Sequence[Sequence[int]],
    *,
    prompt_param: str,
    max_new_tokens: int | None,
    top_logprobs: int | None,
    is_echo_only: bool = False,
    request_id: str,
) -> list[ChoicePlan]:
    """Every choice of the request, all checked before the first one starts.

    Parameters
    ----------
    prompt_param
        Name of the field the prompts came from, for messages.
    max_new_tokens
        None: as many as the context holds.
    is_echo_only
        Nothing is generated; ``max_new_tokens`` is 0 then.
    """
    num_choices = len(prompts) * body.num_choices
    if num_choices > MAX_CHOICES:
        got = f"{len(prompts)} prompts with n = {body.num_choices}"
        message = f"{prompt_param}: got {got}, expected at most {MAX_CHOICES} choices; split the request"
        raise RequestError(message, param=prompt_param)
    plans: list[ChoicePlan] = []
    defaults = runtime.defaults
    for prompt_index, prompt_ids in enumerate(prompts):
        limit = _check_prompt(prompt_ids, max_new_tokens, runtime.description, prompt_param)
        sampling = None
        if not is_echo_only:
            sampling = sampling_of(body, max_new_tokens=limit, top_logprobs=top_logprobs)
            drafter = _drafter_of(runtime, defaults, body)
            mechanisms = _mechanisms_of(defaults, body, drafter)
        for choice_index in range(body.num_choices):
            request = None
            if sampling is not None:
                request = GenerateRequest(
                    prompt_ids,
                    replace(sampling, seed=_derived_seed(sampling.seed, choice_index)),
                    drafter,
                    f"{request_id}-{len(plans)}",
                    mechanisms,
                )
            plans.append(ChoicePlan(len(plans), prompt_index, tuple(prompt_ids), request))
    return plans


def _drafter_of(runtime: ServiceRuntime, defaults: Defaults, body: SamplingFields) -> str | None:
    """The drafter of a request: its own choice, else the server's default; None is plain decoding."""
    if body.speculation is None or body.speculation.drafter is None:
        return defaults.drafter
    name, known = body.speculation.drafter, ("none", *runtime.description.drafters)
    if name not in known:
        message = f"speculation.drafter: got {name!r}, expected one of: {', '.join(known)}"
        raise RequestError(message, param="speculation.drafter")
    return None if name == "none" else name


def _mechanisms_of(defaults: Defaults, body: SamplingFields, drafter: str | None) -> Mechanisms:
    """The server's mechanisms with what the request names in their place; plain decoding has none."""
    asked = body.speculation
    named = {} if asked is None else asked.model_dump(exclude={"drafter"}, exclude_none=True)
    if drafter is None:
        if named:
            name = next(iter(named))
            raise RequestError(
                f"speculation.{name}: got {named[name]!r} without a drafter; name one, or leave it out",
                param=f"speculation.{name}",
            )
        return STOCK
    default = defaults.mechanisms
    builder: Builder = named.get("builder", default.builder)
    if builder == "chain":
        default = replace(default, builder=builder, is_cost_aware=False, gdn_form="path")
    return replace(
        default,
        builder=builder,
        num_nodes=named.get("nodes", default.num_nodes),
        num_positions=named.get("positions", default.num_positions),
    )


def _check_prompt(
    prompt_ids: Sequence[int], max_new_tokens: int | None, description: EngineDescription, param: str
) -> int:
    """The number of tokens to generate. The engine checks too, but here no other prompt has run yet."""
    num_prompt, context = len(prompt_ids), description.context_length
    if num_prompt == 0:
        raise RequestError(f"{param}: got no tokens, expected at least one", param=param)
    for token_id in prompt_ids:
        if not 0 <= token_id < description.vocab_size:
            expected = f"token ids from 0 to {description.vocab_size - 1}"
            raise RequestError(f"{param}: got token id {token_id}, expected {expected}", param=param)
    wanted = 1 if max_new_tokens is None else max_new_tokens
    if num_prompt + wanted > context:
        raise RequestError(
            f"{param}: got {num_prompt} prompt tokens and {wanted} to generate, expected at most {context} "
            "together (the context length); shorten the prompt or lower max_tokens",
            param=param,
            code="context_length_exceeded",
        )
    return context - num_prompt if max_new_tokens is None else max_new_tokens


def _derived_seed(seed: int | None, choice_index: int) -> int | None:
    """Seed of one of n choices: choice 0 is what the same request with n = 1 gives, the others have their own.

    Not seed + index: requests with neighbouring seeds would share all but one of their answers.
    """
    if seed is None or choice_index == 0:
        return seed
    digest = hashlib.blake2b(f"{seed}:{choice_index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
