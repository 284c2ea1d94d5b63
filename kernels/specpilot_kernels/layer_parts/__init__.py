"""Norms, products and sums of a layer that stand side by side, in one call each."""

from specpilot_kernels.layer_parts.ops import feed_forward, norm_project, project_add

__all__ = ["feed_forward", "norm_project", "project_add"]
