"""Reading model weights: safetensors or W12 files, one or shards with an index, refused by name when anything is
off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specpilot.errors import CheckpointError
from specpilot.refengine.config import TargetConfig, read_json_object
from specpilot_kernels.w12.container import W12File
from specpilot_kernels.w12.format import W12_SUFFIX
from specpilot_kernels.w12.safetensors_file import WeightFileError

__all__ = [
    "INDEX_FILE",
    "WEIGHTS_FILE",
    "Shapes",
    "read_tensors",
    "stored_tensors",
    "target_shapes",
    "tensor_names",
]

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

Shapes = Mapping[str, tuple[int, ...]]


def target_shapes(config: TargetConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a target checkpoint."""
    hidden, inner = config.hidden_size, config.intermediate_size
    attention_width = config.num_heads * config.head_dim
    kv_width = config.num_kv_heads * config.head_dim
    value_width = config.gdn_num_value_heads * config.gdn_value_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    mixers: dict[str, dict[str, tuple[int, ...]]] = {
        "full_attention": {
            "self_attn.q_proj.weight": (2 * attention_width, hidden),
            "self_attn.k_proj.weight": (kv_width, hidden),
            "self_attn.v_proj.weight": (kv_width, hidden),
            "self_attn.o_proj.weight": (hidden, attention_width),
            "self_attn.q_norm.weight": (config.head_dim,),
            "self_attn.k_norm.weight": (config.head_dim,),
        },
        "linear_attention": {
            "linear_attn.in_proj_qkv.weight": (config.gdn_conv_channels, hidden),
            "linear_attn.in_proj_z.weight": (value_width, hidden),
            "linear_attn.in_proj_b.weight": (config.gdn_num_value_heads, hidden),
            "linear_attn.in_proj_a.weight": (config.gdn_num_value_heads, hidden),
            "linear_attn.conv1d.weight": (config.gdn_conv_channels, 1, config.gdn_conv_size),
            "linear_attn.A_log": (config.gdn_num_value_heads,),
            "linear_attn.dt_bias": (config.gdn_num_value_heads,),
            "linear_attn.norm.weight": (config.gdn_value_dim,),
            "linear_attn.out_proj.weight": (hidden, value_width),
        },
    }
    rest: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    for layer, layer_type in enumerate(config.layer_types):
        for name, shape in (mixers[layer_type] | rest).items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    return shapes


def read_tensors(
    folder: str | Path,
    shapes: Shapes,
    dtype: torch.dtype | None = torch.float32,
    ignored_prefixes: tuple[str, ...] = (),
) -> dict[str, Tensor]:
    """Read exactly the tensors named in ``shapes``.

    Parameters
    ----------
    folder
        Model folder with ``model.safetensors``, or with shards and ``model.safetensors.index.json``. In place of any
        ``X.safetensors`` there may be ``X.w12``, whose tensors are checked against the originals' SHA-256.
    shapes
        Name and shape of every tensor that must be there; nothing else may be.
    dtype
        Floating point type of the result. None keeps BF16 and makes everything else float32.
    ignored_prefixes
        Tensors whose names begin so may be there; they are not read.

    Raises
    ------
    CheckpointError
        File damaged or missing; tensor missing, not expected, of a wrong shape, not floating point or with a
        value that is not finite. The message names file or tensor.
    """
    folder = Path(folder)
    tensors: dict[str, Tensor] = {}
    for file, promised in _files(folder).items():
        with _opened(file) as reader:
            names = set(reader.keys())
            if promised is not None and names != promised:
                name = sorted(names ^ promised)[0]
                raise CheckpointError(
                    f"{name}: {INDEX_FILE} and {file} disagree on whether the shard holds it"
                )
            for name in sorted(names):
                if name.startswith(ignored_prefixes):
                    continue
                if name not in shapes:
                    raise CheckpointError(f"{name}: not a tensor of this architecture, found in {file}")
                tensor = _checked(name, reader.get_tensor(name), shapes[name])
                is_kept = dtype is None and tensor.dtype == torch.bfloat16
                tensors[name] = tensor if is_kept else tensor.to(dtype or torch.float32)
    for name in shapes:
        if name not in tensors:
            raise CheckpointError(f"{name}: missing in {folder}; expected a tensor of shape {shapes[name]}")
    return tensors


def tensor_names(folder: str | Path) -> set[str]:
    """Names of all tensors of a model folder; raises as :func:`read_tensors` does for its files."""
    names: set[str] = set()
    for file in _files(Path(folder)):
        with _opened(file) as reader:
            names.update(reader.keys())
    return names


def stored_tensors(folder: str | Path) -> Iterator[tuple[str, Tensor]]:
    """All tensors of a model folder as they are stored, W12 decoded; raises as :func:`read_tensors` does for files."""
    for file in _files(Path(folder)):
        with _opened(file) as reader:
            for name in sorted(reader.keys()):
                yield name, reader.get_tensor(name)


def _files(folder: Path) -> dict[Path, set[str] | None]:
    """Weight files of a folder, with the tensor names the index promises for each (None without an index)."""
    if not (folder / INDEX_FILE).exists():
        return {folder / WEIGHTS_FILE: None}
    weight_map = read_json_object(folder / INDEX_FILE, INDEX_FILE).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{folder / INDEX_FILE}: weight_map is {weight_map!r}, expected name -> file")
    files: dict[Path, set[str] | None] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise CheckpointError(
                f"{folder / INDEX_FILE}: {name} is in {file!r}, expected a file name in that folder"
            )
        promised = files.setdefault(folder / file, set())
        assert promised is not None
        promised.add(name)
    return files


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    encoded = file.with_suffix(W12_SUFFIX)
    if file.is_file() and encoded.is_file():
        raise CheckpointError(f"{file}: {encoded.name} is there, too; remove one of them")
    if not file.is_file() and not encoded.is_file():
        raise CheckpointError(f"{file}: no such file, nor {encoded.name}; expected the weights of the model")
    try:
        if encoded.is_file():
            with W12File(encoded) as w12_reader:
                yield w12_reader
        else:
            with safe_open(file, framework="pt") as reader:
                yield reader
    except WeightFileError as error:
        raise CheckpointError(str(error)) from None
    except SafetensorError as error:
        raise CheckpointError(f"{file}: not a readable safetensors file ({error}); copy it again") from None


def _checked(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tuple(tensor.shape) != shape:
        raise CheckpointError(f"{name}: got shape {tuple(tensor.shape)}, expected {shape} from config.json")
    if not tensor.is_floating_point():
        raise CheckpointError(f"{name}: got dtype {tensor.dtype}, expected a floating point type")
    if not torch.isfinite(tensor).all():
        raise CheckpointError(f"{name}: holds a value that is not finite; the file is damaged, copy it again")
    return tensor
