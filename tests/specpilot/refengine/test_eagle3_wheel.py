"""Drafter, oracle and tap rule against the code of SGLang 0.5.20 itself, where an unpacked wheel is at hand."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import specpilot
from specpilot.models.train.eagle3 import Eagle3Shape
from specpilot.refengine.eagle3 import load_eagle3
from specpilot.refengine.eagle3_config import Eagle3Config
from tests.oracles.eagle3_plain import draft_chain
from tests.oracles.random_dflash2 import TinyTarget, write_checkpoint
from tests.oracles.random_eagle3 import make_config, make_tensors
from tests.oracles.sglang_wheel import find_class, methods, parse, wheel_root

BUNDLED = Path(specpilot.__file__).parent / "models" / "bundled"
SETTER = "set_eagle3_layers_to_capture"


@pytest.mark.parametrize("length", [1, 2, 37, 131])
def test_wheel_oracle_and_drafter_agree(tmp_path: Path, length: int) -> None:
    root = wheel_root()
    pytest.importorskip("transformers")
    from tests.oracles.sglang_eagle3 import WheelEagle3

    config = make_config()
    tensors, target = make_tensors(config, length), TinyTarget(config, 1)
    generator = torch.Generator().manual_seed(2)
    taps = torch.randn(length, 192, generator=generator) * 3.0
    ids = torch.randint(211, (length + 1,), generator=generator)

    chain, logits = WheelEagle3(root, config, tensors, target.table).draft(ids, taps, 7)
    oracle_chain, oracle_logits = draft_chain(config, tensors, target.table, ids.tolist(), taps, 7)
    assert oracle_chain == chain
    torch.testing.assert_close(logits.double(), oracle_logits, atol=1e-4, rtol=1e-5)

    drafter = load_eagle3(write_checkpoint(tmp_path, config, tensors), target=target)
    state = drafter.new_state(length)
    drafter.append_context(state, ids[:-1], taps)
    draft = drafter.propose(state, int(ids[-1]))
    assert draft.token_ids.tolist() == chain
    assert torch.equal(draft.lattice.candidate_ids, logits.topk(16, dim=-1).indices)
    torch.testing.assert_close(
        draft.lattice.edge_scores[:, 0], logits.topk(16, dim=-1).values, atol=1e-4, rtol=1e-5
    )


def captured_by(file: Path, class_name: str, layer_ids: list[int]) -> list[int]:
    """Layers whose input the wheel's setter asks for."""
    (method,) = methods(find_class(parse(file), class_name), SETTER)
    module = ast.Module(
        [ast.ImportFrom("__future__", [ast.alias("annotations")], 0), method], type_ignores=[]
    )
    namespace: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(module), str(file), "exec"), namespace)
    target = SimpleNamespace(pp_group=SimpleNamespace(is_last_rank=True), model=SimpleNamespace())
    namespace[SETTER](target, layer_ids)
    marked: list[int] = target.model.layers_to_capture
    return marked


@pytest.mark.parametrize(
    ("file", "name", "body_file", "body_name"),
    [
        ("llama.py", "LlamaForCausalLM", "llama.py", "LlamaModel"),
        ("qwen3.py", "Qwen3ForCausalLM", "qwen2.py", "Qwen2Model"),
    ],
)
def test_wheel_captures_the_outputs_of_the_stored_layers(
    file: str, name: str, body_file: str, body_name: str
) -> None:
    """The config stores layer outputs; the wheel asks for the input of the layer behind each."""
    config = make_config()
    stored = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    assert Eagle3Config.parse(config).tap_layers == tuple(stored)
    models = wheel_root() / "models"
    assert captured_by(models / file, name, stored) == [layer + 1 for layer in stored]
    (forward,) = methods(find_class(parse(models / body_file), body_name), "forward")
    lines = [line.strip() for line in ast.unparse(forward).splitlines()]
    ask = next(index for index, line in enumerate(lines) if "layers_to_capture" in line)
    run = next(
        index for index, line in enumerate(lines) if line.startswith("hidden_states, residual = layer(")
    )
    assert ask < run  # recorded before the layer runs: its input
    assert "hidden_states + residual" in lines[ask + 1]


def test_wheel_has_no_setter_for_a_qwen3_5_text_target() -> None:
    """Which is why stock SGLang cannot run this drafter beside the bundled target."""
    for file in ("qwen3_5_text.py", "qwen3_5.py"):
        module = parse(wheel_root() / "models" / file)
        assert methods(find_class(module, "Qwen3_5ForCausalLM"), SETTER) == []
    source = (wheel_root() / "model_executor/model_runner_components/attention_backend_setup.py").read_text()
    assert f"model.{SETTER}(eagle_aux_hidden_state_layer_ids)" in source  # called without asking first


def test_trained_and_bundled_configs_store_layer_outputs() -> None:
    shape = Eagle3Shape(hidden_size=64, vocab_size=96, num_target_layers=8, tap_outputs=(1, 4, 6))
    config = Eagle3Config.parse(shape.config_dict())
    assert config.tap_layers == (1, 4, 6) and config.block_size == 8
    file = BUNDLED / "eagle3" / "config.json"
    if file.exists():
        assert Eagle3Config.parse(json.loads(file.read_text(encoding="utf-8"))).tap_layers == (1, 4, 6)
