"""Built-in prompts, written for this repository and kept out of all training text."""

__all__ = ["DEMO_PROMPTS"]

DEMO_PROMPTS = (
    "A baker sells 14 loaves in the morning and twice as many in the afternoon. Each loaf costs 3 dollars. "
    "How much money does she take that day?",
    "Nina has 96 stickers. She gives a quarter of them to her brother and then 12 to a friend. "
    "How many stickers does she keep?",
    "Solve for $x$: $3(x - 4) + 5 = 2x + 11$. Show each step.",
    "If $f(x) = x^2 - 6x + 10$, what is the smallest value of $f(x)$ over the real numbers?",
    "Write a Python function `count_vowels(text)` with a docstring. It returns how many vowels the text has.",
    "I have to speak in front of my class tomorrow and I am nervous. What can I do tonight to prepare?",
)
