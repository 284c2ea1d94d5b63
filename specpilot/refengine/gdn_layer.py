"""Gated DeltaNet token mixer: projections, short convolution, gated delta rule, gated norm."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.config import TargetConfig
from specpilot.refengine.gdn import L2_EPS
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection
from specpilot.refengine.state import Batch
from specpilot_kernels.gdn_rows import GdnWeights, gdn_rows

__all__ = ["GatedDeltaNet"]


class GatedDeltaNet:
    """One GDN layer; ``index`` counts GDN layers and names its part of a sequence's state.

    Parameters
    ----------
    weights
        Tensors of ``model.layers.N.linear_attn``.
    """

    def __init__(self, weights: Mapping[str, Tensor], config: TargetConfig, index: int) -> None:
        self._index = index
        self._num_groups, self._key_dim = config.gdn_num_key_heads, config.gdn_key_dim
        mixed = self._pair_up(weights["in_proj_qkv.weight"])
        self._input = Projection(torch.cat([mixed, *(weights[f"in_proj_{name}.weight"] for name in "zba")]))
        self._weights = GdnWeights(
            self._pair_up(weights["conv1d.weight"].squeeze(1)).t().contiguous(),
            -weights["A_log"].exp(),
            weights["dt_bias"].contiguous(),
            weights["norm.weight"].contiguous(),
            self._num_groups,
            L2_EPS,
            config.norm_eps,
        )
        self._output = Projection(weights["out_proj.weight"])

    def add_to(self, x: NDArray[np.float32], norm: RmsNorm, batch: Batch) -> None:
        """Add the layer's output for normed rows to x, (rows, hidden).

        A row's bits depend on it and its sequence's tokens before it alone.
        """
        assert batch.gdn is not None
        mixed = gdn_rows(self._input.of_normed(x, norm), batch.gdn, self._index, self._weights)
        self._output.add_to(x, mixed)

    def _pair_up(self, mixed: Tensor) -> Tensor:
        """Rows of all queries, all keys, values -> query and key of each group in turn, values."""
        width = 2 * self._num_groups * self._key_dim
        pairs = mixed[:width].view(2, self._num_groups, self._key_dim, -1).transpose(0, 1)
        return torch.cat((pairs.reshape(width, -1), mixed[width:]))
