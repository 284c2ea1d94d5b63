"""The HTTP service: an OpenAI endpoint over one engine."""

__all__: list[str] = []
