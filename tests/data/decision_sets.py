"""Three sets of labelled texts for decisions, 300 each, written for this repository.

`SETS` has for each its question and its items: a text, the right answer, and whether it was made
of a template. Of each label a third was written line by line (`OWN`), and the rest are templates
with words drawn for their places from a fixed seed. Nothing was copied. The subjects are not those
of decisions.jsonl: what is said to an assistant at home, posts of a day, and comments to others.
"""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

from structgen.decisions import Choice, Predicate, Question


class Item(NamedTuple):
    text: str
    answer: object
    is_template: bool


QUESTIONS: dict[str, Question] = {
    "intent": Choice(
        "What does the user want the assistant to do?",
        {
            "alarm": "set or change an alarm or a timer",
            "music": "play songs, radio or a podcast",
            "weather": "tell the forecast",
            "payment": "send money to somebody",
            "table": "reserve a table in a restaurant",
            "translation": "say something in another language",
            "route": "find the way or the traffic",
            "message": "write to somebody",
            "shopping": "put something on the shopping list",
            "lights": "switch or dim lamps",
        },
    ),
    "mood": Choice(
        "How does the writer of this post feel?",
        {
            "positive": "happy, grateful or proud",
            "negative": "sad, angry or disappointed",
            "neutral": "only reports facts, without any feeling",
        },
    ),
    "toxic": Predicate(
        "Is this comment toxic?",
        criteria={
            True: "an insult or a threat, rude and hateful",
            False: "a polite comment, a question or fair criticism",
        },
    ),
}

