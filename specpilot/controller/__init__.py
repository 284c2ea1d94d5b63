"""The controller: code that agents call and cannot change. It measures, judges and keeps the ledger."""

__all__: list[str] = []
