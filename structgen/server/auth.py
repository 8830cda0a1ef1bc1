"""Who may ask: keys, of which only hashes are kept.

Owns reading keys and comparing them in constant time. What a key may do is the same for all.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path
from typing import final

from structgen.errors import OptionError

_HASHED = re.compile("sha256:([0-9a-f]{64})")


@final
class Keys:
    """The keys that a server accepts."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Take over keys: each as it is, or as ``sha256:`` and its hash.

        Raises:
            OptionError: one is empty, not of printable ASCII, or a hash that is none.
        """
        self._hashes: list[bytes] = []
        for key in keys:
            hashed = _HASHED.fullmatch(key)
            if hashed is not None:
                self._hashes.append(bytes.fromhex(hashed[1]))
                continue
            if key.lower().startswith("sha256:"):
                raise OptionError(
                    "An API key begins with sha256: and goes on with something else than 64 "
                    "lower-case hex digits. It would be taken for the key itself. Write the hash "
                    "that `printf %s KEY | sha256sum` prints."
                )
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise OptionError("An API key is empty, or has other characters than ASCII's.")
            self._hashes.append(_hash(key))

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def __repr__(self) -> str:
        return f"Keys({len(self._hashes)})"

    def holder(self, key: str) -> str | None:
        """A name for who has a key, which tells nothing of it; None: it is not accepted.

        All keys are compared, each in constant time. The next server may give other names.
        """
        given = _hash(key)
        found: str | None = None
        for index, one in enumerate(self._hashes):
            if hmac.compare_digest(given, one):
                found = f"key{index}"
        return found


def owner_of(key: str) -> str:
    """Who has a key, by another hash than that which keys are accepted by: it stays the same."""
    return hashlib.sha256(b"structgen owner" + _hash(key)).hexdigest()


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def keys_in(path: Path) -> list[str]:
    """The keys of a file: one a line; empty lines and those that begin with ``#`` do not count.

    Raises:
        OptionError: it cannot be read, or has none.
    """
    try:
        lines = path.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"The file of API keys {path} cannot be read: {error}.") from None
    found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not found:
        raise OptionError(f"The file of API keys {path} has none. Write one a line.")
    return found


def bearer(header: str | None) -> str | None:
    """The key in an ``Authorization`` header; None: there is none."""
    scheme, _, key = (header or "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else None
