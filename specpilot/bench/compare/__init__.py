"""AR, tuned stock, DDTree and a candidate on the same requests, interleaved, laid out like the paper's tables."""

__all__: list[str] = []
