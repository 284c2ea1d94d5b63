"""Chooses the tokens of one request, from the target's logits after the last token and after each draft."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import torch
from torch import Tensor

from specpilot.draft.drafter import Draft
from specpilot.draft.tree import DraftTree
from specpilot.engines.base import SamplingParams
from specpilot.errors import RequestError
from specpilot.sampling.grammar import GrammarCursor, JsonGrammars
from specpilot.sampling.logprobs import argmax_ids
from specpilot.sampling.penalties import TokenHistory
from specpilot.sampling.truncation import probabilities
from specpilot.verify.chain import draw_token, verify_greedy, verify_sampled
from specpilot.verify.tree import TreeWalk, walk_tree

__all__ = ["TokenChooser", "new_chooser"]


class TokenChooser:
    """One request's options and what they remember of its answer. Used by one thread at a time.

    The order of operations, here and nowhere else:

    1. penalties (repetition, then frequency and presence), 2. bias, 3. grammar mask;
    4. greedy: the largest logit, the lowest id among equals;
       sampled: 5. temperature, 6. top-k, 7. top-p, 8. min-p (``truncation.probabilities``), then one draw.

    With drafts, row i of the target's logits is treated with the tokens that precede it on the draft, so that each
    step commits what as many steps without drafts would: the same token, or tokens of the same law. The drafter knows
    nothing of all this; its law q is the one it drew from. A tree is walked by the choices that steps without drafts
    would make, so there sampled tokens are the same too, for the same generator.

    Attributes
    ----------
    generator
        The request's own randomness; drafter and chooser draw from it.
    draft_temperature
        What the drafter is asked for; 0 is a greedy chain.
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        generator: torch.Generator,
        bias: Tensor | None = None,
        history: TokenHistory | None = None,
        grammar: GrammarCursor | None = None,
    ) -> None:
        self._params, self._bias, self._history, self._grammar = params, bias, history, grammar
        self.generator = generator
        self.draft_temperature = 0.0 if params.is_greedy else params.temperature

    def choose(self, logits: Tensor, draft: Draft | None = None) -> list[int]:
        """Tokens of one step: the accepted drafts, then the target's own next token. They count as said from here on.

        Parameters
        ----------
        logits : Tensor, float32, (D + 1, V)
            The target's rows after the last token and after each of the D drafts; not changed.
        draft
            None: D is 0.

        Raises
        ------
        RequestError
            The grammar asked for more work than a step may take; the request cannot go on.
        """
        if draft is None:
            return [self.choose_next(logits)]
        path = draft.token_ids.tolist()
        rows = self.process(logits, path)
        if self._params.is_greedy:
            result = verify_greedy(draft.token_ids, torch.tensor(argmax_ids(rows)))
        else:
            assert draft.q_rows is not None
            result = verify_sampled(
                draft.token_ids, draft.support_ids, draft.q_rows, self.law(rows), self.generator
            )
        tokens = [*path[: result.num_correct_drafts], result.bonus_id]
        self.advance(tokens)
        return tokens

    def choose_path(self, logits: Tensor, tree: DraftTree) -> TreeWalk:
        """Tokens of one step over a tree, which count as said from here on, and the nodes they lie on.

        Parameters
        ----------
        logits : Tensor, float32, (N, V)
            The target's row after each node; only rows of visited nodes are looked at.
        tree
            Made without this chooser's generator.

        Raises
        ------
        RequestError
            As :meth:`choose`.
        """
        return walk_tree(tree, lambda node: self.choose_next(logits[node : node + 1]))

    def choose_next(self, logits: Tensor) -> int:
        """The token after all that was said, from the logits (1, V); it counts as said from here on."""
        row = self.process(logits, ())
        token = argmax_ids(row)[0] if self._params.is_greedy else self.draw(self.law(row)[0])
        self.advance((token,))
        return token

    def draw(self, law: Tensor) -> int:
        """One draw from a law (V,) float64."""
        return draw_token(law, self.generator)

    def process(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        """Operations 1 to 3 on rows (R, V): row i as if ``path[:i]`` had been said. Changes nothing it remembers."""
        if self._history is not None:
            logits = self._history.penalise(logits, path, self._params)
        if self._bias is not None:
            logits = logits + self._bias
        if self._grammar is not None:
            logits = self._grammar.mask(logits, path)
        return logits

    def law(self, rows: Tensor) -> Tensor:
        """Operations 5 to 8 on processed rows (R, V): the law of each row's token, float64 (R, V)."""
        return probabilities(rows, self._params)

    def advance(self, token_ids: Sequence[int]) -> None:
        """Count tokens as said."""
        if self._history is not None:
            self._history.add(token_ids)
        if self._grammar is not None:
            self._grammar.advance(token_ids)


def new_chooser(
    params: SamplingParams, prompt_ids: Sequence[int], *, vocab_size: int, grammars: JsonGrammars
) -> TokenChooser:
    """The chooser of a request; RequestError for a biased id outside the vocabulary or a schema that does not compile.

    Without a seed the request gets one of its own.
    """
    bias = None
    if params.logit_bias:
        wrong = next((token_id for token_id in params.logit_bias if token_id >= vocab_size), None)
        if wrong is not None:
            raise RequestError(
                f"logit_bias: got token id {wrong}, expected 0 to {vocab_size - 1}", param="logit_bias"
            )
        bias = torch.zeros(vocab_size)
        bias[torch.tensor(list(params.logit_bias))] = torch.tensor(
            list(params.logit_bias.values()), dtype=bias.dtype
        )
    seed = secrets.randbits(63) if params.seed is None else params.seed
    return TokenChooser(
        params,
        bias=bias,
        history=TokenHistory(prompt_ids, vocab_size) if params.has_penalties else None,
        grammar=None if params.json_schema is None else grammars.start(params.json_schema),
        generator=torch.Generator().manual_seed(seed),
    )
