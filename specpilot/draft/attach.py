"""Joins a chain or a tree below a node of a tree; what is there already is used, never drafted twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specpilot.draft.tree import DraftTree

__all__ = ["attach_chain", "attach_subtree"]


def attach_chain(
    tree: DraftTree,
    token_ids: Sequence[int],
    max_nodes: int,
    *,
    at_node: int = 0,
    logprobs: Sequence[float] | None = None,
) -> DraftTree:
    """``tree`` with the path ``token_ids`` below ``at_node``, in at most ``max_nodes`` nodes.

    Where the path runs along nodes of the tree these stand for it, with their log-probabilities; the rest of it comes
    behind the tree's nodes.

    Parameters
    ----------
    logprobs
        Natural-log probability of each token given the one before it, at most 0; None: certain, 0.

    Raises
    ------
    ValueError
        No such node, ``max_nodes`` below the tree's nodes, or not one log-probability a token.
    """
    if logprobs is not None and len(logprobs) != len(token_ids):
        raise ValueError(
            f"logprobs: got {len(logprobs)}, expected {len(token_ids)}, one for each token of the chain"
        )
    sums = np.zeros(len(token_ids) + 1, np.float64)
    sums[1:] = 0.0 if logprobs is None else np.cumsum(logprobs)
    chain = DraftTree(
        np.array([tree.token_ids[at_node] if 0 <= at_node < tree.num_nodes else 0, *token_ids], np.int64),
        np.arange(-1, len(token_ids), dtype=np.int64),
        sums.astype(np.float32),
    )
    return attach_subtree(tree, at_node, chain, max_nodes)


def attach_subtree(tree: DraftTree, at_node: int, subtree: DraftTree, max_nodes: int) -> DraftTree:
    """``tree`` with ``subtree`` below ``at_node``: the subtree's root is that node.

    Nodes of the subtree whose path stands in the tree already are that tree's nodes. The others come behind the tree's
    nodes in the subtree's order, as many as fit; their log-probabilities are those of their parent in the joined tree
    plus what they had below theirs in the subtree.

    Parameters
    ----------
    max_nodes
        Most nodes of the joined tree, at least ``tree.num_nodes``.

    Raises
    ------
    ValueError
        No such node, another token at the subtree's root, or ``max_nodes`` below the tree's nodes.
    """
    if not 0 <= at_node < tree.num_nodes:
        raise ValueError(f"at_node: got {at_node}, expected 0 to {tree.num_nodes - 1}")
    if subtree.token_ids[0] != tree.token_ids[at_node]:
        raise ValueError(
            f"subtree: got root token {int(subtree.token_ids[0])}, expected {int(tree.token_ids[at_node])}, the token "
            f"of node {at_node}"
        )
    if max_nodes < tree.num_nodes:
        raise ValueError(f"max_nodes: got {max_nodes}, expected {tree.num_nodes} or more, what the tree has")
    tokens, parents, logprobs = tree.token_ids.tolist(), tree.parents.tolist(), tree.logprobs.tolist()
    place = {(parent, token): node for node, (parent, token) in enumerate(zip(parents, tokens, strict=True))}
    joined = [at_node]
    steps = zip(subtree.parents.tolist()[1:], subtree.token_ids.tolist()[1:], strict=True)
    for node, (parent, token) in enumerate(steps, start=1):
        above = joined[parent]
        found = place.get((above, token))
        if found is None:
            if len(tokens) == max_nodes:
                break
            found = place[above, token] = len(tokens)
            edge = float(subtree.logprobs[node]) - float(subtree.logprobs[parent])
            tokens.append(token)
            parents.append(above)
            logprobs.append(logprobs[above] + edge)
        joined.append(found)
    return DraftTree(np.array(tokens, np.int64), np.array(parents, np.int64), np.array(logprobs, np.float32))
