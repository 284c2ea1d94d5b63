"""Names, things, prices and small phrasing tools shared by the text generators."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Final, NamedTuple, TypeVar

from specpilot.models.chat import ASSISTANT, USER, Chat

__all__ = [
    "CITIES",
    "CONTAINERS",
    "GOODS",
    "JOBS",
    "MEN",
    "WOMEN",
    "Person",
    "capital",
    "conversation",
    "join_words",
    "latex_fraction",
    "number_word",
    "people",
    "percent_of",
    "person",
    "pick",
    "plural",
    "usd",
]

_T = TypeVar("_T")

WOMEN: Final = (
    "Amara Anna Bella Beatriz Carla Chloe Clara Daisy Dana Diana Elena Elif Ella Emma Esther Farah Fatima Fiona "
    "Freya Gemma Grace Hana Hannah Helen Ines Irene Isla Ivy Jade Jasmine Joan Julia Kara Keiko Kira Lara Laura "
    "Leah Lena Lila Lucy Luna Maya Megan Mei Mila Mina Nadia Naomi Nina Nora Olivia Paula Penny Priya Rachel Rita "
    "Rosa Ruth Sana Sara Selma Sofia Stella Tara Tessa Uma Vera Wendy Yara Yuki Zara Zoe Alma Brenda Cynthia "
    "Dorothy Edith Gloria Heather Ingrid Janet Kathy Linda Martha Nancy Pamela Sharon Tina Valerie Yvonne"
).split()
MEN: Final = (
    "Aaron Adam Ahmed Alex Andre Arjun Ben Boris Bruno Caleb Carlos Cyrus Daniel David Dmitri Dylan Eli Emil Ethan "
    "Felix Finn Frank Gavin George Hamid Hans Henry Hugo Ian Igor Isaac Ivan Jack Jamal James Jin Joel John Jonas "
    "Jorge Kai Karim Kofi Kyle Lars Leo Liam Louis Luca Malik Marco Mark Mateo Max Milo Nabil Nathan Noah Oliver "
    "Omar Oscar Owen Pablo Paul Pedro Peter Quinn Rafael Ravi Robert Ryan Sam Samir Simon Tariq Theo Thomas Tom "
    "Victor Wei William Yusuf Zach Albert Brian Colin Derek Edgar Fred Gary Harold Jerry Keith Larry Martin "
    "Nick Philip Roger Steve Tony Walter"
).split()

# (singular, plural, lowest and highest usual price in whole dollars)
GOODS: Final = (
    ("apple", "apples", 1, 3), ("notebook", "notebooks", 2, 8), ("pencil", "pencils", 1, 3),
    ("sticker", "stickers", 1, 2), ("marble", "marbles", 1, 3), ("cookie", "cookies", 1, 4),
    ("cupcake", "cupcakes", 2, 5), ("book", "books", 6, 25), ("toy car", "toy cars", 3, 12),
    ("candle", "candles", 4, 15), ("shirt", "shirts", 12, 40), ("mug", "mugs", 5, 14),
    ("postcard", "postcards", 1, 3), ("balloon", "balloons", 1, 3), ("flower", "flowers", 2, 6),
    ("orange", "oranges", 1, 3), ("peach", "peaches", 1, 3), ("muffin", "muffins", 2, 5),
    ("bracelet", "bracelets", 5, 18), ("scarf", "scarves", 9, 30), ("puzzle", "puzzles", 8, 24),
    ("comic book", "comic books", 3, 9), ("plant", "plants", 6, 22), ("lamp", "lamps", 18, 60),
    ("chair", "chairs", 25, 90), ("hat", "hats", 8, 28), ("pair of socks", "pairs of socks", 3, 9),
    ("bag of rice", "bags of rice", 4, 12), ("bottle of juice", "bottles of juice", 2, 6),
    ("box of tea", "boxes of tea", 4, 11), ("loaf of bread", "loaves of bread", 2, 6),
    ("jar of honey", "jars of honey", 5, 14), ("sandwich", "sandwiches", 4, 10), ("pizza", "pizzas", 9, 20),
    ("poster", "posters", 5, 15), ("key chain", "key chains", 2, 6), ("kite", "kites", 7, 19),
    ("paint brush", "paint brushes", 2, 9), ("basketball", "basketballs", 15, 35), ("bead", "beads", 1, 2),
    ("seashell", "seashells", 1, 2), ("trading card", "trading cards", 1, 4), ("tomato", "tomatoes", 1, 2),
    ("potted herb", "potted herbs", 3, 8), ("ribbon", "ribbons", 1, 4), ("magazine", "magazines", 3, 9),
)  # fmt: skip

CONTAINERS: Final = (
    ("box", "boxes"), ("bag", "bags"), ("basket", "baskets"), ("crate", "crates"), ("shelf", "shelves"),
    ("jar", "jars"), ("tray", "trays"), ("drawer", "drawers"), ("carton", "cartons"), ("bin", "bins"),
)  # fmt: skip

JOBS: Final = (
    "baker", "teacher", "gardener", "carpenter", "painter", "driver", "nurse", "waiter", "tailor", "plumber",
    "mechanic", "cashier", "librarian", "farmer", "florist", "electrician", "tutor", "photographer", "cook",
)  # fmt: skip

CITIES: Final = (
    "Lisbon", "Oslo", "Kyoto", "Lima", "Cairo", "Prague", "Dublin", "Nairobi", "Hanoi", "Athens", "Toronto",
    "Vienna", "Seville", "Bergen", "Quito", "Porto", "Krakow", "Tunis", "Zagreb", "Riga", "Boston", "Denver",
)  # fmt: skip

_SMALL: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
).split()


class Person(NamedTuple):
    """A name with its pronouns."""

    name: str
    he: str
    him: str
    his: str

    @property
    def He(self) -> str:
        return self.he.capitalize()

    @property
    def His(self) -> str:
        return self.his.capitalize()


def pick(rng: Random, *options: _T) -> _T:
    """Choose one of the arguments."""
    return options[rng.randrange(len(options))]


def people(rng: Random, count: int) -> list[Person]:
    """Distinct persons."""
    women = [Person(name, "she", "her", "her") for name in WOMEN]
    men = [Person(name, "he", "him", "his") for name in MEN]
    return rng.sample(women + men, count)


def person(rng: Random) -> Person:
    """One person."""
    return people(rng, 1)[0]


def number_word(value: int) -> str:
    """Spell out 0 to 20; larger numbers stay digits."""
    return _SMALL[value] if 0 <= value <= 20 else str(value)


def usd(cents: int) -> str:
    """Write an amount: 300 gives ``$3``, 350 gives ``$3.50``."""
    whole, rest = divmod(cents, 100)
    return f"${whole}" if rest == 0 else f"${whole}.{rest:02d}"


def percent_of(percent: int, value: int) -> int:
    """Exact percentage; the caller chooses numbers that divide."""
    result = Fraction(percent * value, 100)
    assert result.denominator == 1, (percent, value)
    return int(result)


def plural(count: int, singular: str, several: str | None = None) -> str:
    """``1 box`` or ``3 boxes``."""
    return f"{count} {singular if count == 1 else several or singular + 's'}"


def capital(text: str) -> str:
    """Upper-case the first letter only."""
    return text[:1].upper() + text[1:]


def join_words(words: list[str], last: str = "and") -> str:
    """``a``, ``a and b``, ``a, b, and c``."""
    if len(words) < 3:
        return f" {last} ".join(words)
    return ", ".join(words[:-1]) + f", {last} {words[-1]}"


def latex_fraction(value: Fraction) -> str:
    """A LaTeX number; whole values have no denominator."""
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def conversation(*turns: str) -> Chat:
    """Messages from alternating user and assistant texts."""
    return [
        {"role": USER if index % 2 == 0 else ASSISTANT, "content": text} for index, text in enumerate(turns)
    ]
