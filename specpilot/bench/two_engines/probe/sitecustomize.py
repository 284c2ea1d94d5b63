"""Writes down what SGLang's drafters compute, without changing it.

Put this folder first on PYTHONPATH of an SGLang server started without CUDA graphs. While the file
``SPECPILOT_PROBE/on`` exists, every draft of one request adds a file ``SPECPILOT_PROBE/NAME-NUMBER.json``: anchor,
candidate ids, edge scores. SGLang makes only DSpark's chain: the candidates here are the 16 best scores after its
own token, the edges what SGLang's Markov head says of them after every candidate before, and the chain is added.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
from typing import Any

__all__: list[str] = []

_FOLDER = os.environ.get("SPECPILOT_PROBE", "")
_WRAPPED = {
    "sglang.srt.models.dflash": ("CandidateSelector", ("build_lattice",)),
    # The draft may be sampled in either; both give the same tokens.
    "sglang.srt.models.dspark": ("VanillaMarkov", ("sample_block", "sample_block_greedy_fused")),
}
_count = 0


def _write(name: str, row: dict[str, Any]) -> None:
    global _count
    partial = os.path.join(_FOLDER, f"{name}-{_count:03d}.partial")
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(row, file)
    os.replace(partial, partial.removesuffix(".partial") + ".json")
    _count += 1


def _is_on(batch: Any) -> bool:
    return os.path.exists(os.path.join(_FOLDER, "on")) and len(batch) == 1


def _wrap_dflash2(original: Any) -> Any:
    def build_lattice(
        self: Any, *, candidate_ids: Any, unary_logits: Any, hidden_states: Any, anchor_token_ids: Any
    ) -> Any:
        scores = original(
            self,
            candidate_ids=candidate_ids,
            unary_logits=unary_logits,
            hidden_states=hidden_states,
            anchor_token_ids=anchor_token_ids,
        )
        if _is_on(candidate_ids):
            _write(
                "dflash2",
                {
                    "anchor": int(anchor_token_ids[0]),
                    "candidate_ids": candidate_ids[0].tolist(),
                    "edge_scores": scores[0].float().tolist(),
                },
            )
        return scores

    return build_lattice


def _wrap_dspark(original: Any) -> Any:
    def sample(self: Any, base_logits: Any, **arguments: Any) -> Any:
        result = original(self, base_logits, **arguments)
        tokens = result[0] if isinstance(result, tuple) else result
        if tokens is not None and _is_on(base_logits):
            _write("dspark", _dspark_lattice(self, base_logits[0], arguments["first_prev_tokens"], tokens[0]))
        return result

    return sample


def _dspark_lattice(head: Any, base: Any, anchor: Any, chain: Any) -> dict[str, Any]:
    """base (gamma, V), anchor (1,), chain (gamma,); scores are computed as for the chain, in SGLang's dtype."""
    ids: list[list[int]] = []
    scores: list[list[list[float]]] = []
    chosen = before = anchor
    for row, token in zip(base, chain, strict=True):
        candidates = (row + head.compute_step_bias(chosen, None)[0]).topk(16).indices
        edges = (row + head.compute_step_bias(before, None))[:, candidates].float()
        scores.append(edges.expand(16, 16).tolist())
        ids.append(candidates.tolist())
        chosen, before = token[None], candidates
    return {"anchor": int(anchor[0]), "candidate_ids": ids, "edge_scores": scores, "chain": chain.tolist()}


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the usual finders find a module, and wraps a class's methods once it has run."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in _WRAPPED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module
        owner, methods = _WRAPPED[name]
        wrap = _wrap_dflash2 if owner == "CandidateSelector" else _wrap_dspark

        def exec_module(module: Any) -> None:
            run(module)
            kind = getattr(module, owner)
            for method in methods:
                setattr(kind, method, wrap(getattr(kind, method)))
                print(f"probe: {name}.{owner}.{method}", file=sys.stderr, flush=True)

        # An attribute of this one loader, not of its class.
        vars(spec.loader)["exec_module"] = exec_module
        return spec


if _FOLDER:
    sys.meta_path.insert(0, _Finder())