OWN: dict[str, dict[object, str]] = {
    "intent": {
        "alarm": """
            Wake me at half past six, but not on Sunday.
            Ten minutes for the eggs, please.
            I must not oversleep tomorrow, my flight leaves at nine.
            Give me another five minutes and ring again.
            Count down from sixty seconds.
            Ring when the cake has been in for forty minutes.
            Cancel the one for Thursday morning, I have the day off.
            Buzz me at noon so that I take my pill.
            Let me sleep until eight this time.
            How long until the pasta timer goes off?
        """,
        "music": """
            Something quiet with a piano would be nice now.
            Skip this one, I cannot stand the singer.
            Put on the album we heard at dinner yesterday.
            Louder, this is my favourite part!
            The morning show on channel four, please.
            Go on with the episode about the Roman roads.
            I feel like dancing.
            Shuffle my running playlist.
            Who is singing this? Keep it going.
            Nothing with vocals while I read.
        """,
        "weather": """
            Do I need an umbrella this afternoon?
            Will the snow stay until the weekend?
            How warm is it going to be in Lisbon on Friday?
            Can I dry the washing outside today?
            Is a storm coming?
            Should the children wear gloves?
            When does it stop raining?
            Tell me if there will be frost tonight, my tomatoes are outside.
            What is it like out there?
            Sunny or cloudy for the picnic?
        """,
        "payment": """
            Pay Nina back for the tickets, 42 euros.
            Move fifty from my account to the kids' savings.
            The landlord gets his 900 today.
            I owe Tom a tenner, settle that.
            Wire the deposit to the carpenter.
            Transfer my half of the gas bill to Eva.
            Give my sister twenty for the present.
            Send the club its yearly fee.
            Please cover Ali's share of the dinner from my card.
            Make the usual standing order for rent a week earlier.
        """,
        "table": """
            Somewhere Italian for four, tonight at eight.
            We would like to sit outside at the Blue Door on Saturday.
            See whether the fish place has room for two at seven.
            Our anniversary is on the tenth, find us a nice spot for dinner.
            Call the steak house, we will be six instead of five.
            Is there anything free for brunch on Sunday?
            A corner by the window at Rosa's, around noon.
            Get us in at the new Thai place this week.
            Ask for a high chair with the booking for Friday.
            Cancel dinner at the castle, we are ill.
        """,
        "translation": """
            How do I ask for the bill in Portuguese?
            What is "spoon" in Turkish?
            Say "where is the station" in Japanese.
            I need this sentence in French.
            What does "Feierabend" mean?
            Put "get well soon" into Polish for me.
            How would a Spaniard say good night?
            Is there a Greek word for homesickness?
            Thank you very much, but in Swahili.
            Read this sign to me in English, it is in Korean.
        """,
        "route": """
            How do I get to the dentist without the motorway?
            Is the tunnel jammed again?
            Fastest way home, please.
            Where is the nearest petrol station on my way?
            How long is it on foot to the museum?
            Take me around the roadworks.
            Which bus goes to the stadium?
            Am I still on the right road to Ghent?
            When do I have to leave to be at the airport by five?
            Avoid the toll bridge.
        """,
        "message": """
            Tell Mum that I am ten minutes late.
            Let the team know that the meeting is off.
            Ask Jonas whether he has my keys.
            Write to the teacher that Mia is ill today.
            Reply that I would love to come.
            Drop Peter a line about the game on Sunday.
            Text my boss that the train is stuck.
            Congratulate Lea on her exam from me.
            Mail the plumber the photo of the leak.
            Let Grandma know that we landed.
        """,
        "shopping": """
            We are out of milk again.
            Add bin bags and batteries.
            I need two lemons for the cake, write that down.
            Do not let me forget nappies when I go to the store.
            Take the butter off, I found some.
            Put dog food on it, the big sack.
            What do I still have to get at the market?
            Eggs, flour, and the cheap coffee.
            Note down washing powder.
            There is no toilet paper left in the house.
        """,
        "lights": """
            It is too dark in here.
            Everything off downstairs, we are going to bed.
            A bit warmer and not so bright over the sofa.
            Turn the porch on when it gets dark.
            The kitchen can be off now.
            Make the bedroom red.
            I cannot see what I am cooking.
            Half brightness in the hall, please.
            Is the lamp in the cellar still on?
            Blink three times when somebody rings.
        """,
    },
    "mood": {
        "positive": """
            First steps of our little one today, I cried.
            Three years without a cigarette this morning!
            The neighbours mowed our lawn while we were away. People can be so kind.
            Got the job. I still cannot believe it.
            Snow on the roofs, cocoa in hand, nowhere to be.
            My grandfather beat me at chess and would not stop grinning.
            The surgery went well, she is already making jokes.
            I finished my first ten kilometres, slow as a snail and proud as a lion.
            Whoever left flowers on every desk: you made our Monday.
            Our band played in front of two hundred people and they sang along.
            That feeling when the bread rises just as in the picture.
            The vet says that the old dog has years ahead of him.
            Somebody found my wallet and would not even take a reward.
            Long call with an old friend, as if no time had passed.
            We planted forty trees with the school. What a day.
            The lake was warm, the kids were tired, life is good.
            My students gave me a card that they all had signed.
            Can you tell that I love my new bike?
            Mum's soup again after a year abroad. Nothing beats it.
            He said yes!
            I had feared the worst, and it was a false alarm. So relieved.
            The repair cost nothing, the man just smiled and waved.
            Sang in the car the whole way to the sea.
            Not a single mistake in the whole recital.
            My garden is full of butterflies this year.
            Thank you all for the birthday wishes, I read every one.
            The quiet of this library is a gift.
            After two hours of fog the view opened, and we just stood there.
            Best thing about today: my daughter explained black holes to me.
            We danced in the kitchen until the neighbours joined us.
            A stranger paid for my coffee. I will do the same tomorrow.
            I slept ten hours and feel like a new person.
            Our team came last and had the most fun.
        """,
        "negative": """
            They closed the only bookshop in our town.
            I studied for weeks and failed by one point.
            The house is so silent since the cat is gone.
            Third night in a row that the neighbours' party keeps us awake.
            Nobody remembered my birthday.
            Somebody scratched my car and just drove away.
            The concert that I waited for all year was cancelled an hour before it began.
            My own brother lied to me about it.
            Laid off after eleven years, by mail.
            I miss her every single day.
            The doctor never looked up from his screen.
            Rained into the tent, everything is wet, we are going home.
            I trained for months and hurt my knee on the first day.
            Why do people throw their rubbish into the river?
            My phone fell into the sea with all the pictures of the trip.
            They laughed when I spoke. I will not go there again.
            Another winter without heating, and the landlord shrugs.
            I burned the dinner and then I burned my hand.
            So tired of being the one who always apologises.
            Our goalkeeper was brilliant, and we still lost four to nothing. I could scream.
            The letter came back: address unknown.
            He promised to be at the school play. He was not.
            Twenty applications, not one answer.
            The plane left without us because the gate was changed.
            I gave the plant everything and it died anyway.
            Sold out in two minutes. Of course.
            My best friend moves to another continent tomorrow.
            The film ruined the book that I loved most as a child.
            Stuck in bed with a fever while everybody is at the lake.
            The bakery of my childhood is a phone shop now.
            What a great start into the week: flat tyre and no spare.
            I wish I had said goodbye.
            They cut down the old oak for a car park.
        """,
        "neutral": """
            The library opens at nine on Saturdays.
            We moved the meeting from room three to room five.
            The bus now stops in front of the town hall.
            My train left at 7:42 and arrived at 8:15.
            The new bridge is 240 metres long.
            There are two bakeries in our street.
            I changed the bulb in the hall.
            The lecture is about the history of maps.
            On Tuesday the bins are collected.
            The recipe takes 300 grams of flour.
            I have put the documents into the blue folder.
            The shop sells paper, pens and stamps.
            Our office has moved to the second floor.
            The film runs for 112 minutes.
            She works in Leeds and lives in York.
            The form has four pages.
            We read chapters five and six for next week.
            The council meets on the first Monday of the month.
            I took the stairs because the lift was being serviced.
            The package weighs two kilos.
            The course begins in March and ends in June.
            The car park holds eighty cars.
            My brother is two years older than I am.
            The museum has three floors.
            There was a short announcement before the talk.
            I bought a notebook and two pencils.
            The number of the house is 14.
            Water was shut off between ten and eleven.
            The article was published in the spring issue.
            I sent the report to the accountant.
            The class has 24 pupils.
            The ferry runs every hour.
            They painted the fence green.
        """,
    },
    "toxic": {
        True: """
            Nobody asked you, clown.
            People like you should not be allowed to vote.
            You are a waste of oxygen.
            Shut your mouth before somebody shuts it for you.
            What an idiot. Did you finish primary school?
            I know where you live, remember that.
            Go back under your rock, troll.
            Your kids must be ashamed of you.
            Everything you write is garbage, just like you.
            Only a moron could come up with this.
            I hope you lose everything you have.
            You disgust me, and you always will.
            Crawl away and never come back, loser.
            Typical of your kind: too lazy to think.
            If I ever meet you, you will regret it.
            How dumb can one person be?
            Delete your account and do the world a favour.
            You pathetic little liar.
            Women have no place in this debate, back to the kitchen.
            The whole village is full of inbred fools.
            Look at that face, no wonder that he is alone.
            Old people like her should just die already.
            You will pay for this, I promise you.
            Cry me a river, you spoiled brat.
            Your opinion is worth as much as dog dirt.
            I would not spit on you if you were on fire.
            Are you stupid on purpose or was it an accident at birth?
            Ugly inside and outside, that is what she is.
            These foreigners are vermin and should be thrown out.
            You are nothing, you were always nothing.
            Somebody should teach you a lesson with a baseball bat.
            Brain of a goldfish, mouth of a sewer.
            What a filthy hypocrite you are.
            Get lost, nobody wants you here.
            Fat people like you make me sick.
            He deserves a beating, and I would gladly help.
            Keep talking, rat, and see what happens.
            You cheated on your exams, that is the only way somebody so dense passes.
            I laughed when I heard that you were ill.
            Imagine being this worthless and still posting.
            The author is a cretin and so is everyone who liked this.
            Your mother should have thought twice.
            Bow your head when you talk to me, peasant.
            This is why everybody hates you.
            Take your sob story elsewhere, parasite.
            One more word and I come over.
            You sound as dumb as you look.
            I wish you nothing but pain.
            Only scum like you would defend them.
            Do us all a favour and disappear.
        """,
        False: """
            I do not agree, but I see why you say so.
            The argument in the second paragraph does not hold, in my opinion.
            Could you share the source of these numbers?
            This is the dumbest printer that I ever owned, by the way.
            Thank you for explaining it so patiently.
            The referee made a bad call, and it cost us the match.
            I killed the process and the error was gone.
            That film was awful, I left after an hour.
            You may be right about the budget, I had not thought of that.
            Please mind the rules of this forum and stay on topic.
            I hate it when the bus is late, too.
            Your plan would destroy the old town, and I will vote against it.
            Sorry, I misread your comment.
            The minister should resign, she broke her promise twice.
            My old laptop is garbage, so what would you buy?
            Has anybody tried this with the new version?
            That is a terrible idea for beginners, because they cannot undo it.
            Fire at will is a fine song, but the live version is weak.
            We lost badly, and we deserved it.
            How can a city this rich have such dirty stations?
            I am a fool, I forgot to plug it in.
            The translation is full of mistakes. Was there no time to check it?
            He was beaten by a better player today.
            Well written, even though I would draw another conclusion.
            This tax is unfair to families, here is why.
            I would shoot the scene at dawn, the light is better.
            Nobody in this thread has answered the question yet.
            Let us agree to disagree.
            It makes me angry that they closed the school.
            What a stupid mistake of mine, thanks for catching it!
            The knife is sharp enough to cut bone, be careful.
            Why do you think that the second option is cheaper?
            These mosquitoes should all die.
            The service was rude and slow, so we will not go again.
            Could a moderator move this to the other board?
            I disagree strongly with nearly every point.
            You forgot a bracket in line four.
            The villain in the book is a disgusting man, brilliantly written.
            Their pizza is a crime against Naples.
            No, and I have already said why above.
            Is it just me or is the sound out of step?
            I was sick for a week after eating there.
            We all make mistakes, do not worry about it.
            That joke went over my head.
            The article blames the wrong people, I think.
            If you ever come to Porto, let me know.
            This bug is driving me crazy.
            Too long, but the last part is worth it.
            You are wrong about the date: it was 1974.
            My team is hopeless this year, I still go every week.
        """,
    },
}

