"""The controller put to the test: an honest candidate it must promote, cheats it must refuse, each with its reason."""

__all__: list[str] = []
