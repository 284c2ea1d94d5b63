"""Rotary position embedding on part of a head, as a product of complex numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Llama3Stretch", "Rope", "pair_order", "rotate_", "rotation_of", "rotation_table"]


@dataclass(frozen=True)
class Llama3Stretch:
    """Which frequencies Llama 3.1 divides by the factor: those with wavelengths, in tokens, of more than
    ``original_context / low_factor``, none below ``original_context / high_factor``, a blend between."""

    low_factor: float
    high_factor: float
    original_context: int


@dataclass(frozen=True)
class Rope:
    """A rotation: base, and the factor its frequencies are divided by, all of them or as ``stretch`` says."""

    theta: float
    factor: float = 1.0
    stretch: Llama3Stretch | None = None

    def frequencies(self, rotary_dim: int) -> Tensor:
        """Radians a token of every channel pair, (rotary_dim / 2,), float32."""
        plain = 1.0 / self.theta ** (torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim)
        if self.stretch is None:
            return plain / self.factor
        low, high = self.stretch.low_factor, self.stretch.high_factor
        turns = self.stretch.original_context * plain / (2 * math.pi)
        share = ((turns - low) / (high - low)).clamp(0, 1)
        return plain * (share + (1 - share) / self.factor)


def pair_order(head_dim: int, rotary_dim: int) -> Tensor:
    """Channel order that brings the two channels of every rotated pair side by side.

    Checkpoints pair channel i with channel i + rotary_dim / 2. Reordering the rows of the query and key
    projections (and of their norm weights) alike leaves every query-key product as it is and turns each pair
    into one complex number.
    """
    half = rotary_dim // 2
    pairs = torch.stack((torch.arange(half), torch.arange(half, rotary_dim)), 1).flatten()
    return torch.cat((pairs, torch.arange(rotary_dim, head_dim)))


def rotation_table(num_positions: int, rotary_dim: int, theta: float, dtype: torch.dtype) -> Tensor:
    """exp(i * position / theta^(2j / rotary_dim)), complex, (num_positions, rotary_dim / 2).

    The angle is formed in float32 as in the model's training code, whatever ``dtype`` is.
    """
    return rotation_of(Rope(theta).frequencies(rotary_dim), num_positions, dtype)


def rotation_of(frequencies: Tensor, num_positions: int, dtype: torch.dtype) -> Tensor:
    """exp(i * position * frequency), complex, (num_positions, pairs); the angle is formed in float32."""
    angle = torch.arange(num_positions, dtype=torch.float32)[:, None] * frequencies
    return torch.complex(angle.cos().to(dtype), angle.sin().to(dtype))


def rotate_(x: Tensor, rotation: Tensor) -> None:
    """Rotate the leading channels of x in place.

    Parameters
    ----------
    x : Tensor, (T, heads, head_dim), contiguous
        Channels in :func:`pair_order`.
    rotation : Tensor, complex, (T, 1, rotary_dim / 2)
        Rows of :func:`rotation_table` at the positions of the T tokens.
    """
    num_pairs = rotation.shape[-1]
    torch.view_as_complex(x.unflatten(-1, (-1, 2)))[..., :num_pairs].mul_(rotation)
