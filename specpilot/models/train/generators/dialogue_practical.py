"""Two-turn dialogues with practical help: travel plans, advice, recipes, schedules, role play."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.wording import (
    capital,
    conversation,
    join_words,
    number_word,
    person,
    pick,
)

__all__ = ["PRACTICAL_TEMPLATES"]

_TRIPS: Final = (
    ("Lisbon", ("the castle above the old town", "the yellow tram", "the riverside market", "the tile museum", "a small fado bar")),
    ("Kyoto", ("the golden temple", "the bamboo forest", "a quiet tea house", "the path of a thousand gates", "the covered market")),
    ("Prague", ("the stone bridge at sunrise", "the castle district", "the old clock on the square", "a puppet theater", "the hill with the garden")),
    ("Hanoi", ("the lake in the center", "the old quarter", "a water puppet show", "a street kitchen with noodle soup", "the temple of literature")),
    ("Dublin", ("the old college library", "a walk along the canals", "a pub with live music", "the national museum", "the cliffs near the harbor")),
    ("Athens", ("the temple on the hill", "the flea market", "the museum of ancient art", "a walk at sunset", "the coast south of the city")),
    ("Oslo", ("the opera house by the water", "the ship museum", "the sculpture park", "a boat tour on the fjord", "the wooden houses on the island")),
    ("Vienna", ("the large palace with its park", "a concert in the evening", "a traditional coffee house", "the art museum", "the wine villages")),
    ("Cairo", ("the pyramids", "the old bazaar", "a boat trip on the Nile", "the museum of antiquities", "the citadel")),
    ("Quito", ("the historic center", "the cable car to the volcano", "the line of the equator", "a market with handmade clothes", "the basilica")),
    ("Toronto", ("the islands in the lake", "the tall tower", "a hockey game", "the market hall", "the neighborhoods with murals")),
    ("Seville", ("the royal palace with its gardens", "the bell tower", "a flamenco show", "the tapas bars", "a ride along the river")),
)  # fmt: skip


def _travel(rng: Random) -> Chat:
    city, sights = rng.choice(_TRIPS)
    days = rng.randint(2, 3)
    order = rng.sample(sights, 5)
    budget = 50 * rng.randint(3, 20)
    question = pick(
        rng,
        f"Plan a {number_word(days)}-day trip to {city}.",
        f"I will spend {number_word(days)} days in {city}. What should I see?",
        f"Write a travel plan for {number_word(days)} days in {city} with a budget of ${budget}.",
        f"Write a diary blog entry about your holiday in {city}.",
    )
    if "blog" in question:
        text = f"{pick(rng, 'I have just come back from', 'Last week I returned from', 'My head is still full of pictures from')} {city}, and I already miss it. My first way led me to {order[0]}, and I stayed there for hours. Later I discovered {order[1]}, which was even more beautiful than in the pictures. The people were {pick(rng, 'open and helpful', 'friendly and relaxed', 'proud of their city')}. On the last day I enjoyed {order[2]} and {order[3]}. {pick(rng, 'If you have the chance, go there.', 'One visit is not enough.', 'I am already planning the next trip.')}"
    else:
        lines = []
        for day in range(days):
            morning, evening = order[(2 * day) % 5], order[(2 * day + 1) % 5]
            lines.append(
                f"Day {day + 1}: {pick(rng, 'Start the morning with', 'Begin the day with', 'In the morning, visit')} {morning}. {pick(rng, 'After lunch, take a break in a park.', 'Have lunch at a local place.', 'Take your time and walk.')} {pick(rng, 'In the evening, enjoy', 'End the day with', 'Later, do not miss')} {evening}."
            )
        text = (
            f"{pick(rng, 'Here is a plan for your trip:', f'{city} is a great choice. This is my suggestion:', 'A relaxed plan could look like this:')}\n\n"
            + "\n".join(lines)
            + f"\n\n{pick(rng, 'Comfortable shoes are a good idea.', 'Buy tickets early to avoid long lines.', 'Most places can be reached on foot or by bus.')}"
        )
    ask, answer = pick(
        rng,
        (
            "What if it rains?",
            f"{pick(rng, 'In that case', 'On a rainy day', 'If it rains')} you can choose places with a roof. {capital(order[4])} may be an option, or you can spend more time in a museum or a cafe. Take a light jacket with you and keep the plan flexible. Rain often stops after an hour or two, and {city} is also beautiful in the wet.",
        ),
        (
            "I am traveling with two small children. Please adapt it.",
            f"With children it is better to plan less. Visit {order[0]} in the morning, when everyone is fresh. Plan a long break at noon and look for a playground. {capital(order[1])} is a good goal for the afternoon, and an ice cream on the way helps a lot. Leave the evenings free, so that nobody gets too tired.",
        ),
        (
            "How should I divide a budget of $" + str(budget) + "?",
            f"With ${budget} you could spend half of it, ${budget // 2}, on the room. Use a quarter, ${budget // 4}, for food and the remaining ${budget - budget // 2 - budget // 4} for tickets and transport. It is wise to keep a small part as a reserve. Many places in {city} are free on certain days, so you can save money there.",
        ),
        ("Rewrite your answer as a short list.", "\n".join(f"- {capital(sight)}" for sight in order[:4])),
    )
    return conversation(question, text, ask, answer)


_ADVICE: Final = (
    ("sleep better", ("Go to bed at the same time every day.", "Keep the room dark and cool.", "Put the phone away an hour before bed.", "Avoid coffee in the afternoon.", "Read a few pages of a calm book.", "Take a short walk in the evening.")),
    ("save money", ("Write down every expense for a month.", "Set a fixed amount aside on the day you are paid.", "Cook at home more often.", "Cancel services that you do not use.", "Wait a day before you buy something expensive.", "Compare prices before a large purchase.")),
    ("prepare for an exam", ("Make a plan for the weeks before the exam.", "Explain the subject to a friend.", "Solve old exams under time pressure.", "Take short breaks every hour.", "Sleep well the night before.", "Begin with the topics you find hardest.")),
    ("start running", ("Begin with short distances.", "Buy good shoes.", "Run slowly enough to talk.", "Rest for a day between two runs.", "Keep a small diary of your progress.", "Find a partner who runs at your pace.")),
    ("write better texts", ("Use short sentences.", "Say the most important thing first.", "Read your text aloud.", "Delete every word that is not needed.", "Ask someone to read the draft.", "Look for examples that make an idea clear.")),
    ("give a good presentation", ("Start with a question or a story.", "Show only a few words on each slide.", "Practice in front of a mirror.", "Speak slowly and look at the audience.", "Finish with one clear message.", "Arrive early and test the equipment.")),
    ("use less plastic", ("Carry a bag with you.", "Buy fruit and vegetables without packaging.", "Drink tap water from a bottle that you can fill again.", "Choose soap instead of liquid in plastic.", "Repair things before you replace them.", "Store food in jars.")),
    ("learn to cook", ("Choose five simple dishes and repeat them.", "Prepare all ingredients before you start.", "Taste the food while you cook.", "Use a sharp knife and a large board.", "Write notes into your recipes.", "Cook together with someone who has experience.")),
    ("make new friends", ("Join a club or a course.", "Ask open questions and listen.", "Be the one who proposes the next meeting.", "Be patient, since trust takes time.", "Stay in touch with short messages.", "Offer help without being asked.")),
    ("deal with stress", ("Write down what worries you.", "Decide which task really matters today.", "Move your body for at least half an hour.", "Say no when your day is full.", "Breathe slowly for a few minutes.", "Talk to someone you trust.")),
    ("keep houseplants alive", ("Find out how much light the plant needs.", "Check the soil before you water it.", "Use a pot with a hole at the bottom.", "Turn the plant from time to time.", "Add some fertilizer in spring.", "Remove dry leaves.")),
    ("work well from home", ("Choose a fixed place for your work.", "Begin at the same time every morning.", "Agree on quiet hours with your family.", "Plan real breaks away from the screen.", "Stop at a fixed time in the evening.", "Talk to your colleagues every day.")),
)  # fmt: skip


def _advice(rng: Random) -> Chat:
    goal, tips = rng.choice(_ADVICE)
    n = rng.randint(3, 5)
    chosen = rng.sample(tips, n)
    rest = [tip for tip in tips if tip not in chosen]
    question = pick(
        rng,
        f"How can I {goal}?",
        f"Give me {number_word(n)} tips to {goal}.",
        f"I want to {goal}. What do you recommend?",
        f"What is the best way to {goal}?",
        f"A friend wants to {goal}. What should I tell my friend?",
    )
    if rng.random() < 0.5:
        text = (
            f"{pick(rng, f'Here are {number_word(n)} tips that can help you to {goal}:', 'These ideas have helped many people:', 'You can try the following:')}\n\n"
            + "\n".join(f"{i}. {tip}" for i, tip in enumerate(chosen, 1))
            + f"\n\n{pick(rng, 'Start with one of them and add the others later.', 'Small steps are better than a perfect plan.', 'Be patient, because habits need time.')}"
        )
    else:
        words = ("First", "Then", "Next", "After that", "Finally")
        said = [
            f"{words[i] if i < n - 1 else 'Finally'}, {tip[:1].lower() + tip[1:]}"
            for i, tip in enumerate(chosen)
        ]
        text = f"{pick(rng, f'If you want to {goal}, a few simple habits are enough.', 'That is a good goal.', 'There are some proven ways to do this.')} {' '.join(said)} {pick(rng, 'You will notice a change after a few weeks.', 'It becomes easier with time.', 'Do not give up if it does not work at once.')}"
    reason = pick(
        rng,
        "it is easy to do and has a quick effect",
        "it costs nothing and changes the whole day",
        "it is the basis for everything else",
        "most people forget it",
    )
    ask, answer = pick(
        rng,
        (
            "Which of these is the most important?",
            f"I would choose this one: {chosen[0]} The reason is that {reason}. The other tips are useful too, but they work better once this one has become a habit. Try it for two weeks and see how you feel.",
        ),
        (
            "Can you think of one more?",
            f"Yes. {rest[0]} {pick(rng, 'It is a small change', 'It takes only a few minutes', 'It may sound simple')}, but many people say that it made a difference. Together with the other tips it will help you to {goal}.",
        ),
        (
            "I have very little time. What now?",
            f"Then choose only one tip: {chosen[1]} {pick(rng, 'It needs less than ten minutes a day.', 'You can do it without any preparation.', 'It fits into every day.')} Put a note on the wall, so that you do not forget it. When it feels natural, you can add a second one.",
        ),
        (
            "Write this as a message to a friend.",
            f"Hi! I heard that you want to {goal}. {chosen[0]} {chosen[1]} That is what helped me most. {pick(rng, 'Tell me how it goes!', 'I am sure you can do it.', 'Let us talk about it soon.')}",
        ),
    )
    return conversation(question, text, ask, answer)


_DISHES: Final = (
    ("tomato soup", ("tomatoes", "an onion", "some basil"), ("Chop the onion and fry it in a little oil.", "Add the tomatoes and let them cook for twenty minutes.", "Blend everything and add the basil.")),
    ("vegetable rice", ("rice", "carrots", "peas"), ("Cook the rice in salted water.", "Fry the carrots and the peas for five minutes.", "Mix everything in the pan and season it.")),
    ("pancakes", ("flour", "milk", "two eggs"), ("Mix flour, milk, and eggs to a smooth dough.", "Let the dough rest for ten minutes.", "Fry thin pancakes in a hot pan until they are golden.")),
    ("potato salad", ("potatoes", "a cucumber", "yogurt"), ("Boil the potatoes and let them cool.", "Cut the potatoes and the cucumber into slices.", "Stir in the yogurt and add salt and pepper.")),
    ("lentil stew", ("lentils", "carrots", "a bay leaf"), ("Wash the lentils well.", "Cook them with the carrots and the bay leaf for half an hour.", "Add a little vinegar before serving.")),
    ("apple cake", ("apples", "butter", "sugar and flour"), ("Mix butter, sugar, and flour to a dough.", "Put the dough into a form and cover it with slices of apple.", "Bake the cake for forty minutes.")),
    ("noodles with mushrooms", ("noodles", "mushrooms", "cream"), ("Cook the noodles until they are just soft.", "Fry the mushrooms until they are brown.", "Add the cream, stir in the noodles, and serve at once.")),
)  # fmt: skip


def _cooking(rng: Random) -> Chat:
    dish, parts, steps = rng.choice(_DISHES)
    minutes = 5 * rng.randint(4, 12)
    question = pick(
        rng,
        f"How do I make {dish}?",
        f"Give me a simple recipe for {dish}.",
        f"I have {join_words(list(parts))}. What can I cook?",
        f"Write a recipe for {dish} for {number_word(rng.randint(2, 6))} people.",
    )
    text = (
        f"{pick(rng, f'You can make {dish}.', f'Here is a simple recipe for {dish}.', f'{capital(dish)} is easy to prepare.')}\n\nIngredients: {join_words(list(parts))}, salt, and a little oil\n\n"
        + "\n".join(f"{i}. {step}" for i, step in enumerate(steps, 1))
        + f"\n\n{pick(rng, 'It takes', 'You need', 'The whole dish takes')} about {minutes} minutes. {pick(rng, 'Enjoy your meal!', 'It tastes best when it is fresh.', 'Serve it with bread.')}"
    )
    ask, answer = pick(
        rng,
        (
            "What can I do with the leftovers?",
            f"You can keep the {dish} in the fridge for two days. Put it into a closed box when it is cold. {pick(rng, 'Warm it up slowly and add a little water.', 'It also tastes good cold.', 'You can mix it with fresh vegetables the next day.')} If you have a lot of it, you can also freeze a part.",
        ),
        (
            f"I do not have {parts[-1]}. What can I use instead?",
            f"That is no problem. You can leave out {parts[-1]} or use something similar that you have at home. {pick(rng, 'Fresh herbs are always a good idea.', 'A little lemon juice adds a fresh taste.', 'Some grated cheese would fit as well.')} The dish will taste different, but it will still be good. Taste it before you serve it and add salt if needed.",
        ),
        (
            "How long does it take in total?",
            f"It takes about {minutes} minutes. You need around {minutes // 2} minutes to prepare everything and {minutes - minutes // 2} minutes to cook. If you prepare {parts[0]} in advance, you save some time.",
        ),
    )
    return conversation(question, text, ask, answer)


_ROLES: Final = (
    ("a pirate captain", ("Arr,", "Ahoy,"), ("the open sea", "my old ship", "a chest full of gold"), "the wind decides where I go, and I have never liked straight lines"),
    ("a friendly robot", ("Beep.", "Hello, human."), ("a full battery", "clean data", "the smell of new oil"), "I was built to help, and every question makes me a little wiser"),
    ("a medieval knight", ("Hail, traveler,", "Good day, noble friend,"), ("my loyal horse", "a fair contest", "the honor of my king"), "courage means nothing without kindness to the weak"),
    ("a famous chef", ("Welcome to my kitchen,", "Ah, my friend,"), ("fresh herbs", "a sharp knife", "the first spoon of soup"), "good food needs time, patience, and a little love"),
    ("an astronaut on a space station", ("Greetings from orbit,", "Hello from above,"), ("the view of the blue planet", "floating to breakfast", "sixteen sunrises a day"), "from up here there are no borders, only clouds and light"),
    ("an old gardener", ("Come in, come in,", "Mind the roses,"), ("wet soil in the morning", "the first green of spring", "a shady bench"), "plants have taught me that nothing grows faster because you pull at it"),
    ("a detective", ("Interesting,", "I have been expecting you,"), ("a quiet street at night", "a good riddle", "a cup of black tea"), "the smallest detail is often the one that speaks loudest"),
    ("a wise owl", ("Hoo,", "Sit down on this branch,"), ("the silence of the forest", "the light of the moon", "a patient listener"), "those who listen twice speak once and speak well"),
    ("a time traveler", ("What year is it? Never mind,", "We have met before,"), ("old libraries", "the sound of steam engines", "a morning without a date"), "every small choice opens a door, and I have seen many of them"),
    ("a mountain guide", ("Tie your boots,", "Good morning,"), ("thin clear air", "a rope I can trust", "the silence on the summit"), "the mountain is patient, and so should we be"),
)  # fmt: skip


def _role_play(rng: Random) -> Chat:
    role, greetings, loves, motto = rng.choice(_ROLES)
    first, second_love, third = rng.sample(loves, 3)
    start = rng.choice(greetings)
    joined = start if start.endswith(".") else start.rstrip(",") + "!"
    question = pick(
        rng,
        f"Pretend to be {role}. What do you love most about your life?",
        f"Let us play: you are {role}, and I am your guest. Which part of the day do you like best?",
        f"Imagine you are {role}. Please introduce yourself.",
        f"Act as {role} and tell me what makes you happy.",
        f"You are {role}. What would you tell a young visitor?",
    )
    text = f"{joined} {pick(rng, 'You ask what moves me?', 'That is a fine question.', 'Let me think for a moment.', 'I am glad you ask.')} {pick(rng, 'I love', 'Nothing is better than', 'I could never live without')} {first}, and I smile whenever I think of {second_love}. {pick(rng, 'You must know that', 'I always say that', 'Over the years I have learned that')} {motto}. {pick(rng, 'Stay a while and listen.', 'Now tell me about yourself.', 'That is my whole secret.', 'And there is always more to discover.')}"
    other = pick(
        rng,
        "computers",
        "money",
        "the future",
        "modern cities",
        "growing old",
        "school",
        "luck",
        "friendship",
    )
    ask = pick(
        rng,
        f"What do you think about {other}?",
        f"And what is your opinion about {other}?",
        "What was the hardest day of your life?",
        "What advice would you give me?",
    )
    if other in ask:
        answer = f"{pick(rng, 'Ha,', 'Well,', 'Hmm,')} {other}! {pick(rng, 'I have thought about it on many long nights.', 'People like me see it in a different way.', 'I do not understand all of it, but I have an opinion.')} {pick(rng, 'It can be useful,', 'It has its place,', 'It may help some people,')} but it cannot replace {third}. In the end, {motto}."
    elif "hardest" in ask:
        answer = f"The hardest day? {pick(rng, 'It was long ago, and it still visits me in my dreams.', 'I do not speak of it often.', 'Everyone has such a day.')} I had lost {first}, or so I believed, and nobody could help me. {pick(rng, 'I waited for a whole night.', 'I walked until my feet hurt.', 'I almost gave up.')} Then I understood that {motto}. Since then I value {third} even more."
    else:
        answer = f"My advice is simple: never forget what you love. For me it is {third}, and for you it will be something else. {pick(rng, 'Take your time.', 'Do not listen to those who hurry.', 'Ask questions, even if they sound silly.')} And remember that {motto}. {pick(rng, 'Now go and try it.', 'The rest will follow.', 'You will do well.')}"
    return conversation(question, text, ask, answer)


def _daily_plan(rng: Random) -> Chat:
    who = person(rng)
    start = rng.randint(6, 9)
    tasks = rng.sample(
        (
            "answer the mail",
            "go for a run",
            "write the report",
            "call the bank",
            "buy groceries",
            "clean the kitchen",
            "meet a friend for lunch",
            "study for the exam",
            "repair the bicycle",
            "visit the library",
            "water the garden",
        ),
        4,
    )
    lengths = [rng.randint(1, 2) for _ in tasks]
    lines = []
    hour = start
    slots = []
    for task, length in zip(tasks, lengths, strict=True):
        lines.append(f"{hour}:00 - {hour + length}:00 {capital(task)}")
        slots.append((hour, task))
        hour += length
    question = f"{who.name} wants to {join_words([f'{task} ({length} hour{chr(115) if length > 1 else str()})' for task, length in zip(tasks, lengths, strict=True)])}. {pick(rng, f'Make a plan that starts at {start}:00.', f'Write a schedule beginning at {start}:00.')}"
    text = (
        f"{pick(rng, 'Here is a possible plan:', 'The day could look like this:', 'This schedule keeps the given order:')}\n\n"
        + "\n".join(lines)
        + f"\n\nThe plan ends at {hour}:00, so {who.name} needs {sum(lengths)} hours in total."
    )
    later = rng.randint(1, 2)
    if rng.random() < 0.5:
        ask = f"{who.name} gets up {number_word(later)} hour{'s' if later > 1 else ''} late. Move everything."
        moved = [
            f"{h + later}:00 - {h + later + n}:00 {capital(task)}"
            for (h, task), n in zip(slots, lengths, strict=True)
        ]
        answer = (
            f"Everything starts {number_word(later)} hour{'s' if later > 1 else ''} later now:\n\n"
            + "\n".join(moved)
            + f"\n\nThe new plan ends at {hour + later}:00."
        )
    else:
        index = rng.randrange(4)
        ask = f"At what time does {who.name} begin to {tasks[index]}?"
        answer = f"According to the plan, {who.name} begins to {tasks[index]} at {slots[index][0]}:00. This takes {lengths[index]} hour{'s' if lengths[index] > 1 else ''} and ends at {slots[index][0] + lengths[index]}:00."
    return conversation(question, text, ask, answer)


PRACTICAL_TEMPLATES: Final = (
    _travel,
    _travel,
    _advice,
    _advice,
    _advice,
    _cooking,
    _role_play,
    _role_play,
    _daily_plan,
)
