"""Sampling: from a request's logits to its tokens, with and without drafts, and to log-probabilities."""

from specpilot.sampling.chooser import TokenChooser, new_chooser
from specpilot.sampling.grammar import GrammarCursor, JsonGrammars
from specpilot.sampling.logprobs import argmax_ids, token_logprobs
from specpilot.sampling.penalties import TokenHistory
from specpilot.sampling.truncation import probabilities

__all__ = [
    "GrammarCursor",
    "JsonGrammars",
    "TokenChooser",
    "TokenHistory",
    "argmax_ids",
    "new_chooser",
    "probabilities",
    "token_logprobs",
]
