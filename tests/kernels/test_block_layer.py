"""A drafter's layer in one call: with the bits of the single operations, whose own tests hold them to references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from specpilot_kernels.block_layer import BlockLayerWeights, ConvWeights, block_layer
from specpilot_kernels.block_layer.reference import block_layer_reference
from specpilot_kernels.chain_attention import KvMemory, KvPart, KvSegments
from specpilot_kernels.skinny_gemm import PackedWeight

EPS, WIDTH, DIM, HEADS, GROUPS, INNER, TAPS, SIZE = 1e-6, 48, 16, 4, 2, 99, 2, 16
LAYERS = 2


def numbers(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def product(outputs: int, inputs: int, seed: int, *, is_narrow: bool = True) -> PackedWeight:
    weight = torch.from_numpy(numbers(outputs, inputs, seed=seed) / 8)
    return PackedWeight.pack(weight.bfloat16() if is_narrow else weight)


def conv(seed: int) -> ConvWeights:
    groups = WIDTH // SIZE
    return ConvWeights(numbers(2, TAPS, groups, SIZE, seed=seed), product(2 * TAPS * groups, WIDTH, seed))


def layer_weights(*, has_conv: bool) -> BlockLayerWeights:
    return BlockLayerWeights(
        numbers(WIDTH, seed=1),
        numbers(HEADS + GROUPS, DIM, seed=2),
        product((HEADS + 2 * GROUPS) * DIM, WIDTH, 3),
        product(WIDTH, HEADS * DIM, 4),
        numbers(WIDTH, seed=5),
        product(2 * INNER, WIDTH, 6),
        product(WIDTH, INNER, 7),
        conv(8) if has_conv else None,
        conv(9) if has_conv else None,
    )


def blocks(contexts: list[int], sizes: list[int]) -> tuple[KvSegments, NDArray[np.int64]]:
    parts = []
    for index, (context, size) in enumerate(zip(contexts, sizes, strict=True)):
        memory = KvMemory(LAYERS, GROUPS, DIM, 200)
        memory.buffer[:] = numbers(*memory.buffer.shape, seed=index)
        parts.append(KvPart(memory, size, context))
    return KvSegments(parts), np.concatenate([np.arange(size) for size in sizes])


ROTATION = numbers(200, DIM // 2, 2, seed=11)


@pytest.mark.parametrize("has_conv", [True, False])
@pytest.mark.parametrize(("contexts", "sizes"), [([0], [1]), ([70], [8]), ([5, 131, 64], [8, 16, 3])])
def test_bits_are_those_of_the_single_operations(
    contexts: list[int], sizes: list[int], has_conv: bool
) -> None:
    weights = layer_weights(has_conv=has_conv)
    segments, places = blocks(contexts, sizes)
    x = numbers(sum(sizes), WIDTH)
    expected = block_layer_reference(x, places, segments, 1, weights, ROTATION, EPS)
    got = x.copy()
    block_layer(got, places, segments, 1, weights, ROTATION, EPS)
    assert (got == expected).all() and not (got == x).all()
    # What it must not be: another layer's cache, rows that take their neighbours for one block.
    other = x.copy()
    block_layer(other, places, segments, 0, weights, ROTATION, EPS)
    assert contexts == [0] or not (other == expected).all()
    if has_conv and len(sizes) > 1:
        joined = x.copy()
        block_layer(joined, np.arange(len(x)), segments, 1, weights, ROTATION, EPS)
        assert not (joined == expected).all()


def test_float32_weights_run_as_single_operations() -> None:
    weights = replace(layer_weights(has_conv=True), down=product(WIDTH, INNER, 7, is_narrow=False))
    assert not weights.is_narrow
    segments, places = blocks([9], [8])
    x = numbers(8, WIDTH)
    expected = block_layer_reference(x, places, segments, 0, weights, ROTATION, EPS)
    block_layer(x, places, segments, 0, weights, ROTATION, EPS)
    assert (x == expected).all()


def test_threads_do_not_show(kernel_threads: object, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = layer_weights(has_conv=True)
    segments, places = blocks([9], [8])
    results = []
    for count, share_from in ((1, 2**40), (2, 1)):
        kernel_threads(count)  # type: ignore[operator]
        monkeypatch.setattr("specpilot_kernels.block_layer.ops.SHARE_FROM", share_from)
        x = numbers(8, WIDTH)
        block_layer(x, places, segments, 0, weights, ROTATION, EPS)
        results.append(x)
    assert (results[0] == results[1]).all()


def test_wrong_arguments_are_refused() -> None:
    weights = layer_weights(has_conv=True)
    segments, places = blocks([9], [8])
    x = numbers(8, WIDTH)
    for changed in (
        {"down": product(WIDTH, INNER + 1, 7)},
        {"qkv": product((HEADS + GROUPS) * DIM, WIDTH, 3)},
        {"mlp_conv": None},
        {"post_scale": numbers(WIDTH + 1)},
    ):
        with pytest.raises(ValueError, match="layer: got scales"):
            replace(weights, **changed)
    with pytest.raises(ValueError, match=r"got x \(7, 48\)"):
        block_layer(x[:7], places, segments, 0, weights, ROTATION, EPS)
    with pytest.raises(ValueError, match="layer 2 of 2"):
        block_layer(x, places, segments, 2, weights, ROTATION, EPS)
    with pytest.raises(ValueError, match=r"rotation \(16, 8, 2\)"):
        block_layer(x, places, segments, 0, weights, ROTATION[:16], EPS)
    with pytest.raises(ValueError, match="places"):
        block_layer(x, places + 1, segments, 0, weights, ROTATION, EPS)
    with pytest.raises(ValueError, match="float64"):
        block_layer(x.astype(np.float64), places, segments, 0, weights, ROTATION, EPS)
