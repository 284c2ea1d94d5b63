"""Open requests about arbitrary subjects, each answered by one of a few fixed frames that name the subject."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.lexicon import lexicon
from specpilot.models.train.generators.wording import (
    CITIES,
    GOODS,
    JOBS,
    MEN,
    WOMEN,
    capital,
    conversation,
    pick,
)

__all__ = ["sample"]

_PLACES: Final = (
    *CITIES, "Japan", "Brazil", "Kenya", "Norway", "Canada", "Peru", "Italy", "the mountains", "the city",
    "a small village", "the countryside", "the desert", "an island", "the office", "the library", "a school",
)  # fmt: skip
_EVERYDAY: Final = (
    "music sports history science cooking travel friendship education health climate money energy language art "
    "theater cinema gardening sleep exercise stress nutrition business marketing leadership teamwork technology "
    "robots computers phones internet privacy security law justice politics elections taxes trade banks houses "
    "trains cars bicycles airplanes ships rivers oceans forests animals birds dogs cats horses fish insects plants "
    "flowers trees rain snow storms planets stars galaxies atoms molecules cells genes vaccines medicine doctors "
    "teachers students children parents families neighbors cities villages farms factories shops restaurants "
    "coffee tea bread cheese chocolate fruit vegetables novels poems songs paintings photographs museums games chess "
    "football running swimming hiking dancing writing reading listening speaking learning memory attention habits "
    "happiness fear courage kindness honesty trust time space light sound heat electricity magnets batteries"
).split()
_ADJECTIVES: Final = (
    "modern ancient famous simple complex healthy cheap expensive local global digital public private creative quiet "
    "busy happy difficult dangerous natural artificial renewable traditional professional personal beautiful strange"
).split()

# The frames. Each is fixed but for the subject, so the same words answer every request of its sort.
_ANSWER: Final = (
    "Here is a short answer about {s}.\n\n"
    "1. Start with the basics of {s}. It helps to know what it is and why it matters.\n"
    "2. Look at the most important parts one by one, and keep the details simple.\n"
    "3. Think about the good sides and the bad sides of {s}.\n"
    "4. Use a small example to see how it works in practice.\n\n"
    "In short, {s} is easier to understand if you take one step at a time."
)
_TEXT: Final = (
    "Here is a text about {s}.\n\n"
    "There are many things to say about {s}. It is part of our lives, and it can change the way we see the world. "
    "The first thing to notice is how simple it looks at the beginning. The second thing to notice is how much there "
    "is to learn.\n\n"
    "In the end, {s} is worth our time. I hope that this text helps you to see it in a new way."
)
_COMPARISON: Final = (
    "Here is a short comparison of {s} and {t}.\n\n"
    "1. The main point of {s} is that it is simple and easy to start with.\n"
    "2. The main point of {t} is that it gives more choices but takes more time.\n"
    "3. Both of them can be useful, and the best choice depends on your goal.\n\n"
    "In short, choose {s} if you want a simple way, and choose {t} if you want more choices."
)
_PLAN: Final = (
    "Here is a simple plan for {s}.\n\n"
    "1. Write down what you want to reach and how much time you have.\n"
    "2. Divide {s} into small steps and put them in a good order.\n"
    "3. Begin with the first step and check the result.\n"
    "4. Ask for help if something does not work.\n"
    "5. Look back at the end and write down what you have learned.\n\n"
    "With this plan, {s} will be easier, and you will not forget the important parts."
)
_PERSONA: Final = (
    "I am happy to talk about {s}.\n\n"
    "For me, the most important thing about {s} is to stay curious and to keep an open mind. I have learned that every "
    "day brings something new. Sometimes it is easy and sometimes it is hard, but I always do my best.\n\n"
    "Please ask me more about {s} if you want to know more."
)
_SOLUTION: Final = (
    "Let us solve this step by step.\n\n"
    "1. First, we write down what is given: {s}.\n"
    "2. Next, we look at what is asked and which facts are needed.\n"
    "3. Then, we use the facts one by one and check every step.\n\n"
    "Therefore, the answer follows from {s}."
)
_EXTRACTION: Final = (
    "Here is the result for the text about {s}.\n\n"
    "- Main subject: {s}\n"
    "- Main idea: the text describes {s} in a few words\n"
    "- Tone: neutral\n\n"
    "In short, the text is about {s}."
)

_REQUESTS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (_ANSWER, (
        "Explain {s}.", "What is {s}?", "Can you explain {s} to a beginner?", "How does {s} work?",
        "Describe {s} in simple words.", "Why is {s} important?", "What are the main causes of {s}?",
        "Tell me about {s} and how it changed {p}.", "What should I know about {s}?", "Discuss {s} and its effects.",
        "Provide insights into {s}.", "How do we measure {s}?", "What do you think about {s}?",
        "Explain the relation of {s} and daily life in {p}.", "Is {s} good or bad? Give reasons.",
        "Give three examples of {s}.", "Identify the main ideas behind {s} and say how they changed over the years.",
    )),
    (_TEXT, (
        "Write a blog post about {s}.", "Compose a short story about {s}.", "Write a poem about {s}.",
        "Compose an engaging article about {s}, highlighting what people in {p} think of it.",
        "Draft an email to my manager about {s}.", "Write a letter to {n} about {s}.",
        "Write a descriptive paragraph about {s}.", "Create a speech about {s} for a group of {j}s.",
        "Write a headline and a short text about {s}.", "Compose a song about {s} in {p}.",
        "Write an essay on {s} in fewer than 200 words.", "Could you write a message to {n} on the subject of {s}?",
        "Write a short introduction to {s}.", "Write a review of a book about {s}.",
    )),
    (_COMPARISON, (
        "Compare {s} and {t}.", "What is the difference between {s} and {t}?", "Which is better, {s} or {t}?",
        "Describe how {s} differs from {t}.", "Should I choose {s} or {t}?",
        "Discuss the pros and cons of {s} compared with {t}.", "How are {s} and {t} related?",
        "Explain the differences between {s} and {t} to a {j}.",
    )),
    (_PLAN, (
        "Help me plan {s}.", "Make a plan for {s} in {p}.", "How can I start with {s}?", "Give me some tips for {s}.",
        "What are the steps of {s}?", "I want to learn more about {s}. Where should I begin?",
        "Design a schedule for {s}.", "Suggest strategies for {s}.", "How do I prepare for {s}?",
        "I am a {j} and need advice on {s}.", "Give me feedback on my idea of {s}.", "How can I get better at {s}?",
    )),
    (_PERSONA, (
        "Pretend to be a {j} and talk about {s}.", "Imagine you are {n}, a {j} from {p}. What do you think of {s}?",
        "Please take the role of a {j}. Our first subject is {s}.", "Act as an expert on {s}.",
        "You are a {j} who loves {s}. Introduce yourself.", "Embrace the role of {n} and answer questions about {s}.",
        "Suppose you are {s}. Describe your day.", "Play the part of a {j}. Why do you like {s}?",
    )),
    (_SOLUTION, (
        "Solve this puzzle: {n} has {s} and {m} has {t}. Who has more?", "Given {s}, find {t}.",
        "{n} is next to {s}, and {m} is behind {t}. Where is {n}?", "If all {s} are {t}, what follows for {n}?",
        "A {j} from {p} has {k} boxes with {s}. How many are left if {m} takes one?",
        "Use logic to answer: is {s} the same as {t}?", "Some people in {p} like {s}. Can we say that they like {t}?",
        "You see {s} and {t} in a room with {k} doors. Which door is right?",
    )),
)  # fmt: skip
_EXTRACTS: Final = (
    "Extract the main points from the text below.", "Summarize the following paragraph.", "Rewrite this text.",
    "Find all names in the text and return them as a list.", "Correct the mistakes in this paragraph.",
    "What is the tone of this text?", "Read the paragraph and answer in one sentence: what is it about?",
    "Evaluate the following text.", "Identify the subject of the passage and give a short explanation.",
)  # fmt: skip
_CONTEXTS: Final = (
    "Keep it short.", "Use simple words.", "Please be clear and friendly.", "Use no more than five sentences.",
    "The readers are {j}s.", "I live in {p}.", "Add one example.", "Answer in three parts.", "Be creative.",
    "Mention {t} too.", "My friend {n} asked me about this.", "I know little about {t}.", "Think about {p} as well.",
)  # fmt: skip
_FOLLOW_UPS: Final = (
    "Now make it shorter.", "Rewrite your previous answer.", "Can you explain the second point?", "Why?",
    "Now do the same for {t}.", "Take your answer and add {t}.", "What about {t}?", "Give me another example.",
    "Alter your previous response so that a {j} can understand it.", "Explain it to {n}.", "Are you sure?",
    "How would this change in {p}?", "Could you write that again with {t} in mind?", "Say more about {t}.",
    "Start every sentence with the same letter.", "Evaluate your own answer.", "What is the most important step?",
)  # fmt: skip
_AGAIN: Final = (
    "Here is a new version of the answer about {s}.\n\n"
    "1. The most important point about {s} stays the same.\n"
    "2. The words are simpler, and the order is clearer.\n"
    "3. Every part is short, so that it is easy to read.\n\n"
    "In short, {s} is easier to understand if you take one step at a time."
)


def _subject(rng: Random) -> str:
    lex = lexicon()
    noun = rng.choice(_EVERYDAY) if rng.random() < 0.35 else rng.choice(lex.nouns)
    adjective = rng.choice(_ADJECTIVES) if rng.random() < 0.4 else rng.choice(lex.adjectives)
    other = rng.choice(_EVERYDAY) if rng.random() < 0.35 else rng.choice(lex.nouns)
    word, second = rng.choices(lex.words, k=2)
    return rng.choice((
        noun, f"{adjective} {noun}", f"{adjective} {noun}", f"the {noun} of {other}", f"{noun} and {other}",
        f"the {adjective} {noun}", f"{noun} in {rng.choice(_PLACES)}", f"{word} {second}", f"{word} {noun} {second}",
        f"a {adjective} {noun} for {other}", f"the {word} of {adjective} {second}", rng.choice(GOODS)[1],
        f"{adjective} {word} and {second}", f"{rng.choice(WOMEN)}'s {noun}", f"{noun} with {rng.choice(GOODS)[1]}",
    ))  # fmt: skip


def _paragraph(rng: Random, subject: str) -> str:
    lex = lexicon()
    sentences = [
        rng.choice(lex.sentences)
        if rng.random() < 0.5
        else capital(" ".join(rng.choices(lex.words, k=rng.randint(5, 12)))) + "."
        for _ in range(rng.randint(1, 3))
    ]
    opening = pick(
        rng,
        f"{capital(subject)} is in {rng.choice(_PLACES)}.",
        f"This is about {subject}.",
        f"We saw {subject}.",
    )
    return " ".join([opening, *sentences])


def sample(rng: Random) -> Chat:
    """One or two turns."""
    s, t = _subject(rng), _subject(rng)
    n, m = rng.sample((*WOMEN, *MEN), 2)
    fields = {
        "s": s,
        "t": t,
        "n": n,
        "m": m,
        "p": rng.choice(_PLACES),
        "j": rng.choice(JOBS),
        "k": rng.randint(2, 9),
    }
    if rng.random() < 0.14:
        frame = _EXTRACTION
        quote = _paragraph(rng, s)
        ask = pick(rng, *_EXTRACTS)
        question = pick(rng, f"{ask}\n\n{quote}", f'{ask}\n"{quote}"', f"{quote}\n\n{ask}")
    else:
        frame, asks = rng.choice(_REQUESTS)
        question = rng.choice(asks).format(**fields)
        extra = [c.format(**fields) for c in rng.sample(_CONTEXTS, rng.choice((0, 0, 1, 1, 2)))]
        if rng.random() < 0.15:
            extra.insert(0, rng.choice(lexicon().sentences))
        question = " ".join([question, *extra])
        if rng.random() < 0.1:
            question = f"{rng.choice(lexicon().sentences)} {question}"
    answer = frame.format(**fields)
    if rng.random() < 0.5:
        return conversation(question, answer)
    follow_up = rng.choice(_FOLLOW_UPS)
    about = t if "{t}" in follow_up else s
    return conversation(question, answer, follow_up.format(**fields), _AGAIN.format(s=about))
