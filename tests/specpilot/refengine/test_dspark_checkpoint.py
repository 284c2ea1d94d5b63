"""A DSpark drafter that is damaged or belongs to another target is refused by name before anything is served."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from specpilot.errors import CheckpointError, Unsupported
from specpilot.refengine.dspark import load_dspark
from specpilot.refengine.dspark_checkpoint import dspark_shapes
from specpilot.refengine.dspark_config import DSparkConfig
from tests.oracles.random_dflash2 import TinyTarget, write_checkpoint
from tests.oracles.random_dspark import BASE_CONFIG, make_config, make_tensors


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path / "dspark", BASE_CONFIG, make_tensors(BASE_CONFIG, 0))


def load(folder, **options):
    target = TinyTarget(options.pop("target_config", BASE_CONFIG), 1, **options)
    return load_dspark(folder, target=target)


def rewrite(folder, **changes):
    write_checkpoint(folder, make_config(**changes), make_tensors(BASE_CONFIG, 0))


@pytest.mark.parametrize(
    "changes", [{}, {"enable_confidence_head": False}, {"confidence_head_with_markov": False}]
)
def test_names_and_shapes_are_those_of_a_random_checkpoint(changes):
    config = make_config(**changes)
    shapes = {name: tuple(tensor.shape) for name, tensor in make_tensors(config, 0).items()}
    assert dspark_shapes(DSparkConfig.parse(config)) == shapes


@pytest.mark.parametrize("architecture", ["Qwen3DSparkModel", "DSparkDraftModel"])
def test_both_names_of_the_architecture_are_known(folder, architecture):
    rewrite(folder, architectures=[architecture])
    assert load(folder).target_taps == (0, 2, 4)


@pytest.mark.parametrize(
    ("key", "value"), [("vocab_size", 212), ("hidden_size", 128), ("num_target_layers", 8)]
)
def test_another_targets_drafter(folder, key, value):
    with pytest.raises(
        CheckpointError, match=f"{key}: got {BASE_CONFIG[key]}, expected {value}.*another target"
    ):
        load(folder, target_config=make_config(**{key: value}))


def test_tap_convention_of_another_target_class(folder):
    with pytest.raises(
        CheckpointError, match="target_tap_convention: got 'layer_input', expected 'layer_output'"
    ):
        load(folder, architecture="Qwen3_5ForConditionalGeneration")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architectures", ["DFlash2DraftModel"]),
        ("architectures", None),
        ("block_size", 0),
        ("block_size", 33),
        ("block_size", None),
        ("mask_token_id", 211),
        ("mask_token_id", None),
        ("markov_rank", 0),
        ("markov_rank", None),
        ("markov_rank", "24"),
        ("target_layer_ids", None),
        ("target_layer_ids", [3, 1, 5]),
        ("target_layer_ids", [1, 3, 6]),
        ("enable_confidence_head", 1),
        ("confidence_head_with_markov", "yes"),
        ("num_key_value_heads", 3),
        ("target_tap_convention", "inputs"),
    ],
)
def test_fields_out_of_range(folder, key, value):
    rewrite(folder, **{key: value})
    with pytest.raises(CheckpointError, match=key):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("markov_head_type", "gated"),
        ("markov_head_type", "rnn"),
        ("markov_head_type", None),
        ("sample_from_anchor", False),
        ("has_embed_tokens", True),
        ("dspark_config", {"markov_rank": 8}),
        ("dspark_markov_rank", 8),
        ("projector_type", "domino"),
        ("is_causal", True),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("hidden_act", "gelu"),
        ("quantization_config", {"quant_method": "fp8"}),
    ],
)
def test_arithmetic_this_engine_does_not_have(folder, key, value):
    rewrite(folder, **{key: value})
    with pytest.raises(Unsupported, match=key):
        load(folder)


def test_keys_may_stand_inside_dflash_config_but_not_contradict(folder):
    inner = {"mask_token_id": 7, "target_layer_ids": [1, 3, 5], "projector_type": "dspark"}
    config = {key: value for key, value in BASE_CONFIG.items() if key not in inner}
    assert DSparkConfig.parse({**config, "dflash_config": inner}) == DSparkConfig.parse(BASE_CONFIG)
    with pytest.raises(CheckpointError, match="mask_token_id: got 7, expected 8 as in dflash_config"):
        DSparkConfig.parse({**BASE_CONFIG, "dflash_config": {"mask_token_id": 8}})
    with pytest.raises(CheckpointError, match=r"dflash_config: unknown keys \['selector_rank'\]"):
        DSparkConfig.parse({**BASE_CONFIG, "dflash_config": {"selector_rank": 8}})


def change_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_every_missing_tensor_is_named(folder):
    for name in load_file(folder / "model.safetensors"):
        write_checkpoint(folder, BASE_CONFIG, make_tensors(BASE_CONFIG, 0))
        change_tensors(folder, lambda tensors, name=name: tensors.pop(name))
        with pytest.raises(CheckpointError, match=f"{name}: missing"):
            load(folder)


def test_unexpected_and_misshapen_tensors_are_named(folder):
    change_tensors(
        folder, lambda tensors: tensors.update({"markov_head.gate_proj.weight": torch.zeros(3, 3)})
    )
    with pytest.raises(CheckpointError, match=r"markov_head\.gate_proj\.weight: not a tensor of this"):
        load(folder)
    rewrite(folder, markov_rank=16)
    with pytest.raises(CheckpointError, match=r"got shape \(1, 88\), expected \(1, 80\)"):
        load(folder)


@pytest.mark.parametrize("name", ["embed_tokens.weight", "lm_head.weight"])
def test_copies_of_the_targets_tensors_must_agree_with_it(folder, name):
    """Published checkpoints carry them; they are no part of the drafter."""
    table = TinyTarget(BASE_CONFIG, 1).table
    plain = load(folder)
    change_tensors(folder, lambda tensors: tensors.update({name: table}))
    loaded = load(folder)
    assert loaded.memory_bytes == plain.memory_bytes
    drafts = [drafter.propose(drafter.new_state(1), 3) for drafter in (plain, loaded)]
    assert torch.equal(drafts[0].lattice.edge_scores, drafts[1].lattice.edge_scores)
    change_tensors(folder, lambda tensors: tensors.update({name: table.flip(0)}))
    with pytest.raises(CheckpointError, match=rf"{name}: differs from the target's"):
        load(folder)
