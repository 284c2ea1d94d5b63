"""Conventions of SGLang 0.5.20 that engine, checkpoints and trainer rely on.

The transcribed oracles always run. What can be read from the wheel itself is read from it where
``SGLANG_WHEEL`` names the folder of an unpacked one.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import specpilot
from specpilot.errors import CheckpointError
from specpilot.models.train.dspark import DSparkShape
from specpilot.refengine.block_config import resolve_target_taps, tap_convention
from specpilot.refengine.config import TargetConfig
from specpilot.verify import verify_greedy
from tests.oracles import random_dspark
from tests.oracles.random_dflash2 import make_config
from tests.oracles.sglang_taps import captured_states
from tests.oracles.sglang_wheel import execute, find_class, methods, parse, wheel_root

CAUSAL, CONDITIONAL = "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"
BUNDLED = Path(specpilot.__file__).parent / "models" / "bundled"

TARGET_CONFIG: dict[str, Any] = {
    "architectures": [CAUSAL],
    "model_type": "qwen3_5_text",
    "vocab_size": 211,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "attention_bias": False,
    "attn_output_gate": True,
    "full_attention_interval": 3,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"] * 2,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "max_position_embeddings": 512,
    "partial_rotary_factor": 0.25,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0, "partial_rotary_factor": 0.25},
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "eos_token_id": [2],
}


def toy_layers(count: int) -> list[Any]:
    return [
        lambda stream, index=index: stream + torch.full_like(stream, 10.0**index) for index in range(count)
    ]


@pytest.mark.parametrize("layer_ids", [(1, 3, 5), (2, 4), (1, 2, 3, 4, 5)])
def test_taps_are_the_layer_outputs_that_the_transcribed_target_captures(layer_ids):
    layers = toy_layers(6)
    outputs, stream = [], torch.zeros(2, 3)
    for layer in layers:
        stream = layer(stream)
        outputs.append(stream)
    taps = resolve_target_taps(CAUSAL, layer_ids, 6)
    assert taps == tuple(layer_id - 1 for layer_id in layer_ids)
    captured = captured_states(CAUSAL, list(layer_ids), layers, torch.zeros(2, 3))
    assert all(torch.equal(outputs[tap], state) for tap, state in zip(taps, captured, strict=True))

    ids = tuple(layer_id - 1 for layer_id in layer_ids)
    taps = resolve_target_taps(CONDITIONAL, ids, 6)
    assert taps == ids
    captured = captured_states(CONDITIONAL, list(ids), layers, torch.zeros(2, 3))
    assert all(torch.equal(outputs[tap], state) for tap, state in zip(taps, captured, strict=True))


def test_ids_at_the_borders():
    assert resolve_target_taps(CAUSAL, (1, 5), 6) == (0, 4)
    assert resolve_target_taps(CONDITIONAL, (0, 4), 6) == (0, 4)
    for architecture, layer_ids in ((CAUSAL, (0, 3)), (CAUSAL, (3, 6)), (CONDITIONAL, (3, 5))):
        with pytest.raises(CheckpointError, match="target_layer_ids"):
            resolve_target_taps(architecture, layer_ids, 6)
    with pytest.raises(IndexError):  # the transcribed target cannot capture the last layer's output either
        captured_states(CONDITIONAL, [5], toy_layers(6), torch.zeros(1))


def test_an_unsorted_list_would_be_permuted_silently():
    captured = captured_states(CAUSAL, [5, 1], toy_layers(6), torch.zeros(1))
    assert captured[0] < captured[1]
    with pytest.raises(CheckpointError, match="strictly increasing"):
        resolve_target_taps(CAUSAL, (5, 1), 6)


class FakeTarget:
    """Enough of ``self`` to run the wheel's methods: six layers, one rank."""

    def __init__(self, set_in_body: Any) -> None:
        self.pp_group = SimpleNamespace(is_last_rank=True, world_size=1)
        self.model = SimpleNamespace(layers=[SimpleNamespace() for _ in range(6)])
        self.model.set_dflash_layers_to_capture = lambda layer_ids: set_in_body(self.model, layer_ids)

    def marked(self) -> list[int]:
        return [
            index for index, layer in enumerate(self.model.layers) if hasattr(layer, "_is_layer_to_capture")
        ]


