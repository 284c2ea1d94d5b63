"""School word problems about rates and measures: speed, work, recipes, area, time, growth."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.train.generators.wording import CITIES, join_words, number_word, people, person, pick

__all__ = ["RATE_TEMPLATES"]

_Problem = tuple[str, list[str], str]


def _trip(rng: Random) -> _Problem:
    who = person(rng)
    start, end = rng.sample(CITIES, 2)
    legs = rng.randint(2, 3)
    speeds = [5 * rng.randint(2, 20) for _ in range(legs)]
    hours = [rng.randint(2, 6) for _ in range(legs)]
    parts = [s * h for s, h in zip(speeds, hours, strict=True)]
    unit = pick(rng, "miles", "kilometers")
    ways = rng.sample(("by car", "by train", "by bus", "on a motorbike", "by boat"), legs)
    listed = join_words(
        [f"{h} hours {w} at {s} {unit} per hour" for h, w, s in zip(hours, ways, speeds, strict=True)]
    )
    question = f"{who.name} travels from {start} to {end}. {who.He} goes {listed}. "
    steps = [
        f"{w[:1].upper() + w[1:]} {who.he} covers {s} * {h} = {d} {unit}."
        for w, s, h, d in zip(ways, speeds, hours, parts, strict=True)
    ]
    total = sum(parts)
    steps.append(f"The whole trip is {' + '.join(map(str, parts))} = {total} {unit} long.")
    if rng.random() < 0.5 and total % sum(hours) == 0:
        steps.append(f"The trip takes {' + '.join(map(str, hours))} = {sum(hours)} hours.")
        steps.append(f"The average speed is {total} / {sum(hours)} = {total // sum(hours)} {unit} per hour.")
        return (
            question + f"What is {who.his} average speed for the whole trip?",
            steps,
            str(total // sum(hours)),
        )
    return (
        question + f"How {pick(rng, 'long is the trip', 'far does ' + who.he + ' travel')} in {unit}?",
        steps,
        str(total),
    )


def _two_workers(rng: Random) -> _Problem:
    a, b = people(rng, 2)
    thing, verb, verb_s = pick(
        rng,
        ("cards", "write", "writes"),
        ("chairs", "paint", "paints"),
        ("baskets", "weave", "weaves"),
        ("envelopes", "fill", "fills"),
        ("cakes", "bake", "bakes"),
        ("bricks", "lay", "lays"),
        ("shirts", "iron", "irons"),
    )
    r1, r2, hours = rng.randint(3, 20), rng.randint(3, 20), rng.randint(2, 10)
    both = r1 + r2
    total = both * hours
    if rng.random() < 0.5:
        question = f"{a.name} can {verb} {r1} {thing} in an hour and {b.name} can {verb} {r2}. How many hours do they need to {verb} {total} {thing} {pick(rng, 'together', 'if they work together')}?"
        steps = [
            f"Together they {verb} {r1} + {r2} = {both} {thing} per hour.",
            f"They need {total} / {both} = {hours} hours for {total} {thing}.",
        ]
        return question, steps, str(hours)
    extra = rng.randint(1, 5)
    question = f"{a.name} {verb_s} {r1} {thing} per hour and {b.name} {verb_s} {r2} {thing} per hour. {a.name} works for {hours} hours and {b.name} works {extra} hours longer. How many {thing} do they {verb} in total?"
    second = r2 * (hours + extra)
    steps = [
        f"{a.name} {verb_s} {r1} * {hours} = {r1 * hours} {thing}.",
        f"{b.name} works {hours} + {extra} = {hours + extra} hours and {verb_s} {r2} * {hours + extra} = {second} {thing}.",
        f"In total they {verb} {r1 * hours} + {second} = {r1 * hours + second} {thing}.",
    ]
    return question, steps, str(r1 * hours + second)


def _recipe(rng: Random) -> _Problem:
    who = person(rng)
    dish = pick(
        rng, "pancakes", "soup", "lemonade", "bread", "stew", "fruit salad", "pudding", "curry", "noodles"
    )
    item, unit = pick(
        rng,
        ("flour", "cups"),
        ("sugar", "spoons"),
        ("milk", "cups"),
        ("water", "liters"),
        ("rice", "cups"),
        ("butter", "grams"),
        ("lemon juice", "spoons"),
    )
    base, per, factor = rng.randint(2, 8), rng.randint(2, 12), rng.randint(2, 9)
    guests = base * factor
    have = rng.randint(1, per * factor - 1)
    need = per * factor
    question = (
        f"A recipe for {dish} needs {per} {unit} of {item} for {base} people. {who.name} wants to cook for {guests} people "
        f"and already has {have} {unit} of {item}. How many more {unit} of {item} does {who.he} need?"
    )
    steps = [
        f"{guests} people are {guests} / {base} = {factor} times as many as in the recipe.",
        f"So {who.name} needs {per} * {factor} = {need} {unit} of {item}.",
        f"{who.He} has {have} {unit} already, so {who.he} needs {need} - {have} = {need - have} more.",
    ]
    return question, steps, str(need - have)


def _rectangle(rng: Random) -> _Problem:
    who = person(rng)
    width, length = rng.randint(3, 30), rng.randint(5, 60)
    if length <= width:
        length = width + rng.randint(2, 20)
    unit = pick(rng, "meters", "feet", "yards")
    thing = pick(rng, "garden", "field", "yard", "floor", "playground", "parking lot")
    cost = rng.randint(2, 25)
    steps: list[str] = []
    if rng.random() < 0.4 and length > width:
        question = f"{who.name} has a rectangular {thing}. It is {width} {unit} wide and its length is {length - width} {unit} more than its width. "
        steps.append(f"The {thing} is {width} + {length - width} = {length} {unit} long.")
    else:
        question = (
            f"{who.name} has a rectangular {thing} that is {length} {unit} long and {width} {unit} wide. "
        )
    if rng.random() < 0.5:
        around = 2 * (length + width)
        question += f"A fence costs ${cost} per {unit[:-1] if unit != 'feet' else 'foot'}. How much does it cost to put a fence around the {thing}?"
        steps += [
            f"The perimeter is 2 * ({length} + {width}) = {around} {unit}.",
            f"The fence costs {around} * ${cost} = ${around * cost}.",
        ]
        return question, steps, str(around * cost)
    area = length * width
    question += f"Covering one square {unit[:-1] if unit != 'feet' else 'foot'} costs ${cost}. How much does it cost to cover the whole {thing}?"
    steps += [
        f"The area is {length} * {width} = {area} square {unit}.",
        f"Covering it costs {area} * ${cost} = ${area * cost}.",
    ]
    return question, steps, str(area * cost)


def _reading(rng: Random) -> _Problem:
    who = person(rng)
    days, pages = rng.randint(3, 12), rng.randint(8, 45)
    rest_days, rest_pages = rng.randint(2, 10), rng.randint(5, 40)
    total = days * pages + rest_days * rest_pages
    question = (
        f"{who.name} is reading a book with {total} pages. For the first {days} days {who.he} reads {pages} pages a day. "
        f"After that {who.he} reads {rest_pages} pages a day. {pick(rng, 'How many days does it take in total to finish the book', 'After how many days is the book finished')}?"
    )
    done = days * pages
    steps = [
        f"In the first {days} days {who.name} reads {days} * {pages} = {done} pages.",
        f"That leaves {total} - {done} = {total - done} pages.",
        f"Reading the rest takes {total - done} / {rest_pages} = {rest_days} days.",
        f"In total it takes {days} + {rest_days} = {days + rest_days} days.",
    ]
    return question, steps, str(days + rest_days)


def _tank(rng: Random) -> _Problem:
    fill, leak, minutes = rng.randint(6, 40), rng.randint(1, 5), rng.randint(5, 40)
    net = fill - leak
    start = rng.randint(0, 5) * 10
    total = net * minutes + start
    what = pick(rng, "water tank", "swimming pool", "pond", "barrel", "fish tank", "bathtub")
    begin = f"It already holds {start} liters. " if start else "It is empty at first. "
    question = f"A {what} holds {total} liters. {begin}A hose adds {fill} liters per minute, but {leak} liters per minute leak out. How many minutes does it take until the {what} is full?"
    steps = [f"The {what} still needs {total} - {start} = {total - start} liters."] if start else []
    steps += [
        f"Each minute the {what} gains {fill} - {leak} = {net} liters.",
        f"It takes {total - start} / {net} = {minutes} minutes until it is full.",
    ]
    return question, steps, str(minutes)


def _growth(rng: Random) -> _Problem:
    thing, unit = pick(
        rng,
        ("sunflower", "inches"),
        ("bamboo plant", "inches"),
        ("vine", "centimeters"),
        ("young tree", "centimeters"),
        ("puppy", "pounds"),
        ("calf", "pounds"),
    )
    start, rate, weeks = rng.randint(4, 40), rng.randint(2, 12), rng.randint(3, 20)
    verb = "weighs" if unit == "pounds" else "is"
    suffix = "" if unit == "pounds" else " tall"
    gain = rate * weeks
    question = f"A {thing} {verb} {start} {unit}{suffix} and gains {rate} {unit} every {pick(rng, 'week', 'month')}. "
    period = "week" if question.endswith("week. ") else "month"
    if rng.random() < 0.5:
        question += (
            f"How many {unit} will it {'weigh' if unit == 'pounds' else 'measure'} after {weeks} {period}s?"
        )
        steps = [
            f"In {weeks} {period}s the {thing} gains {rate} * {weeks} = {gain} {unit}.",
            f"Then it {verb} {start} + {gain} = {start + gain} {unit}{suffix}.",
        ]
        return question, steps, str(start + gain)
    question += f"After how many {period}s will it {'weigh' if unit == 'pounds' else 'measure'} {start + gain} {unit}?"
    steps = [
        f"It must gain {start + gain} - {start} = {gain} {unit}.",
        f"That takes {gain} / {rate} = {weeks} {period}s.",
    ]
    return question, steps, str(weeks)


def _doubling(rng: Random) -> _Problem:
    who = person(rng)
    start, days = rng.randint(2, 20), rng.randint(3, 5)
    factor, word = pick(rng, (2, "twice"), (3, "three times"))
    verb, base, noun = pick(
        rng,
        ("did", "do", "push-ups"),
        ("ran", "run", "laps"),
        ("did", "do", "jumps"),
        ("solved", "solve", "problems"),
        ("moved", "move", "bricks"),
        ("took", "take", "photos"),
        ("picked", "pick", "apples"),
    )
    values = [start * factor**i for i in range(days)]
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
    question = (
        f"On Monday {who.name} {verb} {start} {noun}. On each following day {who.he} {verb} {word} as many as on the "
        f"day before. How many {noun} did {who.he} {base} from Monday to {names[days - 1]} in total?"
    )
    steps = [
        f"On {names[i]} {who.he} {verb} {values[i - 1]} * {factor} = {values[i]} {noun}."
        for i in range(1, days)
    ]
    steps.append(f"In total {who.he} {verb} {' + '.join(map(str, values))} = {sum(values)} {noun}.")
    return question, steps, str(sum(values))


def _schedule(rng: Random) -> _Problem:
    who = person(rng)
    acts = rng.sample(
        (
            "cooking dinner",
            "doing homework",
            "practicing piano",
            "walking the dog",
            "cleaning the kitchen",
            "watering the plants",
            "reading",
            "answering emails",
            "folding laundry",
        ),
        rng.randint(3, 4),
    )
    minutes = [5 * rng.randint(2, 12) for _ in acts]
    total = sum(minutes)
    hours = total // 60 + 1
    listed = join_words([f"{m} minutes {a}" for m, a in zip(minutes, acts, strict=True)])
    question = f"{who.name} has {hours} hours of free time in the evening. {who.He} spends {listed}. How many minutes of free time does {who.he} have left?"
    steps = [
        f"{who.name} spends {' + '.join(map(str, minutes))} = {total} minutes on these things.",
        f"{number_word(hours).capitalize()} {'hour is' if hours == 1 else 'hours are'} {hours} * 60 = {hours * 60} minutes.",
        f"So {who.he} has {hours * 60} - {total} = {hours * 60 - total} minutes left.",
    ]
    return question.replace("1 hours", "1 hour"), steps, str(hours * 60 - total)


def _commute(rng: Random) -> _Problem:
    who = person(rng)
    distance, days, weeks = rng.randint(2, 40), rng.randint(3, 6), rng.randint(2, 10)
    per = rng.choice((2, 4, 5, 8, 10, 20))
    vehicle = pick(rng, "car", "scooter", "van", "truck")
    daily = 2 * distance
    total = daily * days * weeks
    question = (
        f"{who.name} lives {distance} miles from work and drives there and back {days} days a week. {who.His} {vehicle} needs one gallon of fuel for every {per} miles. "
        f"How many {'gallons of fuel does ' + who.he + ' use' if total % per == 0 else 'miles does ' + who.he + ' drive'} in {weeks} weeks?"
    )
    steps = [
        f"Each day {who.name} drives {distance} * 2 = {daily} miles.",
        f"Each week {who.he} drives {daily} * {days} = {daily * days} miles.",
        f"In {weeks} weeks {who.he} drives {daily * days} * {weeks} = {total} miles.",
    ]
    if total % per == 0:
        steps.append(f"For that {who.he} needs {total} / {per} = {total // per} gallons of fuel.")
        return question, steps, str(total // per)
    return question, steps, str(total)


def _production(rng: Random) -> _Problem:
    place, thing = pick(
        rng,
        ("factory", "toys"),
        ("bakery", "rolls"),
        ("workshop", "stools"),
        ("printing house", "booklets"),
        ("farm", "eggs"),
        ("mill", "bags of flour"),
    )
    machines, rate, hours, days = rng.randint(2, 9), rng.randint(4, 50), rng.randint(4, 10), rng.randint(2, 7)
    per_hour = machines * rate
    per_day = per_hour * hours
    total = per_day * days
    bad = rng.choice((5, 10, 20, 25, 50))
    source = "coops" if place == "farm" else "machines"
    question = f"A {place} has {machines} {source}, and each of them makes {rate} {thing} per hour. They run {hours} hours a day for {days} days. "
    if source == "coops":
        question = question.replace("makes", "gives").replace("They run", "Eggs are collected")
    steps = [
        f"Together the {source} make {machines} * {rate} = {per_hour} {thing} per hour.",
        f"In one day they make {per_hour} * {hours} = {per_day} {thing}.",
        f"In {days} days they make {per_day} * {days} = {total} {thing}.",
    ]
    if total * bad % 100 == 0 and rng.random() < 0.7:
        loss = total * bad // 100
        question += f"{bad}% of the {thing} are {pick(rng, 'damaged', 'given away', 'kept in storage')}. How many {thing} can be sold?"
        steps += [
            f"{bad}% of {total} is {total} * {bad} / 100 = {loss}.",
            f"So {total} - {loss} = {total - loss} {thing} can be sold.",
        ]
        return question, steps, str(total - loss)
    return question + f"How many {thing} are made in total?", steps, str(total)


RATE_TEMPLATES: Final = (
    _trip, _trip, _two_workers, _recipe, _rectangle, _rectangle, _reading, _tank, _growth, _doubling, _schedule, _commute,
    _production,
)  # fmt: skip
