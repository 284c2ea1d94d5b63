"""End-to-end measurement: requests in, result rows out."""

__all__: list[str] = []