def compiled(method: ast.FunctionDef) -> Any:
    namespace: dict[str, Any] = {}
    module = ast.Module(
        [ast.ImportFrom("__future__", [ast.alias("annotations")], 0), method], type_ignores=[]
    )
    exec(compile(ast.fix_missing_locations(module), "wheel", "exec"), namespace)
    return namespace[method.name]


def test_wheel_marks_layers_as_the_tap_rule_says():
    root, name = wheel_root(), "set_dflash_layers_to_capture"
    (in_body,) = methods(find_class(parse(root / "models/qwen3_5.py"), CAUSAL), name)
    set_in_body = compiled(in_body)

    text = parse(root / "models/qwen3_5_text.py")
    entry = next(
        node for node in text.body if isinstance(node, ast.Assign) and "EntryClass" in ast.unparse(node)
    )
    assert CAUSAL in ast.unparse(entry.value)
    first, second = methods(find_class(text, CAUSAL), name)
    target = FakeTarget(set_in_body)
    compiled(second)(target, [1, 3])
    assert target.marked() == [1, 3]
    assert tap_convention(CAUSAL) == "layer_input"
    target = FakeTarget(set_in_body)
    compiled(first)(target, [1, 3])  # what the hidden first definition would have done
    assert target.marked() == [2, 4]

    conditional = find_class(parse(root / "models/qwen3_5.py"), CONDITIONAL)
    assert methods(conditional, name) == []
    assert [ast.unparse(base) for base in conditional.bases] == ["Qwen3VLForConditionalGeneration"]
    (inherited,) = methods(
        find_class(parse(root / "models/qwen3_vl.py"), "Qwen3VLForConditionalGeneration"), name
    )
    target = FakeTarget(set_in_body)
    compiled(inherited)(target, [1, 3])
    assert target.marked() == [2, 4]
    assert tap_convention(CONDITIONAL) == "layer_output"


def test_wheel_captures_the_residual_stream_entering_a_layer():
    root, name = wheel_root(), "prepare_attn_and_capture_last_layer_outputs"
    (capture,) = methods(find_class(parse(root / "layers/communicator.py"), "LayerCommunicator"), name)
    hidden, residual = torch.ones(2, 3), torch.full((2, 3), 5.0)
    captured: list[torch.Tensor] = []
    communicator = SimpleNamespace(
        # As the fused norm does: the sum becomes the residual, the normed sum the layer's input.
        prepare_attn=lambda h, r, *_, **__: ((h + r) * 0.1, h + r),
        _communicate_simple_fn=lambda *, hidden_states, **_: hidden_states,
        _context=None,
        _post_attn_residual_is_read_only=lambda _: False,
    )
    compiled(capture)(communicator, hidden, residual, None, captured_last_layer_outputs=captured)
    (state,) = captured
    assert torch.equal(state, torch.full((2, 3), 6.0))
    for layer in ("Qwen3_5LinearDecoderLayer", "Qwen3_5AttentionDecoderLayer"):
        (forward,) = methods(find_class(parse(root / "models/qwen3_5.py"), layer), "forward")
        calls = [
            node
            for node in ast.walk(forward)
            if isinstance(node, ast.Call) and name in ast.unparse(node.func)
        ]
        assert [ast.unparse(argument) for argument in calls[0].args] == [
            "hidden_states",
            "residual",
            "forward_batch",
        ]
        first = next(index for index, node in enumerate(forward.body) if name in ast.unparse(node))
        assert all("hidden_states" not in ast.unparse(node) for node in forward.body[:first])


