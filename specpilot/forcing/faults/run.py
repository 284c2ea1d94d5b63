"""Answers of a faulty system."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.forcing.answer import Answer
from specpilot.forcing.collect import Prompt, decode_ids
from specpilot.forcing.faults.catalogue import Fault
from specpilot.forcing.faults.engine import FaultyEngine

__all__ = ["run_fault"]


def run_fault(
    fault: Fault, prompts: Sequence[Prompt], max_new_tokens: int, *, concurrency: int = 8
) -> list[Answer]:
    """What the bundled model with the fault answers, in the prompts' order."""
    engine = FaultyEngine(fault, concurrency)

    def one(prompt: Prompt) -> Answer:
        name, ids = prompt
        seed = zlib.crc32(name.encode())
        params = SamplingParams(max_new_tokens=max_new_tokens, temperature=fault.temperature, seed=seed)
        if fault.bias and not fault.bias_after:
            params = replace(params, logit_bias=fault.bias)
        elif fault.bias:
            params = replace(params, max_new_tokens=min(fault.bias_after, max_new_tokens))
        request = GenerateRequest(ids, params, "dflash2", name, fault.mechanisms)
        output, reason = decode_ids(engine, request)
        left = max_new_tokens - len(output)
        if fault.bias_after and reason == "length" and left:
            params = replace(params, max_new_tokens=left, logit_bias=fault.bias)
            more, reason = decode_ids(engine, replace(request, prompt_ids=[*ids, *output], sampling=params))
            output += more
        return Answer(name, tuple(ids), tuple(output), reason, max_new_tokens)

    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(one, prompts))
