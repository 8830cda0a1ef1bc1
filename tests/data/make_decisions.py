"""Writes decisions.jsonl: labelled items for decisions, written for this repository.

    python tests/data/make_decisions.py

Each line has a state, the name of its question, the right answer and its half: every second item of
each label is held out. The questions are in `QUESTIONS`, which benchmarks import.
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


def items() -> list[dict[str, object]]:
    found = []
    for name, labels in ITEMS.items():
        for label, texts in labels.items():
            lines = [line.strip() for line in texts.strip().splitlines()]
            for i, line in enumerate(lines):
                half = "held out" if i % 2 else "fit"
                found.append({"question": name, "state": line, "answer": label, "half": half})
    return found


def main() -> None:
    path = Path(__file__).with_name("decisions.jsonl")
    lines = [json.dumps(item, ensure_ascii=False) for item in items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} items in {path}")


if __name__ == "__main__":
    main()
