"""SGLang 0.5.20's own DSpark drafter on the CPU, on the stand-ins of ``sglang_drafter``.

From the wheel run unchanged: everything in srt/models/dspark.py (weights loading, context keys and values, base logits,
Markov head, confidence head), its config parser, and the confidence computation of dspark_planner.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.oracles.sglang_drafter import WheelDrafter
from tests.oracles.sglang_wheel import execute

_COMPONENTS = "speculative/dspark_components"


class _Struct:
    """Stands in for msgspec.Struct: fields by keyword."""

    def __init_subclass__(cls, frozen: bool = False) -> None:
        super().__init_subclass__()

    def __init__(self, **fields: Any) -> None:
        assert set(fields) == set(type(self).__annotations__)
        self.__dict__.update(fields)


def config_parser(root: Path, dflash: dict[str, Any]) -> dict[str, Any]:
    """Namespace with the wheel's ``parse_dspark_draft_config``; ``dflash`` has its DFlash parser."""
    names = {
        "DSparkDraftConfig",
        "SUPPORTED_DSPARK_MARKOV_HEAD_TYPES",
        "_cfg_get",
        "_get_dspark_config",
        "_get_text_config",
        "get_dspark_sample_from_anchor",
        "parse_dspark_draft_config",
    }
    stand_ins = {"msgspec": SimpleNamespace(Struct=_Struct), "__name__": "wheel_dspark_config"}
    return execute(root / _COMPONENTS / "dspark_config.py", dflash | stand_ins, names)


class WheelDSpark(WheelDrafter):
    """The wheel's model, driven for one request the way dspark_worker_v2.py drives it."""

    model_class = "Qwen3DSparkModel"

    def _namespace(self, root: Path) -> dict[str, Any]:
        dflash = super()._namespace(root)
        ragged = execute(root / "speculative/ragged_verify.py", {}, {"RaggedVerifyMode"})["RaggedVerifyMode"]
        stand_ins = {
            "RaggedVerifyMode": ragged,
            # The mode in which the wheel builds the confidence head.
            "read_ragged_verify_mode": lambda: ragged.COMPACT,
            "tensor_model_parallel_all_gather": lambda logits, dim: logits,
            "envs": SimpleNamespace(SGLANG_DSPARK_STACKED_CTX_KV=SimpleNamespace(get=lambda: False)),
            "__name__": "wheel_dspark",
        }
        model = execute(root / "models/dspark.py", dflash | config_parser(root, dflash) | stand_ins)
        planner = {"expect": lambda *_: None, "_CONFIDENCE": None, "__name__": "wheel_planner"}
        names = {"build_markov_embed_stack", "compute_confidence"}
        return model | execute(root / _COMPONENTS / "dspark_planner.py", planner, names)

    def append_context(self, taps: Tensor) -> None:
        """Fill the context from nothing through the wheel's ``write_target_hidden_kv``; taps (P, features * H)."""
        written: dict[int, tuple[Tensor, Tensor]] = {}

        def keep(layer: Any, places: Tensor, k: Tensor, v: Tensor, k_scale: None, v_scale: None) -> None:
            written[layer.layer_id] = k, v

        places = torch.arange(taps.shape[0])
        self.model.write_target_hidden_kv(
            target_hidden=taps, pool=SimpleNamespace(set_kv_buffer=keep), positions=places, cache_loc=places
        )
        self.context = [written[index] for index in range(len(self.model.layers))]

    @torch.no_grad()
    def draft(
        self, anchor_id: int, pick: Callable[[Tensor, int], Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Chain (D,), its score rows (D, V), and its confidence (D,); ``pick`` as the wheel's step sampler, which is
        argmax by default."""
        gamma = self.model.gamma
        block = torch.full((gamma,), self.model.draft_config.mask_token_id)
        block[0] = anchor_id
        positions = self.context[0][0].shape[0] + torch.arange(gamma)
        hidden = self.model(block, positions, None, input_embeds=self.table[block]).hidden_states
        base, _ = self.model.compute_base_logits(hidden)
        anchor = torch.tensor([anchor_id])
        tokens, scores = self.model.markov_head.sample_block(
            base[None],
            first_prev_tokens=anchor,
            hidden_states=hidden[None],
            sampler=pick or (lambda rows, depth: torch.argmax(rows, dim=-1)),
        )
        confidence = self.namespace["compute_confidence"](
            draft_hidden=hidden[None],
            anchor_tokens=anchor,
            draft_tokens=tokens,
            confidence_head=self.model.confidence_head,
            markov_head=self.model.markov_head,
            gamma=gamma,
        )
        return tokens[0], scores[0], confidence[0]
