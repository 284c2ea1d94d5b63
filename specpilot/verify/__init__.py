"""Verification: which drafted tokens the target commits."""

from specpilot.verify.chain import VerifyResult, acceptance_probs, bonus_law, verify_greedy, verify_sampled

__all__ = ["VerifyResult", "acceptance_probs", "bonus_law", "verify_greedy", "verify_sampled"]
