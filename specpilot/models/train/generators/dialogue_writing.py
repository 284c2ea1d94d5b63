"""Two-turn dialogues about writing: emails, stories, descriptions, reviews, corrections."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.wording import (
    CITIES,
    Person,
    capital,
    conversation,
    join_words,
    people,
    person,
    pick,
)

__all__ = ["WRITING_TEMPLATES"]

_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
# (purpose, reason sentences, request sentences)
_MAILS: Final = (
    ("ask for feedback on a report", ("I have finished the first version of the quarterly report.", "The report covers sales, costs, and plans for the next months."), ("Could you tell me whether the data is clear and the conclusion is convincing?", "I would be glad to hear your honest opinion about the structure.")),
    ("postpone a meeting", ("Something urgent has come up on our side.", "Two members of the team are ill this week."), ("Would it be possible to move our meeting to next week?", "Please let me know which day would suit you.")),
    ("thank a colleague for help", ("Thank you very much for your help with the presentation.", "Your ideas made the slides much better."), ("I would like to return the favor soon.", "Please let me know if I can do something for you.")),
    ("apologize for a late delivery", ("I am sorry that your order has not arrived yet.", "A storm has delayed our trucks for two days."), ("We will send the parcel again at no cost.", "You will also receive a small discount for your next order.")),
    ("apply for a summer job", ("I read about the open position on your website.", "I have worked in a similar place before and enjoy working with people."), ("I would be happy to introduce myself in a short interview.", "My documents are attached to this message.")),
    ("invite a friend to a party", ("I am going to celebrate my birthday in our garden.", "There will be music, good food, and a small fire in the evening."), ("Can you come and bring a salad?", "Please tell me by Sunday whether you have time.")),
    ("complain about a noisy hotel room", ("I stayed in your hotel last weekend.", "Unfortunately the room was next to a building site and I could not sleep."), ("I would appreciate a partial refund.", "Please tell me how you want to solve this problem.")),
    ("ask a teacher for more time", ("I have been ill for several days and could not work on my project.", "I have already collected all the material."), ("May I hand in the project three days later?", "I would be grateful for a short answer.")),
    ("propose a new idea to a manager", ("Our customers often ask the same questions by phone.", "A short help page could answer most of them."), ("May I show you a first sketch this week?", "I am sure that it would save time for the whole team.")),
    ("resign from a club", ("I have been a member of the club for four years.", "My new job leaves me very little free time."), ("Please end my membership at the end of the month.", "I would like to stay in touch and visit from time to time.")),
    ("introduce a new team member", ("I am happy to tell you that our team is growing.", "Our new colleague has worked in customer service for six years."), ("Please give our new colleague a warm welcome.", "We will have a small breakfast together in the kitchen.")),
    ("remind a customer of an open bill", ("We hope that you are happy with our service.", "Our records show that the last bill has not been paid yet."), ("Please transfer the amount within ten days.", "If you have already paid, please ignore this message.")),
)  # fmt: skip


def _email(rng: Random) -> Chat:
    writer, reader = people(rng, 2)
    purpose, reasons, requests = rng.choice(_MAILS)
    day = rng.choice(_DAYS)
    formal = rng.random() < 0.6
    hello = f"Dear {reader.name}," if formal else pick(rng, f"Hi {reader.name},", f"Hello {reader.name},")
    bye = (
        pick(rng, "Kind regards,", "Best regards,", "Yours sincerely,")
        if formal
        else pick(rng, "See you soon,", "Best wishes,", "Cheers,")
    )
    small = pick(
        rng,
        "I hope you are doing well.",
        "I hope this message finds you well.",
        "I hope you had a good start to the week.",
        "It was nice to see you last week.",
    )
    closing = pick(
        rng,
        f"If you have any questions, you can reach me until {day}.",
        f"I am in the office on {day} and happy to talk.",
        f"It would be great to hear from you by {day}.",
        "Thank you for your time.",
    )
    subject = f"Subject: {capital(purpose)}"
    body = f"{subject}\n\n{hello}\n\n{small} {' '.join(reasons)} {' '.join(requests)}\n\n{closing}\n\n{bye}\n{writer.name}"
    question = pick(
        rng,
        f"Write an email to {reader.name} to {purpose}.",
        f"Draft a {'formal' if formal else 'friendly'} email to {purpose}. It goes to {reader.name} and is signed by {writer.name}.",
        f"My name is {writer.name}. I need to {purpose}. Can you write a message to {reader.name}?",
        f"Help me write an email in order to {purpose}. The reader is called {reader.name}.",
    )
    ask, answer = pick(
        rng,
        (
            pick(rng, "Make it shorter.", "That is too long. Can you shorten it?"),
            f"{hello}\n\n{reasons[0]} {requests[0]}\n\n{bye}\n{writer.name}",
        ),
        (
            pick(rng, "Add a sentence about a phone call.", "Please offer a phone call as well."),
            f"{subject}\n\n{hello}\n\n{small} {' '.join(reasons)} {' '.join(requests)} If it is easier for you, we can also talk on the phone on {day}.\n\n{bye}\n{writer.name}",
        ),
        (
            pick(rng, "What could be better in this message?", "Do you see a weak point in it?"),
            f"The message is polite and says clearly what it is about. The reason comes first and the request follows, so {reader.name} can understand it quickly. It could be improved by a more specific subject line and by one more detail about the date. The tone is {'formal' if formal else 'friendly'}, which fits the situation.",
        ),
        (
            pick(rng, "Write the answer of the reader.", f"How could {reader.name} reply?"),
            f"{pick(rng, 'Hello', 'Dear')} {writer.name},\n\nthank you for your message. {pick(rng, 'I understand your situation and agree with your proposal.', 'That is fine with me.', 'I have read it carefully and will take care of it.')} {pick(rng, f'Let us talk about the details on {day}.', 'I will come back to you soon.', 'Please tell me if anything changes.')}\n\n{pick(rng, 'Best regards,', 'Kind regards,')}\n{reader.name}",
        ),
    )
    return conversation(question, body, ask, answer)


_PLACES: Final = (
    ("an old lighthouse", "the sea crashed against the rocks"), ("a small village in the mountains", "snow covered every roof"),
    ("a busy harbor", "ships came and went all day"), ("a quiet library", "the clock ticked above the shelves"),
    ("a forest near the river", "fog lay between the trees"), ("a station at the edge of the desert", "the wind carried sand through the streets"),
    ("a house with a blue door", "the garden was full of wild roses"), ("a town with a hundred bridges", "lamps were mirrored in the water"),
    ("a research station on the ice", "the sun did not set for weeks"), ("an island without a name", "birds circled over the cliffs"),
)  # fmt: skip
_FINDS: Final = (
    ("a letter without a sender", "it was addressed to somebody who had not been born yet"), ("a key made of glass", "it fitted no door in the house"),
    ("a map with a missing corner", "someone had marked a place in red ink"), ("a clock that ran backwards", "it showed a different day each morning"),
    ("a box full of old photographs", "the same stranger stood in every picture"), ("a small silver whistle", "no one could hear its sound except the dogs"),
    ("a diary in a foreign language", "the last page was written in a trembling hand"), ("a compass that did not point north", "its needle always turned to the same hill"),
)  # fmt: skip
_WISHES: Final = (
    ("wanted to know the truth", "asked every neighbor about it"), ("could not sleep that night", "lit a lamp and studied it until dawn"),
    ("decided to keep it secret", "hid it under a loose board"), ("felt that it was important", "packed a bag and left before sunrise"),
    ("remembered an old story", "searched the attic for an answer"), ("was afraid at first", "took a deep breath and went on"),
)  # fmt: skip
_ENDS: Final = (
    "In the end the answer was simple, and it had been there all the time.", "When the morning came, nothing was the same, and yet everything was in its place.",
    "Years later people still told the story, although nobody believed it.", "And so a secret became a friendship that lasted a lifetime.",
    "From that day on, the door was never locked again.", "It was not the end of the journey but the beginning of a better one.",
)  # fmt: skip


def _story_text(rng: Random, hero: Person, friend: Person) -> tuple[str, str]:
    place, mood = rng.choice(_PLACES)
    find, detail = rng.choice(_FINDS)
    wish, deed = rng.choice(_WISHES)
    job = pick(
        rng,
        "keeper",
        "painter",
        "doctor",
        "fisher",
        "student",
        "baker",
        "traveler",
        "teacher",
        "musician",
        "mechanic",
    )
    start = pick(
        rng,
        f"{hero.name} was a {job} and lived in {place}. It was a time when {mood}.",
        f"In {place} there lived a {job} called {hero.name}. Outside, {mood}.",
        f"Every evening {hero.name}, a young {job}, walked through {place}, where {mood}.",
    )
    middle = f"One day {hero.he} found {find}. {capital(detail)}. {hero.name} {wish}. {hero.He} {deed}."
    help_line = pick(
        rng,
        f'{friend.name} laughed at first. "You should leave it alone," {friend.he} said. But then {friend.he} saw it too.',
        f"Only {friend.name} listened. Together they followed every trace, step by step.",
        f'"I have seen this before," {friend.name} whispered. {friend.His} face had turned pale.',
        f"{friend.name} came along, because good friends do not ask many questions.",
    )
    return f"{start} {middle} {help_line} {rng.choice(_ENDS)}", find


def _story(rng: Random) -> Chat:
    hero, friend = people(rng, 2)
    text, find = _story_text(rng, hero, friend)
    question = pick(
        rng,
        f"Write a short story about {find}.",
        f"Tell me a story with a person called {hero.name} and {find}.",
        f"Write a short story in which {hero.name} finds {find}. It should begin quietly.",
        f"Please write a mysterious story. The main characters are {hero.name} and {friend.name}.",
        "Write a short and surprising story for a magazine.",
    )
    kind = rng.randrange(4)
    if kind == 0:
        ask, answer = (
            pick(rng, "Continue the story.", "What happens next?"),
            (
                f"A week later {hero.name} and {friend.name} met again. {capital(find)} lay between them on the table. "
                f'"{pick(rng, "We cannot keep it", "Somebody is looking for it", "There must be another one", "It has changed since yesterday")}," {hero.he} said. '
                f"{friend.name} {pick(rng, 'nodded slowly', 'looked out of the window', 'did not answer at once')}. {pick(rng, 'Far away a bell rang.', 'Then there was a knock at the door.', 'It had begun to rain.')} {rng.choice(_ENDS)}"
            ),
        )
    elif kind == 1:
        ask, answer = (
            pick(rng, "Give the story a title and explain it.", "What would be a good title?"),
            (
                f'I would call it "{pick(rng, "The secret of the", "The story of the", "The night of the")} {find.split(" ", 1)[1]}". The title names the object that changes the life of {hero.name}. It makes the reader curious and does not tell too much. The ending stays open until the last sentence.'
            ),
        )
    elif kind == 2:
        ask, answer = (
            pick(rng, f"Describe {hero.name} in more detail.", f"What kind of person is {hero.name}?"),
            (
                f"{hero.name} is {pick(rng, 'a calm and patient person', 'curious and a little stubborn', 'shy, but braver than most people think', 'a dreamer with a sharp mind')}. {hero.He} {pick(rng, 'speaks slowly and listens carefully', 'has dark hair and quick hands', 'always carries a small notebook', 'likes the early hours of the day')}. {pick(rng, 'People in the village trust', 'Most neighbors like', 'Only a few people really know')} {hero.him}. {friend.name} is {hero.his} closest friend, and the two have shared many secrets. Deep inside, {hero.he} longs for {pick(rng, 'a great journey', 'an answer to an old question', 'a place to call home')}."
            ),
        )
    else:
        ask, answer = (
            pick(rng, "Summarize the story in two sentences.", "Now tell it in only two sentences."),
            (
                f"{hero.name} finds {find} and wants to understand where it comes from. With the help of {friend.name}, {hero.he} learns that some questions change the person who asks them."
            ),
        )
    return conversation(question, text, ask, answer)


_PRODUCTS: Final = (
    ("a light travel backpack", "travelers", ("weighs less than a bottle of water", "has room for a laptop and two shirts", "keeps everything dry in the rain")),
    ("a quiet kitchen blender", "families", ("mixes soup in less than a minute", "is easy to clean", "hardly makes a sound")),
    ("a solar garden lamp", "gardeners", ("charges during the day", "shines for ten hours", "needs no cable at all")),
    ("a wooden building set for children", "parents", ("is made of local wood", "grows with new parts", "trains patience and imagination")),
    ("an app for learning birds", "hikers", ("knows five hundred voices", "works without a network", "keeps a diary of everything you hear")),
    ("a folding city bicycle", "commuters", ("fits under a desk", "folds in ten seconds", "rides as smoothly as a large bicycle")),
    ("a warm wool blanket", "everyone who likes long evenings", ("comes from small farms", "is soft on the skin", "lasts for many years")),
    ("a reusable coffee cup", "people on the go", ("keeps drinks hot for three hours", "closes tightly", "replaces hundreds of paper cups")),
)  # fmt: skip


def _product(rng: Random) -> Chat:
    name, group, merits = rng.choice(_PRODUCTS)
    order = rng.sample(merits, 3)
    short = name.split(" ", 1)[1]
    question = pick(
        rng,
        f"Write a product description for {name}.",
        f"I want to sell {name}. Write a short text for my shop.",
        f"Create an advertisement for {name} that speaks to {group}.",
        f"Write a persuasive text about {name}.",
    )
    text = (
        f"{pick(rng, 'Meet', 'Say hello to', 'This is', 'Discover')} {name} made for {group}. It {order[0]} and {order[1]}. "
        f"{pick(rng, 'Best of all, it', 'And there is more: it', 'What is more, it')} {order[2]}. {pick(rng, 'Once you have tried it, you will not want to miss it.', 'It is a small thing that makes every day a little better.', 'It is simple, solid, and made to last.')} {pick(rng, 'Order today and try it for thirty days.', 'Visit our shop and see it for yourself.', 'Give it to a friend or keep it for yourself.')}"
    )
    ask, answer = pick(
        rng,
        (
            "Give me three short slogans for it.",
            f"Here are three slogans:\n\n1. {capital(short)}: it simply {order[0]}.\n2. Made for {group}.\n3. The one that {order[2]}.",
        ),
        (
            "Write a customer review with four stars.",
            f"Four out of five stars. I bought this {short} two months ago, and I use it nearly every day. It {order[0]}, just as promised, and it {order[1]}. I take away one star because the delivery took a week. {pick(rng, 'I would buy it again.', 'My family likes it too.', 'All in all, I am very happy with it.')}",
        ),
        (
            "Make the tone more formal.",
            f"We are pleased to present {name}. The product {order[0]}. In addition, it {order[1]} and {order[2]}. It has been designed for {group} and meets high standards of quality. We would be glad to send you further information.",
        ),
        (
            "Which weakness should the text mention?",
            f"An honest text could mention that {name} is not the cheapest choice. A customer who only looks at the price may prefer another product. It is better to explain why it costs more: it {order[0]} and {order[2]}. Honest words build trust, and trust is good for {pick(rng, 'a small shop', 'every brand', 'long-term success')}.",
        ),
    )
    return conversation(question, text, ask, answer)


_ERRORS: Final = (
    ("She go to school every day.", "She goes to school every day.", "After she, the verb in the present tense needs the ending -es."),
    ("I have saw that movie before.", "I have seen that movie before.", "The perfect tense is formed with the past participle seen."),
    ("There is many people in the park.", "There are many people in the park.", "The noun people is plural, so the verb must be are."),
    ("He don't like coffee.", "He doesn't like coffee.", "The third person singular uses doesn't."),
    ("We was late for the train.", "We were late for the train.", "The subject we takes the form were."),
    ("This book is more better than that one.", "This book is better than that one.", "Better is already the comparative form."),
    ("Yesterday I eat a large pizza.", "Yesterday I ate a large pizza.", "The word yesterday asks for the past tense."),
    ("My brother is taller then me.", "My brother is taller than me.", "Comparisons use than, while then refers to time."),
    ("The informations are helpful.", "The information is helpful.", "Information has no plural in English."),
    ("Its raining since this morning.", "It has been raining since this morning.", "With since, English uses the present perfect continuous."),
    ("They has a big house near the lake.", "They have a big house near the lake.", "The subject they takes the form have."),
    ("I am looking forward to meet you.", "I am looking forward to meeting you.", "After looking forward to, the verb takes the ending -ing."),
    ("The childrens are playing outside.", "The children are playing outside.", "Children is already plural."),
    ("Could you explain me this word?", "Could you explain this word to me?", "The verb explain needs the preposition to before the person."),
)  # fmt: skip


def _correction(rng: Random) -> Chat:
    chosen = rng.sample(_ERRORS, rng.randint(2, 4))
    wrong = " ".join(item[0] for item in chosen)
    right = " ".join(item[1] for item in chosen)
    question = pick(
        rng,
        f"Correct the grammar of the following text: {wrong}",
        f"Please fix all mistakes in this text.\n\n{wrong}",
        f'Which mistakes are in this text? Please write it correctly:\n"{wrong}"',
        f"I am learning English. Is this correct? {wrong}",
    )
    extra = rng.choice([item for item in _ERRORS if item not in chosen])
    ask, answer = pick(
        rng,
        ("Explain each change.", "\n".join(f"{i}. {item[1]} {item[2]}" for i, item in enumerate(chosen, 1))),
        (
            f"And this one? {extra[0]}",
            f"The correct sentence is: {extra[1]} {extra[2]} {pick(rng, 'This is a common mistake.', 'Many learners find this difficult.', 'You will get used to it with practice.')}",
        ),
    )
    return conversation(
        question,
        f"{pick(rng, 'Here is the corrected text:', 'The corrected version is:', 'This is the text without mistakes:')}\n\n{right}",
        ask,
        answer,
    )


def _review(rng: Random) -> Chat:
    who = person(rng)
    city = rng.choice(CITIES)
    kind, nouns = pick(
        rng,
        ("restaurant", ("the soup", "the bread", "the service", "the terrace")),
        ("hotel", ("the view", "the bed", "the breakfast", "the staff")),
        ("museum", ("the old maps", "the guide", "the garden", "the cafe")),
        ("theater", ("the stage", "the music", "the main actor", "the costumes")),
    )
    liked = rng.sample(nouns, 2)
    other = rng.choice([noun for noun in nouns if noun not in liked])
    adjective = pick(rng, "wonderful", "excellent", "charming", "surprisingly good", "memorable")
    question = pick(
        rng,
        f"Write a review of a small {kind} in {city}.",
        f"{who.name} visited a {kind} in {city}. Write {who.his} review.",
        f"I loved a {kind} in {city}. Help me to write a positive review.",
    )
    text = f"Last {pick(rng, 'weekend', 'month', 'summer', 'Sunday')} I visited a small {kind} in {city}, and it was {adjective}. {capital(liked[0])} and {liked[1]} impressed me most. Everything felt {pick(rng, 'calm and friendly', 'personal and warm', 'well prepared', 'fresh and lively')}. Only {other} could be {pick(rng, 'a little better', 'improved', 'more modern')}, but that did not spoil the day. {pick(rng, 'I will certainly come back.', 'I can recommend it to everyone.', 'It is worth the trip.')}"
    ask, answer = pick(
        rng,
        (
            "Now write a negative version.",
            f"I had high hopes for this {kind} in {city}, but the visit was disappointing. {capital(liked[0])} and {liked[1]} were below average. We waited for a long time, and nobody apologized. {capital(other)} was the only bright spot. I would not go there again.",
        ),
        (
            "Extract what the writer liked and disliked.",
            f"Liked: {join_words(liked)}\nDisliked: {other}\nPlace: {kind} in {city}\nOverall opinion: positive",
        ),
        (
            "Rate the review on a scale from 1 to 5 and give a reason.",
            "I would rate it with 5, since the writer recommends the place without doubt. The words are warm and positive. There is only one small point of criticism, and it is expressed politely.",
        ),
    )
    return conversation(question, text, ask, answer)


WRITING_TEMPLATES: Final = (_email, _email, _story, _story, _story, _product, _correction, _review)
