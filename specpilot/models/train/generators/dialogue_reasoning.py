"""Two-turn dialogues that need a small deduction: orders, tables, dates, syllogisms, sums, sentiment."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.wording import (
    CITIES,
    GOODS,
    conversation,
    join_words,
    number_word,
    people,
    person,
    pick,
)

__all__ = ["REASONING_TEMPLATES"]

_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def _ranking(rng: Random) -> Chat:
    group = people(rng, rng.randint(3, 5))
    names = [p.name for p in group]
    more, less, most, least, _ = pick(
        rng,
        ("taller than", "shorter than", "tallest", "shortest", "height"),
        ("older than", "younger than", "oldest", "youngest", "age"),
        ("faster than", "slower than", "fastest", "slowest", "speed"),
        ("richer than", "poorer than", "richest", "poorest", "money"),
        ("stronger than", "weaker than", "strongest", "weakest", "strength"),
    )
    clues = [
        f"{a} is {more} {b}." if rng.random() < 0.6 else f"{b} is {less} {a}." for a, b in pairwise(names)
    ]
    shown = rng.sample(clues, len(clues))
    question = f"{' '.join(shown)} Who is the {most}?"
    chain = ", then ".join(names)
    answer = f"Let us put the people in order. {' '.join(clues)} So the order from the {most} to the {least} is {chain}. Therefore, {names[0]} is the {most}."
    if rng.random() < 0.5:
        ask = f"And who is the {least}?"
        second = f"The last person in the order is {names[-1]}. Nobody is {less} {names[-1]}, so {names[-1]} is the {least}."
    else:
        a, b = sorted(rng.sample(range(len(names)), 2))
        ask = f"Is {names[b]} {more} {names[a]}?"
        second = f"No. In the order {chain}, {names[a]} comes before {names[b]}. That means {names[a]} is {more} {names[b]}, and not the other way around."
    return conversation(question, answer, ask, second)


def _weekday(rng: Random) -> Chat:
    start, n = rng.randrange(7), rng.randint(8, 100)
    end = (start + n) % 7
    question = f"Today is {_DAYS[start]}. Which day of the week will it be in {n} days?"
    answer = f"A week has seven days, so only the remainder matters. We have {n} = 7 * {n // 7} + {n % 7}. After {n // 7} full weeks it is {_DAYS[start]} again. Then we count {n % 7} more {'day' if n % 7 == 1 else 'days'} and reach {_DAYS[end]}. So it will be {_DAYS[end]}."
    back = rng.randint(8, 60)
    before = (start - back) % 7
    ask = f"And which day was it {back} days ago?"
    second = f"Again we use the remainder: {back} = 7 * {back // 7} + {back % 7}. We go back {back % 7} {'day' if back % 7 == 1 else 'days'} from {_DAYS[start]} and get {_DAYS[before]}. So it was {_DAYS[before]}."
    return conversation(question, answer, ask, second)


_GROUPS: Final = (
    ("roses", "flowers", "plants"), ("sparrows", "birds", "animals"), ("violins", "string instruments", "instruments"),
    ("squares", "rectangles", "polygons"), ("oaks", "trees", "plants"), ("trout", "fish", "animals"),
    ("novels", "books", "objects made of paper"), ("sedans", "cars", "vehicles"), ("nurses", "health workers", "people with a job"),
)  # fmt: skip


def _syllogism(rng: Random) -> Chat:
    small, middle, large = rng.choice(_GROUPS)
    trap = rng.random() < 0.5
    if trap:
        question = f"All {small} are {middle}. Some {middle} are {pick(rng, 'old', 'rare', 'large', 'expensive')}. Does it follow that some {small} are of that kind? Explain."
        answer = f"No, it does not follow. We know that every one of the {small} belongs to the {middle}. But the {middle} that have this property could all be different from the {small}. The statements leave this open, so we cannot be sure."
        ask, second = (
            "What would we need to know?",
            f"We would need a statement about the {small} themselves, or a statement about all {middle}. If all {middle} had the property, then all {small} would have it too, because all {small} are {middle}.",
        )
    else:
        question = f"All {small} are {middle}. All {middle} are {large}. Are all {small} {large}?"
        answer = f"Yes. Every one of the {small} is one of the {middle}, and every one of the {middle} is one of the {large}. If we put both statements together, every one of the {small} is one of the {large}. This kind of conclusion is valid for any three groups."
        ask, second = (
            f"Are all {large} {small}?",
            f"No, that does not follow. There can be {large} that are not {small}. The statements only say that the {small} are a part of the {large}. A conclusion cannot simply be turned around.",
        )
    return conversation(question, answer, ask, second)


def _table(rng: Random) -> Chat:
    rows = people(rng, rng.randint(3, 5))
    fields = rng.sample(
        (
            ("age", 18, 70),
            ("points", 10, 99),
            ("salary", 1500, 6000),
            ("height", 150, 200),
            ("books", 1, 40),
            ("orders", 1, 30),
        ),
        1,
    )
    label, low, high = fields[0]
    values = rng.sample(range(low, high), len(rows))
    cities = rng.sample(CITIES, len(rows))
    lines = "\n".join(f"{p.name},{city},{value}" for p, city, value in zip(rows, cities, values, strict=True))
    best = max(range(len(rows)), key=lambda i: values[i])
    worst = min(range(len(rows)), key=lambda i: values[i])
    question = (
        pick(
            rng,
            "Read the following table and answer the question.",
            "Look at these records.",
            "Here is a small table in CSV format.",
            "Use the data below.",
        )
        + f" {pick(rng, 'Who has the highest value', 'Which person has the largest value')} of {label}?\n\nname,city,{label}\n{lines}"
    )
    answer = f"The values of {label} are {join_words([f'{v} for {p.name}' for p, v in zip(rows, values, strict=True)])}. The largest of them is {values[best]}. So {rows[best].name} from {cities[best]} has the highest value."
    kind = rng.randrange(4)
    if kind == 0:
        ask = pick(rng, "Return the table as JSON.", "Now write the records as a JSON list.")
        records = [
            {"name": p.name, "city": c, label: v} for p, c, v in zip(rows, cities, values, strict=True)
        ]
        second = "```json\n[\n" + ",\n".join("  " + json.dumps(record) for record in records) + "\n]\n```"
    elif kind == 1:
        ask = pick(rng, f"What is the sum of all values of {label}?", f"Add up the column {label}.")
        second = f"The sum is {' + '.join(map(str, values))} = {sum(values)}. There are {number_word(len(rows))} rows in the table."
    elif kind == 2:
        ask = pick(
            rng,
            f"Sort the people by {label}, smallest first.",
            f"List the names in increasing order of {label}.",
        )
        order = sorted(range(len(rows)), key=lambda i: values[i])
        second = "Here is the sorted list:\n\n" + "\n".join(
            f"{n}. {rows[i].name} ({values[i]})" for n, i in enumerate(order, 1)
        )
    else:
        ask = pick(rng, "Who has the lowest value, and where does this person live?", "And who comes last?")
        second = f"The lowest value of {label} is {values[worst]}. It belongs to {rows[worst].name}, who lives in {cities[worst]}. The difference to the highest value is {values[best]} - {values[worst]} = {values[best] - values[worst]}."
    return conversation(question, answer, ask, second)


_GOOD: Final = (
    "The food was great and the staff were friendly.",
    "I love this phone, because the battery lasts for days.",
    "What a wonderful film, I smiled the whole time.",
    "The book is exciting from the first page to the last.",
    "Fast delivery and excellent quality.",
    "The room was clean, bright, and quiet.",
)
_BAD: Final = (
    "The soup was cold and the waiter was rude.",
    "The phone broke after two days.",
    "The film was boring, and I left early.",
    "I could not finish this book, since nothing ever happens.",
    "The parcel arrived late and damaged.",
    "The room was dirty and smelled of smoke.",
)
_MIXED: Final = (
    "It is okay, but I expected more.",
    "Some parts were good and others were not.",
    "The price is fair, nothing special.",
    "It does what it should, no more and no less.",
)


def _sentiment(rng: Random) -> Chat:
    chosen = (
        [("positive", text) for text in rng.sample(_GOOD, rng.randint(1, 2))]
        + [("negative", text) for text in rng.sample(_BAD, rng.randint(1, 2))]
        + [("neutral", text) for text in rng.sample(_MIXED, rng.randint(0, 1))]
    )
    rng.shuffle(chosen)
    numbered = "\n".join(f"{i}. {text}" for i, (_, text) in enumerate(chosen, 1))
    score = {"positive": 5, "neutral": 3, "negative": 1}
    question = f"{pick(rng, 'Classify the following reviews as positive, negative, or neutral.', 'Decide for each review whether it is positive, negative, or neutral.', 'What is the mood of each of these reviews?')}\n\n{numbered}"
    answer = "\n".join(
        f"{i}. {label.capitalize()}: the writer {dict(positive='is happy with the experience', negative='is disappointed', neutral='has no strong opinion')[label]}."
        for i, (label, _) in enumerate(chosen, 1)
    )
    ask, second = pick(
        rng,
        (
            "Return the result as a JSON object.",
            "```json\n" + json.dumps({str(i): label for i, (label, _) in enumerate(chosen, 1)}) + "\n```",
        ),
        (
            "Give each review a score from 1 to 5. Answer with a list of numbers.",
            str([score[label] for label, _ in chosen]),
        ),
        (
            "How many of them are negative?",
            f"{number_word(sum(1 for label, _ in chosen if label == 'negative')).capitalize()} of the {number_word(len(chosen))} reviews {'is' if sum(1 for label, _ in chosen if label == 'negative') == 1 else 'are'} negative. {number_word(sum(1 for label, _ in chosen if label == 'positive')).capitalize()} of them {'is' if sum(1 for label, _ in chosen if label == 'positive') == 1 else 'are'} positive.",
        ),
    )
    return conversation(question, answer, ask, second)


def _extraction(rng: Random) -> Chat:
    who, other = people(rng, 2)
    city = rng.choice(CITIES)
    month, day = rng.choice(_MONTHS), rng.randint(1, 28)
    event = pick(
        rng,
        "a music festival",
        "a book fair",
        "a science day",
        "a charity run",
        "a cooking course",
        "a film night",
        "a chess tournament",
    )
    guests, price = 10 * rng.randint(3, 90), rng.randint(5, 60)
    text = f"{pick(rng, 'On', 'This year, on')} {month} {day}, {event} will take place in {city}. It is organized by {who.name} together with {other.name}. About {guests} guests are expected, and a ticket costs ${price}. {pick(rng, 'Food and drinks are included.', 'Children can come for free.', 'The event will be held outdoors.')}"
    question = f"{pick(rng, 'Extract the place, the date, and the price from this text.', 'Read the paragraph and list the place, the date, and the price.', 'Identify the place, the date, and the price in the following text.')}\n\n{text}"
    answer = f"Place: {city}\nDate: {month} {day}\nPrice: ${price}"
    income = guests * price
    ask, second = pick(
        rng,
        (
            "Who organizes the event?",
            f"The event is organized by {who.name} and {other.name}. The text names both of them in the second sentence.",
        ),
        (
            "Put all facts into a JSON object.",
            "```json\n"
            + json.dumps(
                {
                    "event": event.split(" ", 1)[1],
                    "place": city,
                    "date": f"{month} {day}",
                    "organizers": [who.name, other.name],
                    "guests": guests,
                    "price": price,
                },
                indent=2,
            )
            + "\n```",
        ),
        (
            "How much money will be collected if all guests buy a ticket?",
            f"If all {guests} guests buy a ticket for ${price}, the organizers collect {guests} * ${price} = ${income}.",
        ),
        (
            "Rewrite the text as an invitation.",
            f"Dear friends,\n\nyou are invited to {event} in {city} on {month} {day}. {who.name} and {other.name} have prepared everything, and we expect about {guests} guests. A ticket costs ${price}. We look forward to seeing you!",
        ),
    )
    return conversation(question, answer, ask, second)


def _month_totals(rng: Random) -> Chat:
    who = person(rng)
    thing = pick(
        rng, "bread", "bicycles", "tickets", "lamps", "shirts", "plants", "lessons", "cups of coffee"
    )
    first = rng.randrange(9)
    months = _MONTHS[first : first + 4]
    values = [rng.randint(20, 400) for _ in months]
    total = sum(values)
    best, worst = max(values), min(values)
    listed = "\n".join(f"- {month}: {value}" for month, value in zip(months, values, strict=True))
    sold = pick(rng, "sales", "orders", "sales of the last months")
    question = f"{who.name} has a small shop. These are the {sold} for {thing}:\n\n{listed}\n\n{pick(rng, 'Which month was the best one?', 'In which month were the numbers highest?')}"
    answer = f"The numbers are {join_words([str(v) for v in values])}. The largest of them is {best}, and it belongs to {months[values.index(best)]}. So {months[values.index(best)]} was the best month."
    ask, second = pick(
        rng,
        (
            "How many is that in total?",
            f"The total is {' + '.join(map(str, values))} = {total}. So {who.name} sold {total} in these four months.",
        ),
        (
            "What is the difference between the best and the worst month?",
            f"The lowest number is {worst} in {months[values.index(worst)]}. The difference is {best} - {worst} = {best - worst}.",
        ),
        ("In which months did the numbers go up?", _rises(months, values)),
    )
    return conversation(question, answer, ask, second)


def _rises(months: tuple[str, ...], values: list[int]) -> str:
    lines = [
        f"From {a} to {b} the number {'rose' if y > x else 'fell' if y < x else 'stayed the same, with'}{' from' if x != y else ''} {x}{f' to {y}' if x != y else ''}."
        for a, b, x, y in zip(months, months[1:], values, values[1:], strict=False)
    ]
    ups = [b for b, x, y in zip(months[1:], values, values[1:], strict=False) if y > x]
    return " ".join(lines) + (
        f" So the numbers went up in {join_words(ups)}." if ups else " So they never went up."
    )


def _word_order(rng: Random) -> Chat:
    words = rng.sample([good[0] for good in GOODS if " " not in good[0]], rng.randint(4, 6))
    ordered = sorted(words)
    letter = rng.choice("aeiorst")
    question = f"{pick(rng, 'Sort these words in alphabetical order', 'Put the following words into alphabetical order', 'Arrange these words from A to Z')}: {', '.join(words)}"
    answer = f"{pick(rng, 'In alphabetical order the words are', 'The sorted list is', 'Here is the sorted list')}: {', '.join(ordered)}. The first word is {ordered[0]}, and the last word is {ordered[-1]}."
    having = [word for word in ordered if letter in word]
    longest = max(ordered, key=lambda word: (len(word), word))
    ask, second = pick(
        rng,
        (
            f"Which of them contain the letter {letter}?",
            f"The words with the letter {letter} are {join_words(having)}. That is {number_word(len(having))} of the {number_word(len(words))} words."
            if having
            else f"None of the {number_word(len(words))} words contains the letter {letter}.",
        ),
        (
            "Which word is the longest?",
            f"The longest word is {longest} with {len(longest)} letters."
            + (
                " There are other words of the same length."
                if sum(len(w) == len(longest) for w in words) > 1
                else " All other words are shorter."
            ),
        ),
        (
            "Now reverse the order.",
            f"From Z to A the words are: {', '.join(reversed(ordered))}. This time the first word is {ordered[-1]}, and the last word is {ordered[0]}.",
        ),
    )
    return conversation(question, answer, ask, second)


REASONING_TEMPLATES: Final = (
    _ranking,
    _ranking,
    _weekday,
    _syllogism,
    _table,
    _table,
    _sentiment,
    _extraction,
    _extraction,
    _month_totals,
    _word_order,
)
