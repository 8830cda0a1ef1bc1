"""Writes decisions.jsonl: labelled items for decisions, written for this repository.

    python tests/data/make_decisions.py

300 items, 60 for each of five questions, the labels of each equally often. Each line has a state,
the name of its question, the right answer, its kind (plain, or hard: see `HARD`) and its half:
every second item of each label is held out. The questions are in `QUESTIONS`, which benchmarks use.
"""

from __future__ import annotations

import json
from pathlib import Path

from structgen.decisions import Choice, Predicate, Question, Score

QUESTIONS: dict[str, Question] = {
    "team": Choice(
        "Which team should handle this message?",
        {
            "billing": "payments, invoices and refunds",
            "technical support": "errors, crashes and bugs",
            "shipping": "parcels and delivery",
        },
    ),
    "sentiment": Choice("What is the sentiment of this review?", ["positive", "negative"]),
    "topic": Choice("What is this text about?", ["sports", "science", "politics", "food"]),
    "true": Predicate("Is this statement true?"),
    "severity": Score(
        "How severe is the reported problem?", ["harmless", "annoying", "serious", "catastrophic"]
    ),
}

ITEMS: dict[str, dict[object, str]] = {
    "team": {
        "billing": """
            I was charged twice for my subscription this month.
            Please send me the invoice for March, my accountant needs it.
            The refund you promised two weeks ago has not reached my bank.
            Why did the price go up by five euros without notice?
            My credit card expired, how do I pay with the new one?
            The discount code was accepted but the full amount was taken.
            I cancelled in May and you still take money every month.
            Can I pay by bank transfer instead of by card?
            There is a fee of 3.50 on my statement that I do not understand.
            Our company needs the VAT number on the receipt.
            The payment failed, but the money is gone from my account.
            I would like my money back for the last order.
        """,
        "technical support": """
            The app crashes as soon as I open the settings.
            I get error 504 whenever I try to log in.
            Since the update my screen stays black.
            The export button does nothing when I click it.
            Your website shows a blank page in Firefox.
            My password reset link always says that it is invalid.
            The program freezes when I open large files.
            Search returns no results even for words that are there.
            The upload stops at 99 percent every single time.
            Notifications do not appear on my phone any more.
            After installing, Windows says that a DLL is missing.
            The page keeps reloading by itself and I lose my text.
        """,
        "shipping": """
            My parcel was due on Monday and it is still not here.
            The tracking number you sent me does not exist.
            The box arrived open and completely wet.
            Can I change the delivery address before it leaves the warehouse?
            The courier left my package with a neighbour I do not know.
            How long does delivery to Norway take?
            The driver says nobody was home, but I was there all day.
            I ordered three lamps and only two were in the package.
            My order has been stuck in customs for ten days.
            Could you deliver in the evening instead of the morning?
            The parcel went to my old address.
            When will my order be handed to the carrier?
        """,
    },
    "sentiment": {
        "positive": """
            The soup was wonderful and the staff could not have been kinder.
            Best headphones I have ever owned, worth every cent.
            We laughed the whole evening, a brilliant film.
            Quiet room, soft bed, great breakfast. We will come back.
            It does exactly what it promises, and fast.
            My daughter loves this book and asks for it every night.
            A charming little museum with a very friendly guide.
            Setup took two minutes and it has run perfectly since.
            The best pizza in town, crisp and full of flavour.
            I was sceptical, but this vacuum cleaner is fantastic.
            Beautiful songs, I have listened to the album all week.
            Helpful people, short wait, fair price. Thank you!
            The garden tour was a delight from start to finish.
            Comfortable shoes even after ten hours of walking.
            Clear instructions and sturdy wood: a pleasure to build.
        """,
        "negative": """
            The soup was cold and the waiter rude.
            Broke after three days, and nobody answers my mails.
            Two hours of my life that I will never get back.
            The room smelled of smoke and the shower was filthy.
            It is slow, loud and far too expensive.
            A dull book whose ending I guessed on page ten.
            The museum was closed although the site said open.
            I spent the whole weekend trying to make it work, in vain.
            Soggy crust, no taste, never again.
            This vacuum cleaner picks up nothing at all.
            The singer was out of tune all night.
            We waited an hour and then they had lost our order.
            A tourist trap: crowded, dirty and overpriced.
            These shoes gave me blisters on the first day.
            Half of the screws were missing from the box.
        """,
    },
    "topic": {
        "sports": """
            The striker scored twice in the second half.
            She won the marathon in two hours and twenty minutes.
            The team fired its coach after the fifth defeat in a row.
            He served three aces and took the final set.
            The goalkeeper saved a penalty in the last minute.
            Rain delayed the tennis tournament until Sunday.
            The cyclist took the yellow jersey in the mountains.
            Our club is at the top of the league again.
        """,
        "science": """
            Astronomers measured the orbit of a distant planet.
            The enzyme splits the molecule into two smaller ones.
            A new telescope sees galaxies that formed very early.
            Researchers sequenced the genome of the octopus.
            The experiment shows how neurons store memories.
            Physicists cooled the atoms close to absolute zero.
            The fossil is older than any known bird.
            Bacteria in the soil turn nitrogen into fertiliser.
        """,
        "politics": """
            Parliament voted on the new tax law late at night.
            The minister resigned after the scandal.
            The two parties formed a coalition government.
            Voters elect a new president in November.
            The senate rejected the nominee by three votes.
            The mayor promised new housing in her campaign.
            Both countries signed the treaty after long talks.
            The opposition demands a vote of no confidence.
        """,
        "food": """
            Fry the onions in butter until they are golden.
            This sauce needs fresh basil and ripe tomatoes.
            Let the dough rise for an hour before baking.
            The bakery sells the best croissants in the quarter.
            Add a pinch of salt to the chocolate cake.
            Roast the potatoes with rosemary and garlic.
            The curry was mild, with coconut milk and lime.
            He grilled the fish and served it with rice.
        """,
    },
    "true": {
        True: """
            Paris is the capital of France.
            Water freezes at zero degrees Celsius.
            A triangle has three sides.
            The Earth moves around the Sun.
            Cows eat grass.
            Seven is greater than five.
            Ice is colder than steam.
            Spiders have eight legs.
            The heart pumps blood through the body.
            Tokyo lies in Japan.
            A week has seven days.
            Fish live in water.
            The Sahara is a desert.
            Bees make honey.
            Two plus two is four.
        """,
        False: """
            Paris is the capital of Spain.
            Water freezes at fifty degrees Celsius.
            A triangle has five sides.
            The Sun moves around the Moon.
            Cows eat stones.
            Three is greater than nine.
            Ice is hotter than steam.
            Spiders have two legs.
            The lungs pump blood through the body.
            Tokyo lies in Brazil.
            A week has nine days.
            Fish live in trees.
            The Sahara is an ocean.
            Dogs make honey.
            Two plus two is seven.
        """,
    },
    "severity": {
        "harmless": """
            The logo is a slightly different blue than before.
            There is a typo in the footer of the website.
            The button is two pixels too far to the left.
            One icon is a little blurred on very large screens.
            The help text says colour where others say color.
            The list has one blank line at its end.
            The welcome mail greets me twice.
        """,
        "annoying": """
            I have to log in again every few hours.
            The page takes ten seconds to load in the morning.
            The app forgets my language at each start.
            I have to click three times to close each message.
            The search sometimes misses the newest entries.
            The printout always has an empty second page.
            The sound of the notifications cannot be turned off.
        """,
        "serious": """
            Customers cannot pay since this morning.
            Half of our staff cannot log in at all.
            The report shows wrong totals and we sent it to clients.
            The backup has failed every night for a month.
            Orders of the whole last week were lost.
            The server goes down several times a day.
            Strangers could read our invoices for an hour.
        """,
        "catastrophic": """
            All customer data was deleted and there is no backup.
            The battery caught fire and two people are in hospital.
            Attackers hold every server and demand a ransom.
            The brakes fail at high speed; a driver has died.
            The pump gave ten times the dose and a patient died.
            The plant exploded after the alarm system failed.
            All passwords and card numbers are public on the internet.
        """,
    },
}


