"""The public function of the norm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.rms_norm.cpu_numba import normalise

__all__ = ["rms_norm"]


def rms_norm(
    x: NDArray[np.float32], scale: NDArray[np.float32], eps: float, out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Normalise rows.

        y[m, i] = x[m, i] / sqrt(mean over i of x[m, i]^2 + eps) * scale[i]

    A row's bits depend on nothing but the row and the scale. Checkpoints that store a scale less one (Qwen3.5's layer
    norms) are served by adding the one once, at load.

    Parameters
    ----------
    x : array, float32, (M, W), contiguous
    scale : array, float32, (W,), contiguous
    eps : float
    out : array, float32, (M, W), contiguous, optional
        Written and returned; may be ``x``. New memory if left out.

    Returns
    -------
    array, float32, (M, W)

    Raises
    ------
    ValueError
        A shape, dtype or stride is not as stated.
    """
    if out is None:
        out = np.empty_like(x)
    if x.ndim != 2 or scale.shape != x.shape[1:] or out.shape != x.shape or not x.size:
        raise ValueError(
            f"got x {x.shape}, scale {scale.shape}, out {out.shape}; expected (M, W), (W,), (M, W), none of them 0"
        )
    try:
        normalise(x, scale, eps, out)
    except TypeError as error:
        raise ValueError(
            f"got x {x.dtype} {x.strides}, scale {scale.dtype} {scale.strides}, out {out.dtype} {out.strides} "
            "(dtype, strides); expected contiguous float32 arrays"
        ) from error
    return out
