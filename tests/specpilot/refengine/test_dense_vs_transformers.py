"""Logits of dense targets against transformers, for every way of feeding the same tokens; wrong arithmetic fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specpilot.refengine.checkpoint import read_tensors
from specpilot.refengine.dense import DenseModel, load_dense
from specpilot.refengine.dense_checkpoint import IGNORED_PREFIXES, dense_shapes
from specpilot.refengine.dense_config import DenseConfig
from specpilot.refengine.dense_families import read_dense_config
from specpilot.refengine.rope import Rope
from tests.oracles.dense_forward import dense_logits
from tests.specpilot.refengine.random_dense import FAMILIES, save_muse_glimmer, save_random

transformers = pytest.importorskip("transformers")

LENGTH = 150
LIMIT = 1e-4
"""Largest absolute logit error in float32; the logits have a standard deviation above 1."""
MUSE_GLIMMER: Any = getattr(transformers, "MuseGlimmerForConditionalGeneration", None)
"""Missing before transformers 5.16; the float64 oracle, held against transformers on all others, stands in."""


class Case:
    """A checkpoint in our hands, and what transformers or else the float64 oracle makes of tokens beyond every
    window."""

    def __init__(self, folder: Path, name: str) -> None:
        generator = torch.Generator().manual_seed(7)
        self.ids = torch.randint(300, (LENGTH,), generator=generator)
        self.residuals: list[Tensor] | None = None
        if name == "muse_glimmer":
            save_muse_glimmer(folder)
            theirs = (
                MUSE_GLIMMER.from_pretrained(folder, dtype=torch.float32).eval() if MUSE_GLIMMER else None
            )
        else:
            theirs = save_random(folder, name)
        self.folder, self.ours = folder, load_dense(folder, mode="serve")
        self.oracle = dense_logits(self.ours.config, self.tensors(), self.ids)
        self.expected = self.oracle.float()
        if theirs is not None:
            with torch.no_grad():
                result = theirs(input_ids=self.ids[None], output_hidden_states=True)
            self.expected = result.logits[0]
            self.residuals = [hidden[0] for hidden in result.hidden_states]

    def tensors(self) -> dict[str, Tensor]:
        return read_tensors(self.folder, dense_shapes(self.ours.config), None, IGNORED_PREFIXES)

    def with_config(self, **changes: Any) -> DenseModel:
        return DenseModel(replace(self.ours.config, **changes), self.tensors(), "serve")


@pytest.fixture(scope="module", params=[*sorted(FAMILIES), "muse_glimmer"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("dense"), request.param)


def feed(model: DenseModel, ids: Tensor, block_sizes: Callable[[int], int]) -> Tensor:
    """Hidden rows of ``ids`` fed in blocks; ``block_sizes`` maps a position to the number of rows to feed there."""
    state = model.new_state(len(ids))
    rows = []
    while state.num_tokens < len(ids):
        block = ids[state.num_tokens :][: block_sizes(state.num_tokens)]
        rows.append(model.forward(block, state).hidden)
        state.commit(len(block))
    return torch.cat(rows)


WAYS: dict[str, Callable[[int], int]] = {
    "whole": lambda position: 10_000,
    "prompt, then token by token": lambda position: 40 if position == 0 else 1,
    "uneven chunks": lambda position: 1 + position * 7 % 70,
}


@pytest.mark.parametrize("way", WAYS)
def test_logits(case: Case, way: str) -> None:
    got = case.ours.logits(feed(case.ours, case.ids, WAYS[way]))
    assert case.expected.std() > 1
    assert got.dtype == torch.float32 and got.shape == case.expected.shape
    assert (got - case.expected).abs().max() <= LIMIT


def test_the_oracle_says_what_transformers_says(case: Case) -> None:
    if case.residuals is None:
        pytest.skip("this transformers has no MuseGlimmerForConditionalGeneration (5.16 has)")
    assert (case.oracle - case.expected).abs().max() <= LIMIT


def test_taps_are_layer_outputs(case: Case) -> None:
    """transformers lists the embedding first, so the output of layer n is entry n + 1; its last entry is normed."""
    if case.residuals is None:
        pytest.skip("this transformers has no MuseGlimmerForConditionalGeneration (5.16 has)")
    got = case.ours.forward(case.ids, case.ours.new_state(LENGTH), taps=(1, 0)).taps
    expected = torch.cat([case.residuals[2], case.residuals[1]], 1)
    assert (got - expected).abs().max() <= LIMIT * expected.std()


def test_embedding(case: Case) -> None:
    if case.residuals is None:
        pytest.skip("this transformers has no MuseGlimmerForConditionalGeneration (5.16 has)")
    torch.testing.assert_close(case.ours.embed(case.ids), case.residuals[0], rtol=1e-6, atol=1e-6)


def test_the_weights_are_kept_once_and_narrow_where_they_can_be(case: Case) -> None:
    packed = case.ours._head.packed
    assert packed is not None
    is_tied = case.ours.config.tie_word_embeddings
    assert packed.element_type == ("bfloat16" if is_tied else "float32")
    assert (case.ours._embedding._packed is packed) == is_tied


def wrong_forms(config: DenseConfig) -> dict[str, dict[str, Any]]:
    """One departure each, from everything a family's config says."""
    rope = next(rope for rope in config.ropes if rope is not None)
    wrong: dict[str, dict[str, Any]] = {
        "base of the rotation": {"ropes": (replace(rope, theta=rope.theta * 1.1),) * config.num_layers},
        "scale of the scores": {"score_scale": config.score_scale * 1.1},
        "eps": {"norm_eps": config.norm_eps + 0.01},
        "activation": {"activation": "gelu_tanh" if config.activation == "silu" else "silu"},
        "centred norms": {"is_norm_centred": not config.is_norm_centred},
        "centred final norm": {"is_final_norm_centred": not config.is_final_norm_centred},
        "embedding scale": {"embedding_scale": config.embedding_scale * 1.1},
        "norm of queries and keys": {"qk_norm": "unit" if config.qk_norm != "unit" else "none"},
        "logit scale": {"logit_scale": config.logit_scale * 1.01},
    }
    if config.has_embedding_norm:
        del wrong["embedding scale"]  # a norm takes a scale away
        wrong["no norm of the embedding"] = {"has_embedding_norm": False}
    if any(config.window_of(layer) for layer in range(config.num_layers)):
        assert config.window is not None
        wrong["window + 1"] = {"window": config.window + 1}
        wrong["window - 1"] = {"window": config.window - 1}
        wrong["no window"] = {"layer_types": ("full_attention",) * config.num_layers}
    if len(set(config.ropes)) > 1:
        wrong["one rotation for all layers"] = {"ropes": (config.ropes[0],) * config.num_layers}
    if rope.stretch is not None or rope.factor != 1:
        wrong["no stretch"] = {"ropes": (Rope(rope.theta),) * config.num_layers}
    if config.logit_cap is not None:
        wrong["no cap"] = {"logit_cap": None}
    if config.has_post_norms:
        wrong["eps of the norms after"] = {"post_norm_eps": config.post_norm_eps + 0.01}
    return wrong


def test_one_wrong_setting_is_seen(case: Case) -> None:
    """The comparison can fail, and every setting of every family takes part."""
    unseen = []
    for what, changes in wrong_forms(case.ours.config).items():
        model = case.with_config(**changes)
        got = model.logits(feed(model, case.ids, WAYS["whole"]))
        if (got - case.expected).abs().max() <= 20 * LIMIT:
            unseen.append(what)
    assert unseen == []


def test_the_folder_tells_its_config(case: Case) -> None:
    assert read_dense_config(case.folder) == case.ours.config
    assert case.ours.config.eos_ids == (1,)