def test_wheel_leaves_the_ids_of_a_qwen3_5_target_alone():
    names = {"_MUSE_LAYER_OUTPUT_DRAFT_ARCHITECTURES", "_map_muse_target_layer_ids"}
    file = wheel_root() / "model_executor/model_runner_components/spec_aux_hidden_state.py"
    mapped = execute(file, {}, names)["_map_muse_target_layer_ids"](
        target_hf_config=SimpleNamespace(model_type="qwen3_5_text"),
        draft_hf_config=SimpleNamespace(architectures=["DFlash2DraftModel"]),
        layer_ids=[1, 3],
    )
    assert mapped == [1, 3]


def test_wheel_builds_the_block_and_its_positions_as_the_drafter_does():
    root = wheel_root()
    worker = find_class(parse(root / "speculative/dflash_worker_v2.py"), "DFlashWorkerV2")
    (step,) = methods(worker, "forward_batch_generation")
    text = ast.unparse(step)
    for statement in (
        "prefix_lens = batch.seq_lens",
        "block_ids.fill_(int(self._mask_token_id))",
        "block_ids[:, 0].copy_(draft_input.bonus_tokens)",
        "torch.add(prefix_lens.unsqueeze(1), self._block_pos_offsets, out=positions_2d)",
        "noise_embedding = embed_module(block_ids)",
    ):
        assert statement in text, statement
    names = {"build_block_pos_offsets"}
    offsets = execute(root / "speculative/draft_worker_common.py", {}, names)["build_block_pos_offsets"]
    assert offsets(length=8, device=torch.device("cpu")).tolist() == list(range(8))


def test_greedy_verification_is_the_wheels():
    names = {"compute_dflash_correct_drafts_and_bonus"}
    wheel = execute(wheel_root() / "speculative/dflash_utils.py", {}, names)[names.pop()]
    generator = torch.Generator().manual_seed(0)
    candidates = torch.randint(2, (200, 8), generator=generator)
    target = torch.randint(2, (200, 8), generator=generator)
    counts, bonus = wheel(candidates=candidates, target_predict=target)
    for row in range(200):
        result = verify_greedy(candidates[row, 1:], target[row])
        assert (result.num_correct_drafts, result.bonus_id) == (int(counts[row]), int(bonus[row]))


def test_wheel_reads_our_configs_as_meant():
    root = wheel_root()
    pytest.importorskip("transformers")
    from tests.oracles.sglang_configs import check_drafter_config, check_target_config

    check_target_config(root, TARGET_CONFIG)
    check_target_config(root, TargetConfig.from_json(TARGET_CONFIG).to_json_dict())
    check_drafter_config(root, make_config())
    check_drafter_config(root, random_dspark.make_config())
    shape = DSparkShape(256, 4096, num_target_layers=8, mask_token_id=3, tap_outputs=(1, 4, 6))
    check_drafter_config(root, shape.config_dict())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("layer_types", ["full_attention", "linear_attention", "linear_attention"] * 2),
        ("full_attention_interval", 2),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 1e5, "mrope_section": [1, 1, 0]}),
        ("head_dim", None),
        ("attn_output_gate", None),
    ],
)
def test_control_a_target_config_with_a_trap_is_found(key, value):
    root = wheel_root()
    pytest.importorskip("transformers")
    from tests.oracles.sglang_configs import check_target_config

    config = copy.deepcopy(TARGET_CONFIG)
    if value is None:
        del config[key]
    else:
        config[key] = value
    with pytest.raises(AssertionError):
        check_target_config(root, config)


@pytest.mark.parametrize("part", ["target", "dflash2", "dspark"])
def test_wheel_reads_the_bundled_configs_as_meant(part):
    file = BUNDLED / part / "config.json"
    if not file.exists():
        pytest.skip(f"no bundled model at {file}")
    root = wheel_root()
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    from tests.oracles.sglang_configs import check_drafter_config, check_target_config

    values = json.loads(file.read_text(encoding="utf-8"))
    (check_target_config if part == "target" else check_drafter_config)(root, values)