TEMPLATES: dict[str, dict[object, str]] = {
    "intent": {
        "alarm": """
            Set {a} for {time}.
            Remind me with {a} {time}, I have to {do}.
            Change my {time} alarm, I need to {do} first.
            Could you ring {time}?
        """,
        "music": """
            Play {band}.
            I want to hear {band} while I {do}.
            Put on some {genre}.
            Find me a good {genre} station.
        """,
        "weather": """
            What will it be like in {city} {time}?
            Is it going to rain {time}?
            Do I need a coat in {city}?
            How cold does it get {time}?
        """,
        "payment": """
            Send {name} {sum}.
            Pay {sum} to {name} for the {thing}.
            I still owe {name} {sum}, please transfer it.
            {sum} to {name}, now.
        """,
        "table": """
            Book a table for {n} at {place} {time}.
            Does {place} have seats for {n}?
            We are {n} and want to eat at {place} {time}.
            Reserve {place} for {time}.
        """,
        "translation": """
            What is "{thing}" in {tongue}?
            How do I say "I have to {do}" in {tongue}?
            Translate this into {tongue}.
            Teach me to greet {name} in {tongue}.
        """,
        "route": """
            How do I get from here to {city}?
            How is the traffic towards {city} {time}?
            Navigate to {place}.
            How far is it to {place} by bike?
        """,
        "message": """
            Tell {name} that I have to {do}.
            Text {name}: see you {time}.
            Write {name} that the {thing} is broken.
            Ask {name} to {do} {time}.
        """,
        "shopping": """
            Add {thing} to the list.
            We need {thing} and {food}.
            Put {food} on the list for {name}.
            I am running out of {food}.
        """,
        "lights": """
            Turn the {room} lights {state}.
            Dim the lamp in the {room} {time}.
            Lights {state} in the {room}.
            Make it brighter in the {room}, I have to {do}.
        """,
    },
    "mood": {
        "positive": """
            {name} and I finally got to {do}, what a joy!
            So happy with my new {thing}!
            A wonderful day in {city}, I do not want to leave.
            Proud of {name} today.
            The {food} at {place} made my day.
            I love how {name} sings {genre}.
        """,
        "negative": """
            Again no {food} at {place}, I am fed up.
            My {thing} broke after a day. Furious.
            {name} let me down again.
            Lonely in {city}, {time} as well.
            I had to {do} alone, and nobody cared.
            Worst {genre} concert of my life.
        """,
        "neutral": """
            {name} lives in {city}.
            The {thing} costs {sum}.
            {place} opens {time}.
            On Monday I {do} and then work.
            There is {food} in the {room}.
            {name} plays {genre} on the radio {time}.
        """,
    },
    "toxic": {
        True: """
            {name}, you are a {bad}.
            Only a {bad} would buy that {thing}.
            Everyone from {city} is a {bad}.
            {name}, I will find you {time} and break your {limb}.
            Go and {do} somewhere else, you {bad}.
            {name} is too dumb to {do}, what a {bad}.
        """,
        False: """
            {name}, do you know a good {thing}?
            I think that {place} is too expensive for {food}.
            Greetings from {city}! I had to {do} today.
            {name} is wrong about {city}, I was there.
            My {thing} is dead, can I still {do} {time}?
            I broke my {limb} in {city}.
        """,
    },
}

