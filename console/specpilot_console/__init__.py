"""The operator's web console. Not built yet: this package is empty (see the README beside it)."""
