"""Stock SGLang as scorer: ``/generate`` with token ids and input log-probabilities.

Launch it without ``--speculative-*`` and with ``--enable-fp32-lm-head``; both are read from ``/server_info``, and a
server that speculates is refused. ``logprob_start_len`` is the last prompt token, so that the rows that predict the
answer come back; entries are ``[log-probability, token id, text]``, matched with the answer from its end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from specpilot.errors import ForcingError
from specpilot.forcing.check import check_ids
from specpilot.forcing.scorers.base import ScorerDescription
from specpilot.forcing.scorers.http import JsonServer, ServedScorer
from specpilot.forcing.scores import TokenScores

__all__ = ["SglangScorer"]


class SglangScorer(ServedScorer):
    """Scores by ``/generate`` with ``max_new_tokens`` 0.

    Parameters
    ----------
    vocab_size, eos_ids
        Of the checkpoint, which the server does not tell. Without end-of-text ids, answers that ended with ``stop``
        cannot be judged.
    """

    def __init__(
        self,
        server: JsonServer,
        *,
        vocab_size: int | None = None,
        eos_ids: Sequence[int] = (),
        concurrency: int = 8,
    ) -> None:
        super().__init__(server, concurrency)
        info = server.get("/server_info")
        if not isinstance(info, dict):
            raise ForcingError(f"{server.url}/server_info: got no object, expected SGLang's server arguments")
        if info.get("speculative_algorithm"):
            raise ForcingError(
                f"{server.url}: the server speculates ({info['speculative_algorithm']}), expected stock plain decoding "
                "as scorer"
            )
        head = "fp32" if info.get("enable_fp32_lm_head") else "the checkpoint's dtype, not fp32"
        self._about = ScorerDescription(
            f"SGLang {info.get('version', 'of unknown version')} at {server.url}",
            str(info.get("served_model_name") or info.get("model_path")),
            head,
            vocab_size,
            tuple(eos_ids),
            context_length=info.get("context_length"),
        )

    def describe(self) -> ScorerDescription:
        return self._about

    def continue_greedily(self, ids: Sequence[int], num_tokens: int) -> list[int]:
        reply = self._ask(
            {"input_ids": list(ids), "sampling_params": {"temperature": 0.0, "max_new_tokens": num_tokens}}
        )
        written: Any = reply.get("output_ids")
        check_ids(written, f"{self._server.url}/generate, output_ids")
        return [int(token_id) for token_id in written]

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        reply = self._server.post("/generate", body)
        if not isinstance(reply, dict):
            raise ForcingError(f"{self._server.url}/generate: got no object")
        return reply

    def _force(self, ids: Sequence[int], start: int) -> TokenScores:
        reply = self._ask(
            {
                "input_ids": list(ids),
                "sampling_params": {"temperature": 0.0, "max_new_tokens": 0},
                "return_logprob": True,
                "logprob_start_len": start - 1,
                "top_logprobs_num": 1,
            }
        )
        count = len(ids) - start
        meta = reply.get("meta_info")
        values, tops = (
            meta.get(name) if isinstance(meta, dict) else None
            for name in ("input_token_logprobs", "input_top_logprobs")
        )
        if not isinstance(values, list) or not isinstance(tops, list) or min(len(values), len(tops)) < count:
            found = len(values) if isinstance(values, list) else 0
            raise ForcingError(
                f"{self._server.url}: got {found} input log-probabilities, expected {count} and as many of the most "
                "likely tokens; they are missing"
            )
        values, tops = values[-count:], tops[-count:]
        try:
            scored = [int(entry[1]) for entry in values]
            best = [top[0] for top in tops]
            result = TokenScores(
                np.array([_number(entry[0]) for entry in values]),
                np.array([int(entry[1]) for entry in best], np.int64),
                np.array([_number(entry[0]) for entry in best]),
            )
        except (TypeError, KeyError, IndexError, ValueError, OverflowError) as error:
            raise ForcingError(f"{self._server.url}: log-probabilities are missing: {error!r}") from None
        if scored != list(ids[start:]):
            raise ForcingError(f"{self._server.url}: scored other tokens than it was given")
        return result


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
