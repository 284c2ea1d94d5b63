"""The sidecar: gateway in front of the engine, admin API, supervision of engine processes, profile switches."""

__all__: list[str] = []
