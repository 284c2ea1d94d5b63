"""A drafter that is damaged or belongs to another target is refused by name before anything is served."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from specpilot.errors import CheckpointError, Unsupported
from specpilot.refengine.dflash2 import load_dflash2
from specpilot.refengine.dflash2_checkpoint import draft_shapes
from specpilot.refengine.dflash2_config import DFlash2Config
from tests.oracles.random_dflash2 import BASE_CONFIG, TinyTarget, make_config, make_tensors, write_checkpoint


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path / "dflash2", BASE_CONFIG, make_tensors(BASE_CONFIG, 0))


def load(folder, **options):
    target = TinyTarget(options.pop("target_config", BASE_CONFIG), 1, **options)
    return load_dflash2(folder, target=target)


def rewrite_config(folder, change):
    config = copy.deepcopy(BASE_CONFIG)
    change(config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def test_names_and_shapes_are_those_of_a_random_checkpoint():
    shapes = {name: tuple(tensor.shape) for name, tensor in make_tensors(BASE_CONFIG, 0).items()}
    assert draft_shapes(DFlash2Config.parse(BASE_CONFIG)) == shapes


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
    rewrite_config(folder, lambda config: config.pop("target_tap_convention"))
    assert load(folder, architecture="Qwen3_5ForCausalLM").target_taps == (0, 2, 4)
    with pytest.raises(CheckpointError, match=r"target_layer_ids: got \[1, 3, 5\], expected ids in 0..4"):
        load(folder, architecture="Qwen3_5ForConditionalGeneration")


def test_target_class_of_unknown_convention(folder):
    with pytest.raises(Unsupported, match="LlamaForCausalLM"):
        load(folder, architecture="LlamaForCausalLM")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([3, 1, 5], "strictly increasing"),
        ([1, 3, 3], "strictly increasing"),
        ([], "strictly increasing"),
        ([0, 3, 5], r"expected ids in 1\.\.5"),
        ([1, 3, 6], r"expected ids in 1\.\.5"),
        ([-1, 3, 5], r"expected ids in 1\.\.5"),
        ("1", "list of layer ids"),
        ([1, True, 5], "list of layer ids"),
        (None, "list of layer ids"),
    ],
)
def test_wrong_taps(folder, ids, message):
    rewrite_config(folder, lambda config: config["dflash_config"].update(target_layer_ids=ids))
    with pytest.raises(CheckpointError, match=f"target_layer_ids.*{message}"):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mask_token_id", 211),
        ("mask_token_id", -1),
        ("mask_token_id", None),
        ("selector_top_k", 212),
        ("selector_top_k", 0),
        ("selector_rank", "24"),
        ("conv_group_size", 24),
        ("conv_kernel_size", 0),
        ("block_size", 1),
    ],
)
def test_dflash_fields_out_of_range(folder, key, value):
    rewrite_config(folder, lambda config: config["dflash_config"].update({key: value}))
    with pytest.raises(CheckpointError, match=key):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architectures", ["DFlashDraftModel"]),
        ("architectures", None),
        ("dflash_config", None),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 2.0),
        ("num_key_value_heads", 3),
        ("head_dim", 15),
        ("rms_norm_eps", 0),
        ("rms_norm_eps", None),
        ("block_size", None),
        ("target_tap_convention", "inputs"),
    ],
)
def test_top_level_fields_out_of_range(folder, key, value):
    rewrite_config(folder, lambda config: config.update({key: value}))
    with pytest.raises(CheckpointError, match=key):
        load(folder)


@pytest.mark.parametrize("key", ["output_multiplier", "final_logit_softcapping", "projector_type", "typo"])
def test_unknown_dflash_keys(folder, key):
    rewrite_config(folder, lambda config: config["dflash_config"].update({key: 1}))
    with pytest.raises(CheckpointError, match=rf"dflash_config: unknown keys \['{key}'\]"):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("is_causal", True),
        ("use_sliding_window", True),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("partial_rotary_factor", 0.5),
        ("rope_scaling", {"rope_type": "yarn"}),
        ("rope_parameters", {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}),
        ("quantization_config", {"quant_method": "fp8"}),
    ],
)
def test_arithmetic_this_engine_does_not_have(folder, key, value):
    rewrite_config(folder, lambda config: config.update({key: value}))
    with pytest.raises(Unsupported, match=key):
        load(folder)


def test_block_size_and_target_layers_inside_dflash_config_win_as_in_sglang():
    config = DFlash2Config.parse(make_config({"block_size": 16, "num_target_layers": 5}))
    assert (config.block_size, config.num_target_layers) == (16, 5)


def change_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_every_missing_tensor_is_named(folder):
    names = list(load_file(folder / "model.safetensors"))
    for name in names:
        write_checkpoint(folder, BASE_CONFIG, make_tensors(BASE_CONFIG, 0))
        change_tensors(folder, lambda tensors, name=name: tensors.pop(name))
        with pytest.raises(CheckpointError) as refusal:
            load(folder)
        assert str(refusal.value).startswith(f"{name}: missing")


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("lm_head.weight", torch.zeros(2, 2), r"lm_head\.weight: not a tensor of this architecture"),
        ("fc.weight", torch.zeros(64, 128), r"fc\.weight: got shape \(64, 128\), expected \(64, 192\)"),
        ("norm.weight", torch.zeros(64, dtype=torch.int32), r"norm\.weight: got dtype torch\.int32"),
        ("norm.weight", torch.full((64,), float("nan")), r"norm\.weight: holds a value that is not finite"),
    ],
)
def test_tensors_that_do_not_fit(folder, name, tensor, message):
    change_tensors(folder, lambda tensors: tensors.update({name: tensor}))
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_damaged_files(folder):
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for damaged in (whole[:-10], whole[:100], b"", b"\xff" * 64):
        weights.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"model\.safetensors"):
            load(folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load(folder)
    for text in ("{", "[]", "\ud800".encode("utf-16", "surrogatepass").decode("latin-1")):
        (folder / "config.json").write_text(text, encoding="latin-1")
        with pytest.raises(CheckpointError, match=r"config\.json"):
            load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load(folder)


def test_shards_with_an_index(folder):
    tensors = load_file(folder / "model.safetensors")
    whole = load(folder)
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:7], names[7:])):
        file = f"model-{number + 1:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8")
    proposals = [drafter.propose(drafter.new_state(1), 3) for drafter in (whole, load(folder))]
    assert torch.equal(proposals[0].lattice.edge_scores, proposals[1].lattice.edge_scores)
    for damaged in ("[]", "{}", '{"weight_map": {"norm.weight": 3}}', "{"):
        index.write_text(damaged, encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"index\.json"):
            load(folder)


def test_a_tensor_in_two_shards(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file({"norm.weight": tensors["norm.weight"]}, folder / "more.safetensors")
    weight_map = dict.fromkeys(tensors, "model.safetensors") | {"norm.weight": "more.safetensors"}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": weight_map}), encoding="utf-8"
    )
    with pytest.raises(CheckpointError, match=r"norm\.weight: .*disagree"):
        load(folder)


def test_bfloat16_weights_are_read_exactly(folder):
    tensors = {name: tensor.bfloat16() for name, tensor in make_tensors(BASE_CONFIG, 0).items()}
    drafters = []
    for dtype in (torch.bfloat16, torch.float32):
        write_checkpoint(folder, BASE_CONFIG, {name: tensor.to(dtype) for name, tensor in tensors.items()})
        drafters.append(load(folder))
    one, other = (drafter.propose(drafter.new_state(1), 9).lattice for drafter in drafters)
    assert torch.equal(one.edge_scores, other.edge_scores)
