"""What type checkers see of the ready-made types: each is ``str``, as its values are.

Running programs never import this module; they use `ready.Ready`.
"""

from __future__ import annotations

from typing import TypeAlias

digit: TypeAlias = str
char: TypeAlias = str
newline: TypeAlias = str
whitespace: TypeAlias = str
hex_str: TypeAlias = str
uuid4: TypeAlias = str
ipv4: TypeAlias = str
ipv6: TypeAlias = str
semver: TypeAlias = str
mac_address: TypeAlias = str
hex_color: TypeAlias = str
slug: TypeAlias = str
sentence: TypeAlias = str
paragraph: TypeAlias = str
email: TypeAlias = str
media_type: TypeAlias = str
credit_card: TypeAlias = str
isbn13: TypeAlias = str
isbn10: TypeAlias = str
isbn: TypeAlias = str
country_code: TypeAlias = str
country_code3: TypeAlias = str
country_number: TypeAlias = str
country_name: TypeAlias = str
country_flag: TypeAlias = str
subdivision_code: TypeAlias = str
currency_code: TypeAlias = str
currency_number: TypeAlias = str
currency_name: TypeAlias = str
language_code: TypeAlias = str
language_code3: TypeAlias = str
language_name: TypeAlias = str
time_zone: TypeAlias = str
mime_type: TypeAlias = str
airport_iata: TypeAlias = str
airport_icao: TypeAlias = str