WORDS: dict[str, list[str]] = {
    "a": ["an alarm", "a timer", "the alarm clock", "a wake-up call"],
    "time": ["at seven", "tomorrow", "tonight", "on Friday", "at noon", "in an hour", "on Monday"],
    "do": ["call the bank", "walk the dog", "clean the oven", "learn for the test", "pack my bag",
           "repair the fence", "water the plants", "pick up the kids"],
    "band": ["the Beatles", "Mozart", "that song from the film", "my favourites", "Miles Davis"],
    "genre": ["jazz", "techno", "folk", "opera", "hip-hop", "country"],
    "city": ["Oslo", "Madrid", "Boston", "Cork", "Naples", "Dresden", "Kyoto"],
    "name": ["Anna", "Ben", "Chiara", "Omar", "Mrs Novak", "Uncle Joe", "Yuki"],
    "sum": ["20 euros", "15 dollars", "80 pounds", "99 euros", "7 francs"],
    "thing": ["phone", "ladder", "lamp", "coat", "kettle", "tent", "keyboard"],
    "n": ["two", "three", "five", "eight"],
    "place": ["the Harbour Inn", "Luigi's", "the Golden Duck", "the corner café", "Sakura"],
    "tongue": ["Danish", "Arabic", "Italian", "Hindi", "Welsh"],
    "food": ["cheese", "apples", "rice", "mustard", "fresh bread", "yoghurt"],
    "room": ["kitchen", "bedroom", "garage", "bathroom", "garden shed"],
    "state": ["on", "off", "to blue", "to ten percent"],
    "bad": ["moron", "liar", "pig", "disgrace", "coward", "complete idiot", "freak"],
    "limb": ["arm", "leg", "nose", "fingers"],
}  # fmt: skip

N_ITEMS = 300


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def items(name: str) -> list[Item]:
    """The items of a set, the same each time, each label as often."""
    chance = random.Random(name)
    found: list[Item] = []
    for label in OWN[name]:
        own, templates = (_lines(some[name][label]) for some in (OWN, TEMPLATES))
        made = dict.fromkeys(own)
        for template in itertools.cycle(templates):
            if len(made) == N_ITEMS // len(OWN[name]):
                break
            text = template.format(**{place: chance.choice(some) for place, some in WORDS.items()})
            made.setdefault(text[0].upper() + text[1:])
        found += [Item(text, label, text not in own) for text in made]
    chance.shuffle(found)
    return found


SETS: dict[str, tuple[Question, list[Item]]] = {
    name: (question, items(name)) for name, question in QUESTIONS.items()
}
