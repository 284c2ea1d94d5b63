"""The gateway: OpenAI's paths in front of the engines, bytes of answers passed through as they are."""

__all__: list[str] = []
