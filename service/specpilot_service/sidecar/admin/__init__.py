"""The admin API: one module a noun; ``registry`` binds handlers to the routes of the table."""

__all__: list[str] = []
