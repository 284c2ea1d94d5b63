"""Scorers: who says how likely the target finds a token. One file each; ``base.Scorer`` is what they fulfil."""
