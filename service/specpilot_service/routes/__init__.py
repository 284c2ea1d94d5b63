"""One router per noun."""

__all__: list[str] = []
