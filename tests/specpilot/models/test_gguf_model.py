"""A tiny Llama in a GGUF file, written here: the loaded model against transformers, and misfits refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.errors import CheckpointError, SpecPilotError, Unsupported
from specpilot.models.build import build_engine
from specpilot.models.gguf import load_gguf
from specpilot.models.gguf.export import export_gguf
from specpilot.models.gguf.llama import GgufTensors, read_llama_config
from specpilot.models.gguf.reader import GgufFile
from specpilot.refengine.dense import DenseModel
from specpilot.refengine.target import open_target
from specpilot.refengine.tokenizer import ChatTokenizer
from tests.oracles.gguf_writer import encode
from tests.specpilot.models.tiny_gguf import (
    DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    TinyModel,
    tiny_model,
)

transformers = pytest.importorskip("transformers")

LIMIT = 1e-4


@pytest.fixture
def tiny() -> TinyModel:
    return tiny_model()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tiny-8M.gguf"


def logits_of_transformers(tensors: dict[str, Tensor], ids: Tensor) -> Tensor:
    config = transformers.LlamaConfig(
        vocab_size=tensors["model.embed_tokens.weight"].shape[0],
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=DIM,
        rms_norm_eps=1e-5,
        max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        tie_word_embeddings=True,
    )
    model: Any = transformers.LlamaForCausalLM(config).eval()
    missing = model.load_state_dict(tensors, strict=False)
    assert missing.unexpected_keys == [] and set(missing.missing_keys) <= {"lm_head.weight"}
    with torch.no_grad():
        logits: Tensor = model(ids[None]).logits[0]
    return logits


def test_every_tensor_is_what_the_file_says(tiny: TinyModel, path: Path) -> None:
    file = GgufFile(tiny.write(path))
    tensors = GgufTensors(file, read_llama_config(file))
    assert set(tensors) == set(tiny.expected) and len(tensors) == len(tiny.expected)
    for name, expected in tiny.expected.items():
        got = tensors[name]
        assert got.dtype == (torch.bfloat16 if expected.dim() == 2 else torch.float32)
        assert torch.equal(got.float(), expected), name


def test_logits_are_those_of_transformers(tiny: TinyModel, path: Path) -> None:
    model, _ = load_gguf(tiny.write(path), mode="serve")
    ids = torch.randint(model.config.vocab_size, (100,), generator=torch.Generator().manual_seed(0))
    expected = logits_of_transformers(tiny.expected, ids)
    got = model.logits(model.forward(ids, model.new_state(128)).hidden)
    assert expected.std() > 0.3
    assert (got - expected).abs().max() <= LIMIT


def test_rows_left_in_the_files_order_would_be_seen(tiny: TinyModel, path: Path) -> None:
    """The comparison can fail: query rows as they lie in the file are another model."""
    model, _ = load_gguf(tiny.write(path), mode="serve")
    ids = torch.randint(model.config.vocab_size, (100,), generator=torch.Generator().manual_seed(0))
    dealt = torch.arange(HEADS * DIM).view(-1, 2, DIM // 2).transpose(1, 2).flatten()
    name = "model.layers.0.self_attn.q_proj.weight"
    wrong = logits_of_transformers(tiny.expected | {name: tiny.expected[name][dealt]}, ids)
    got = model.logits(model.forward(ids, model.new_state(128)).hidden)
    assert (got - wrong).abs().max() > 100 * LIMIT


def test_an_output_matrix_of_its_own_is_used(tiny: TinyModel, path: Path) -> None:
    head = torch.randn(tiny.expected["model.embed_tokens.weight"].shape).numpy()
    tiny.blocks["output.weight"] = encode("F32", head)
    model, _ = load_gguf(tiny.write(path), mode="serve")
    assert not model.config.tie_word_embeddings
    hidden = torch.randn(3, HIDDEN)
    expected = hidden @ torch.from_numpy(head).bfloat16().float().T
    torch.testing.assert_close(model.logits(hidden), expected, atol=1e-4, rtol=1e-4)


def test_an_engine_serves_the_file(tiny: TinyModel, path: Path) -> None:
    engine = build_engine(str(tiny.write(path)), num_threads=1)
    facts = engine.describe()
    assert facts.model_id == "tiny-8M" and facts.architecture == "LlamaForCausalLM"
    assert facts.drafters == ("suffix",) and facts.eos_ids == (2,)
    prompt = engine.apply_chat_template([{"role": "user", "content": "hello world"}])
    params = SamplingParams(max_new_tokens=40, ignore_eos=True)
    answers = [
        [
            token
            for chunk in engine.generate(GenerateRequest(prompt, params, drafter))
            for token in chunk.token_ids
        ]
        for drafter in (None, "suffix")
    ]
    assert answers[0] == answers[1]
    tokens = answers[0]
    ids = torch.tensor([*prompt, *tokens])
    expected = logits_of_transformers(tiny.expected, ids)[len(prompt) - 1 : -1]
    assert tokens == expected.argmax(-1).tolist()


def test_the_exported_folder_is_the_same_model(tiny: TinyModel, path: Path, tmp_path: Path) -> None:
    tiny.write(path)
    model, tokenizer = load_gguf(path, mode="judge")
    folder = tmp_path / "folder"
    export_gguf(path, folder)
    again = open_target(folder, mode="judge")
    assert isinstance(again, DenseModel)
    assert again.config == model.config
    ids = torch.arange(7)
    logits = [target.logits(target.forward(ids, target.new_state(16)).hidden) for target in (model, again)]
    assert torch.equal(*logits)
    other = ChatTokenizer.from_folder(folder)
    chat = [{"role": "user", "content": "Two 2s <|im_end|> é"}]
    assert other.encode_chat(chat) == tokenizer.encode_chat(chat) and other.template == tokenizer.template
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert (theirs(ids[None]).logits[0] - logits[0]).abs().max() < LIMIT


def with_metadata(key: str, value: Any) -> Callable[[TinyModel], None]:
    return lambda tiny: tiny.metadata.update({key: value})


def without(name: str) -> Callable[[TinyModel], None]:
    def change(tiny: TinyModel) -> None:
        tiny.metadata.pop(name, None)
        tiny.blocks.pop(name, None)

    return change


def with_tensor(name: str, kind: str, shape: tuple[int, ...]) -> Callable[[TinyModel], None]:
    return lambda tiny: tiny.blocks.update({name: (kind, shape, bytes(40_000))})


def not_finite(tiny: TinyModel) -> None:
    kind, shape, data = tiny.blocks["output_norm.weight"]
    tiny.blocks["output_norm.weight"] = (kind, shape, b"\0\0\xc0\x7f" + data[4:])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (with_metadata("general.architecture", "mamba"), Unsupported, "got 'mamba', expected 'llama'"),
        (
            with_metadata("llama.expert_count", 8),
            CheckpointError,
            "llama.expert_count: got 8, expected no such",
        ),
        (with_metadata("llama.rope.scaling.type", "yarn"), CheckpointError, "rope.scaling.type: got 'yarn'"),
        (
            with_metadata("llama.rope.dimension_count", 8),
            CheckpointError,
            "dimension_count: got 8, expected 16",
        ),
        (with_metadata("llama.vocab_size", 8), CheckpointError, "vocab_size: got 8, expected 270"),
        (with_metadata("llama.block_count", 3), CheckpointError, r"blk\.2\.attn_q\.weight: missing"),
        (
            with_metadata("llama.feed_forward_length", 64),
            CheckpointError,
            r"shape \(96, 64\), expected \(64, 64\)",
        ),
        (with_metadata("llama.embedding_length", "big"), CheckpointError, "embedding_length: got 'big'"),
        (without("llama.attention.layer_norm_rms_epsilon"), CheckpointError, "rms_epsilon: got None"),
        (without("blk.1.ffn_up.weight"), CheckpointError, r"blk\.1\.ffn_up\.weight: missing"),
        (with_tensor("rope_freqs.weight", "F32", (8,)), CheckpointError, "rope_freqs.weight: not a tensor"),
        (
            with_tensor("blk.0.attn_v.weight", "Q5_0", (32, 64)),
            Unsupported,
            "got quantisation Q5_0, expected",
        ),
        (not_finite, CheckpointError, "output_norm.weight: holds a number that is not finite"),
        (with_metadata("tokenizer.ggml.model", "llama"), Unsupported, "tokenizer.ggml.model: got 'llama'"),
        (with_metadata("tokenizer.ggml.pre", "tekken"), Unsupported, "tokenizer.ggml.pre: got 'tekken'"),
        (with_metadata("tokenizer.ggml.add_bos_token", True), CheckpointError, "add_bos_token: got True"),
        (with_metadata("tokenizer.ggml.merges", ["h e", "xx yy"]), CheckpointError, "merges: do not fit"),
        (with_metadata("tokenizer.ggml.merges", ["he"]), CheckpointError, "two parts"),
        (
            with_metadata("tokenizer.ggml.token_type", [1]),
            CheckpointError,
            "token_type: got .1., expected 270",
        ),
        (with_metadata("tokenizer.ggml.eos_token_id", 270), CheckpointError, "eos_token_id: got 270"),
        (
            without("tokenizer.chat_template"),
            CheckpointError,
            "tokenizer.chat_template: expected a chat template",
        ),
        (without("tokenizer.ggml.tokens"), CheckpointError, "tokens: got None, expected the vocabulary"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    tiny: TinyModel,
    path: Path,
    change: Callable[[TinyModel], None],
    error: type[SpecPilotError],
    message: str,
) -> None:
    change(tiny)
    tiny.write(path)
    with pytest.raises(error, match=message) as raised:
        load_gguf(path, mode="serve")
    assert type(raised.value) is error
