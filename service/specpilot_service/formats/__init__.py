"""How an answer is written: one file per endpoint behind ``base.AnswerFormat``."""

__all__: list[str] = []
