"""Compiles a grammar in a process of its own, where a hostile one can run out of time or memory and harm nobody.

This file is also the program of that process: it reads a grammar from its standard input, prints what is wrong with it
and exits with 0 when nothing is. It is run by its path so that nothing of this package has to be loaded there.
"""

from __future__ import annotations

import resource
import subprocess
import sys

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

__all__ = ["MAX_SECONDS", "try_grammar"]

MAX_SECONDS = 4
"""CPU seconds of one trial, start of the process included."""

_MAX_BYTES = 2**30
_IS_WRONG = 3
# The process counts its own CPU seconds; this one is for a machine so busy that it gets none.
_MAX_WALL_SECONDS = 10 * MAX_SECONDS


def try_grammar(grammar: str) -> str | None:
    """Why ``grammar`` (as llguidance writes it) cannot be used, or None if it can."""
    # -P: the folder of this file holds modules whose names are not meant for it.
    command = [sys.executable, "-P", __file__]
    try:
        done = subprocess.run(
            command, input=grammar.encode(), capture_output=True, timeout=_MAX_WALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        done = None
    if done is not None and done.returncode == 0:
        return None
    if done is not None and done.returncode == _IS_WRONG:
        return f"got a schema that does not compile ({done.stdout.decode().strip()})"
    limits = f"{MAX_SECONDS} s and {_MAX_BYTES >> 20} MiB"
    return f"got a schema that does not compile within {limits}"


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tokenizer = LLTokenizer(TokenizerWrapper(_Bytes()))
    limits = LLParserLimits(verbose_errors=False)
    matcher = LLMatcher(tokenizer, sys.stdin.read(), log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()
    if matcher.is_error():
        print(matcher.get_error())
        sys.exit(_IS_WRONG)


class _Bytes:
    """The smallest tokenizer: what is hard about a grammar is hard about its bytes already."""

    tokens = (*(bytes([value]) for value in range(256)), b"")
    eos_token_id = 256
    bos_token_id = None
    special_token_ids = (256,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


if __name__ == "__main__":
    _main()
