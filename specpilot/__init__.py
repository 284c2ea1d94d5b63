"""SpecPilot: lossless speculative decoding, measured and proved on the box."""

__all__ = ["__version__"]
__version__ = "0.1.0"
