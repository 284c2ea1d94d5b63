"""Engine processes: started, watched, probed, stopped."""

__all__: list[str] = []
