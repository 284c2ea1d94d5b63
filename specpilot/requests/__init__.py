"""Request sets: what is asked when something is measured or audited."""

__all__: list[str] = []
