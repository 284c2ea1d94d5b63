"""Models in single GGUF files (llama.cpp's format)."""

from __future__ import annotations

from pathlib import Path

from specpilot.engines.base import NumericMode
from specpilot.models.gguf.llama import GgufTensors, read_llama_config
from specpilot.models.gguf.reader import GgufFile
from specpilot.models.gguf.tokenizer import read_tokenizer
from specpilot.refengine.dense import DenseModel
from specpilot.refengine.tokenizer import ChatTokenizer

__all__ = ["load_gguf"]


def load_gguf(path: Path, *, mode: NumericMode) -> tuple[DenseModel, ChatTokenizer]:
    """Target and tokenizer of a GGUF file.

    Raises
    ------
    Unsupported
        An architecture, quantisation or tokenizer that is not read here; the message names it.
    CheckpointError
        The file is damaged or its parts do not fit.
    """
    file = GgufFile(path)
    config = read_llama_config(file)
    tokenizer = read_tokenizer(file)
    return DenseModel(config, GgufTensors(file, config), mode), tokenizer
