"""Slots: where one system at a time is started and asked. ``base`` has the contract, each other file one kind."""

__all__: list[str] = []
