"""Exact replay: verify steps of a live engine in files, on which any tree builder can be tried without a model."""