# What a keyword does not give away: other subjects' words, negation, irony, understatement.
HARD: dict[str, dict[object, str]] = {
    "team": {
        "billing": """
            The parcel is fine, but you charged the express fee although I chose the slow one.
            After the crash I bought the licence again by mistake; one of the two has to go back.
            Nothing is broken, I only wonder why I pay for seven seats when we are five.
            You refunded the lamp but kept the 9.90 for sending it.
            My bank asks who you are, because the name on the statement is another one.
            The form says paid, the reminder says unpaid. Which is it?
            We moved to Austria: does the tax on our subscription change?
            I used the voucher on the website and the till still wanted everything.
        """,
        "technical support": """
            I paid and the money is gone, all as it should, only the last page shows a white field.
            The link to follow my parcel opens the app and the app closes again at once.
            The total of my basket jumps to zero whenever I turn the phone.
            The invoice exists, I can see it, but the viewer says that the file is damaged.
            When I type my new street the form deletes the house number by itself.
            I do not want money back, I want the thing to start without a black window.
            Two people cannot work in one document: the second always loses his changes.
            The courier's map in your program shows the sea.
        """,
        "shipping": """
            Paid on the third, confirmed on the fourth, and since then nobody has seen the box.
            Your website works, your prices are good, but where is my kettle?
            I was charged for two chairs, which is right, and one of them came.
            The lift is out of order, so could someone carry the fridge up to the fifth floor?
            The app says delivered; my porch says otherwise.
            I will be on holiday from Friday: please hold everything back until the tenth.
            The label carries the name of a stranger in another city.
            A crate that should stand upright came upside down.
        """,
    },
    "sentiment": {
        "positive": """
            I wanted to hate it and could not.
            Not bad at all, in fact I stayed until they closed.
            It took them two attempts, but now it runs better than any I had before.
            Nothing to complain about, and I usually find something.
            Expensive? Yes. Would I pay it again? Without blinking.
            My old one lasted ten years and this one is clearly better.
            I did not expect to cry at a film about bees, yet there I sat.
            The only problem is that I now want a second one.
            Small portions, but every bite was a joy.
            You would have to be very picky to dislike this hotel.
            Forget what the other reviews say, this works.
            I have stopped looking for alternatives.
            The rain ruined the view and the guide saved the day.
            Hardly a scratch after two winters.
            If only every insurance answered like this.
        """,
        "negative": """
            I wanted to love it and could not.
            The brochure was beautiful, which is more than one can say of the beach.
            Great if you like waiting.
            It would have been a nice evening without the food.
            They were very friendly each of the five times I had to bring it back.
            Well, at least the packaging was pretty.
            I have had better coffee on a train.
            Good actors, what a waste.
            The second star is for the parking space.
            Nobody was rude, nobody was there either.
            It promised silence and sounds like a tractor.
            My cat likes the box, so it was not entirely for nothing.
            A book I could put down, and did, on page forty.
            The warranty ended on Monday and the screen on Tuesday.
            You get what you pay for, and I paid little.
        """,
    },
    "topic": {
        "sports": """
            Her knee will not be ready before the season opens, says the doctor of the club.
            He ate nothing but rice for a week and then broke the national record over 800 metres.
            The vote of the referees was close, but the gold went to the gymnast from Brazil.
            Three minutes of stoppage time were enough to turn it around.
            After the treaty between the two leagues, transfers are allowed again in January.
            At altitude the ball flies further, which the visitors had not trained for.
            They changed goalkeepers for the shoot-out, and it paid.
        """,
        "science": """
            Why yeast makes dough rise was understood only when someone looked through a microscope.
            The ministry's grant runs out before the telescope has taken its first picture.
            A cyclist's muscles burn sugar in two different ways, the group found.
            Salt lowers the temperature at which water turns solid, by an amount one can compute.
            The vote on the definition of a planet has not changed the orbit of Pluto.
            Measurements disagree by more than their errors, so one of the theories is wrong.
            The same gene, found in mice and in men, sets the inner clock.
        """,
        "politics": """
            The price of bread was on every poster of the campaign.
            Who may sit in the stadium's box was the question the committee put to the governor.
            The law on genetic engineering passed with the votes of the farmers' party.
            She crossed the floor and took the majority with her.
            Ambassadors were called back on both sides of the river.
            The budget for research survived the night, the one for roads did not.
            A referendum on the new airport will be held in spring.
        """,
        "food": """
            The marathon runners among our readers swear by this bowl of oats and banana.
            Enzymes in fresh pineapple keep the jelly from setting, so use tinned fruit.
            The chancellor's favourite dish is said to be this simple potato soup.
            Seventy degrees inside, a quarter of an hour of rest, and it is pink from edge to edge.
            Leave it in the jar for a month, then taste whether it is sour enough.
            What the shop calls wild is mostly farmed; look at the colour of the fillet.
            Two spoons of vinegar save almost any stew.
        """,
    },
    "true": {
        True: """
            A whale is not a fish.
            There are more than fifty countries in Africa.
            Sound travels faster in water than in air.
            An octopus has three hearts.
            The number one is not a prime number.
            Venus is closer to the Sun than the Earth is.
            A kilogram of feathers weighs as much as a kilogram of iron.
            Shakespeare wrote Hamlet before the telephone was invented.
            The Pacific is larger than the Atlantic.
            Half of a third is a sixth.
            Bamboo is a grass.
            Antarctica has no native population.
            Some birds cannot fly.
            The Danube flows through more than one capital.
            Steel contains carbon.
        """,
        False: """
            A bat is a bird.
            There are fewer than ten countries in Africa.
            Light travels faster in water than in a vacuum.
            An octopus has a backbone.
            The number nine is a prime number.
            Mars is closer to the Sun than the Earth is.
            A litre of oil weighs more than a litre of mercury.
            Mozart composed his operas on a computer.
            The Atlantic is larger than the Pacific.
            Half of a quarter is a third.
            The tomato plant is a kind of tree.
            Antarctica is the hottest continent.
            All mammals lay eggs.
            The Nile flows into the Black Sea.
            Diamonds are made of iron.
        """,
    },
    "severity": {
        "harmless": """
            One of two hundred photos has its caption on the left.
            Somebody at the desk says Goodbye where the handbook says Farewell.
            The test server, which nobody uses, shows last year in its footer.
            The spare key hangs on the wrong one of two neighbouring hooks.
            In the report the second page is numbered with a slightly smaller font.
            The alarm's test tone is a semitone lower than that of the old one.
            The cake for the jubilee has the company's name in the former lettering.
            A comment in the code still thanks a colleague who has changed her surname.
        """,
        "annoying": """
            The lift stops on the third floor although nobody has asked it to.
            Every mail to the printer's address is answered by two automatic replies.
            The form wants my telephone number on each of its four pages.
            In the open-plan office the air blows straight at six of the desks.
            The reminder for the meeting comes twenty minutes after it has begun.
            One has to restart the scanner about once a day.
            The bus shelter leaks, right above the bench.
            The heating clicks the whole night, but it does warm.
        """,
        "serious": """
            For two days the pharmacy's system has printed the doses of one drug without the unit.
            The lock of the chemistry store can be opened with any coin.
            Wages were paid to the wrong accounts and half of them have not come back.
            The water of the east wing must not be drunk until further notice.
            Every tenth emergency call was routed to an empty desk this week.
            The scaffold swayed so much that the workers refuse to go up again.
            A nurse found the oxygen bottles of the ward half empty and unlabelled.
            Since the change all students can read and edit each other's marks.
        """,
        "catastrophic": """
            The dam has given way and the valley below it is under water.
            Nobody from the night shift came out of the tunnel.
            The wrong gas was connected to the ward; four patients are dead.
            The bridge fell with the morning train on it.
            The reactor's cooling is gone and the town is being evacuated.
            Every land title in the country has been wiped from the registers, copies included.
            The ferry sank within minutes, most of those below deck were not found.
            The vaccine was contaminated and thousands of children had already had it.
        """,
    },
}


def items() -> list[dict[str, object]]:
    found = []
    for kind, texts_of in (("plain", ITEMS), ("hard", HARD)):
        for name, labels in texts_of.items():
            for label, texts in labels.items():
                lines = [line.strip() for line in texts.strip().splitlines()]
                for i, line in enumerate(lines):
                    half = "held out" if i % 2 else "fit"
                    told = {"question": name, "state": line, "answer": label}
                    found.append({**told, "kind": kind, "half": half})
    return found


def main() -> None:
    path = Path(__file__).with_name("decisions.jsonl")
    lines = [json.dumps(item, ensure_ascii=False) for item in items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} items in {path}")


if __name__ == "__main__":
    main()
