"""Turn texts into token ids, cut to the model's limit, and count the tokens cut off.

The only module that uses ``tokenizers``. It ignores the padding and truncation of
``tokenizer.json``, which are for other programs: structgen pads batches, and cuts texts at the
model's limit. Knows no graphs and batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

import numpy as np
from tokenizers import Tokenizer

from structgen.errors import ModelError, OptionError, printable
from structgen.models import trial
from structgen.models.base import check_written
from structgen.models.loading import explaining_panics
from structgen.sampling import TokenIds
from structgen.storage.user_folder import contents

_MOST_TOKENS = 1 << 22
"""Most tokens of a text: a normalizer may replace a letter by a long text."""


class Tokens(NamedTuple):
    """The tokens of one text, or of a pair of texts.

    Attributes:
        ids: int32 ``[n]``: token ids, special tokens included.
        type_ids: int32 ``[n]``: 0 for the first text of a pair, 1 for the second.
        n_cut: number of tokens that did not fit.
    """

    ids: TokenIds
    type_ids: TokenIds
    n_cut: int


class AnyTokenizer(Protocol):
    """A `TextTokenizer`, here or in another process."""

    def encode(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list[Tokens]:
        """As of `TextTokenizer`."""

    def whole(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """As of `TextTokenizer`."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """As of `TextTokenizer`."""

    def n_prompt_tokens(self, prompt: str) -> int:
        """As of `TextTokenizer`."""


@final
class TextTokenizer:
    """A tokenizer with a limit on length. Safe to share by threads."""

    def __init__(self, file: Path, max_length: int | None, cuts: str | None = None) -> None:
        """Read ``tokenizer.json``.

        Args:
            file: the file.
            max_length: most tokens of a text.
            cuts: the side on which longer texts are cut, ``"left"`` or ``"right"``; None: that of
                the file.

        Raises:
            ModelError: it is not valid, or too large for the process that uses it.
            OptionError: ``max_length`` leaves no room for text.
        """
        self._file = file
        self._whole, self._cutting = _read(file)
        self._max_length = max_length
        if max_length is not None:
            special = self._cutting.num_special_tokens_to_add(is_pair=True)
            if max_length <= special:
                raise OptionError(
                    f"max_length={max_length} is too small: this model adds {special} special "
                    "tokens to each text."
                )
            by_file = (self._whole.truncation or {}).get("direction", "right").lower()
            self._cutting.enable_truncation(max_length, direction=cuts or by_file)
        self._whole.no_truncation()

    def encode(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list[Tokens]:
        """Return the tokens of each text or pair.

        Raises:
            OptionError: a text has a lone surrogate, which no encoding can write.

        Cost: 20 to 60 µs for a sentence; twice that for texts that are cut.
        """
        try:
            with explaining_panics(self._file):
                found = self._whole.encode_batch_fast(texts)
        except (TypeError, UnicodeEncodeError):
            raise OptionError(_unwritable(texts)) from None
        most = self._max_length
        long = [i for i, one in enumerate(found) if most is not None and len(one) > most]
        n_cut = [0] * len(found)
        if long:
            with explaining_panics(self._file):
                cut = self._cutting.encode_batch_fast([texts[i] for i in long])
            for i, encoding in zip(long, cut, strict=True):
                n_cut[i] = len(found[i]) - len(encoding)
                if most is not None and len(encoding) > most:
                    raise ModelError(f"{self._file} cannot truncate texts to {most:,} tokens.")
                found[i] = encoding
        both = zip(found, n_cut, strict=True)
        with explaining_panics(self._file):
            return [
                Tokens(np.array(one.ids, np.int32), np.array(one.type_ids, np.int32), n)
                for one, n in both
            ]

    def whole(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return all tokens of a text. Raises as `encode`, and if there are too many."""
        try:
            with explaining_panics(self._file):
                found = self._whole.encode(text, add_special_tokens=add_special_tokens)
        except (TypeError, UnicodeEncodeError):
            raise OptionError(_unwritable([text])) from None
        if len(found) > _MOST_TOKENS:
            raise OptionError(f"The text has {len(found):,} tokens; the limit is {_MOST_TOKENS:,}.")
        return list(found.ids)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of tokens.

        Raises:
            OptionError: a number is not a token id, or the text is too long.
        """
        size = self._whole.get_vocab_size()
        for token in token_ids:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < size:
                raise OptionError(
                    f"{token!r} is not a token id. Token ids range from 0 to {size - 1:,}."
                )
        check_written(len(self._whole.id_to_token(token) or "") for token in token_ids)
        with explaining_panics(self._file):
            text = self._whole.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        check_written([len(text)])  # a decoder may produce more
        return str(text)

    def n_prompt_tokens(self, prompt: str) -> int:
        """Return the number of tokens of a prompt at the beginning of a text."""
        if not prompt:
            return 0
        with explaining_panics(self._file):
            encoding = self._whole.encode(prompt)
        trailing = 0
        for is_special in reversed(encoding.special_tokens_mask):
            if not is_special:
                break
            trailing += 1
        return len(encoding) - trailing


def _read(file: Path) -> tuple[Tokenizer, Tokenizer]:
    """Return a file's tokenizer, and a second one without truncation that shares its vocabulary."""
    try:
        trial.check_file(file)
        data = contents(file)
        with explaining_panics(file):
            whole = Tokenizer.from_buffer(data)
            other = Tokenizer(whole.model)
            for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
                setattr(other, part, getattr(whole, part))
            other.add_tokens([one for _, one in sorted(whole.get_added_tokens_decoder().items())])
    except ModelError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise ModelError(f"{file} cannot be used: {printable(str(error))}.") from error
    whole.no_padding()
    if getattr(whole.model, "dropout", None):  # for training only: tokens would be random
        whole.model.dropout = None
    return whole, other


def _unwritable(texts: Sequence[str] | Sequence[tuple[str, str]]) -> str:
    for i, text in enumerate(texts):
        for part in (text,) if isinstance(text, str) else text:
            try:
                part.encode()
            except UnicodeEncodeError as error:
                return f"Text {i} is not valid Unicode: {error.reason}, at {error.start}."
    return "The texts cannot be tokenized."


def tokenized(
    tokenizer: AnyTokenizer | None, windows: Iterable[list[Any]]
) -> Iterator[tuple[list[Any], list[Tokens] | None]]:
    """Yield windows of texts with their tokens; the next window is tokenized while one is used.

    Args:
        tokenizer: makes them; None: the graph reads texts itself.
        windows: non-empty lists of texts or pairs of texts.
    """
    if tokenizer is None:
        yield from ((window, None) for window in windows)
        return
    source = iter(windows)
    window = next(source, None)
    if window is None:
        return
    tokens = tokenizer.encode(window)
    following = next(source, None)
    if following is None:  # a few texts need no thread
        yield window, tokens
        return
    with ThreadPoolExecutor(1, "structgen-tokens") as thread:
        while following is not None:
            coming = thread.submit(tokenizer.encode, following)
            yield window, tokens
            window, following = following, next(source, None)
            tokens = coming.result()
        yield window, tokens
