"""Whisper: sounds of 30 seconds as a decoder's prompt, and long sounds in windows.

Here are the special tokens of its prompts, the rules of its time stamps, and the retries of
windows. A prompt is the earlier text, the language and the task:

    <|startofprev|> text <|startoftranscript|><|en|><|transcribe|><|notimestamps|>

A `Generator` continues it under its mask. `Whisper.transcribe` leaves the last token out, so that
the model writes the beginning and end of each segment, as in OpenAI's own program: the next window
begins where the last complete segment ended. The rules for time stamps and retries are OpenAI's.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from structgen.errors import ModelError, PromptError
from structgen.media import MARKS, Audio, Media
from structgen.models.base import Passes, Perceived
from structgen.models.listening import RATE, WINDOW, Samples, Segment, Window, WindowTranscript
from structgen.vocabulary import Vocabulary

from .runtime import Running, og
from .sequences import last_logits
from .sound import claimed_seconds, decoded, wav

TEMPLATE = (
    "{%- set ns = namespace(text='') -%}"
    "{%- for message in messages -%}{%- set ns.text = ns.text + message.content -%}{%- endfor -%}"
    "{%- if not ns.text.startswith('MARK') -%}<|startofprev|>{%- endif -%}{{ ns.text }}"
).replace("MARK", MARKS[0])
"""The chat template: all contents, that is a sound with the text before and after it."""

CONTEXT = 448
"""The context length of the decoder, in models of all sizes."""

_STEP = 0.02  # seconds from one time stamp to the next
_LATEST_START = 50  # most steps until the first segment begins
_ENGLISH_ONLY = 51_864  # number of scores of English-only models; others have one more
_MOST_TOKENS = 224  # of a window, as in training
_TEMPERATURES = (0.4, 0.8)  # for a window that is unsure or repetitive
_MOST_REPETITIVE = 2.4  # compression ratio beyond which a text repeats itself
_LEAST_SURE = -1.0  # mean log probability of a token
_SILENT = 0.6  # probability of silence, if the text is also unsure


class _Written(NamedTuple):
    """The transcript of a window; from `temperature` on as in a `Segment`."""

    language: str | None
    token_ids: tuple[int, ...]
    temperature: float
    logprob: float
    compression_ratio: float
    no_speech: float


@final
class Whisper:
    """Reads sounds for one model. Safe to share by threads."""

    def __init__(self, og_model: og.Model, name: str, vocabulary: Vocabulary) -> None:
        """Set up for a model; ``name`` is its name in messages.

        Raises:
            ModelError: its tokenizer lacks tokens of prompts.
        """
        self._og_model = og_model
        self._processor = og_model.create_multimodal_processor()
        self._name = name
        self._lock = threading.Lock()
        names = vocabulary.named_tokens
        for one in ("startofprev", "startoftranscript", "transcribe", "translate", "notimestamps"):
            if f"<|{one}|>" not in names:
                raise ModelError(f"{name} has no token <|{one}|>: its tokenizer is not Whisper's.")
        self._names = names
        self._first_stamp = names["<|notimestamps|>"] + 1
        self._end = vocabulary.eos_token_ids[0]
        self._silence = names.get("<|nospeech|>", names.get("<|nocaptions|>"))
        found = {re.fullmatch(r"<\|([a-z]{2,3})\|>", one): i for one, i in names.items()}
        self.languages = {match[1]: token for match, token in found.items() if match}
        if vocabulary.size == _ENGLISH_ONLY:
            self.languages = {}
        self._width = vocabulary.size
        self._barred = np.zeros(self._width, bool)
        self._barred[self._end + 1 : self._first_stamp] = True
        self._tokens = vocabulary.tokens

    def perceive(self, media: Sequence[Media]) -> Perceived:
        """See `structgen.models.base.Model.perceive`."""
        (audio, *more) = media
        if more or not isinstance(audio, Audio):
            raise PromptError(f"{self._name} takes exactly one audio file, with optional text.")
        seconds, samples = claimed_seconds(audio.data), np.empty(0, np.float32)
        if seconds <= 2 * WINDOW:  # it may be shorter than its headers say
            samples = decoded(audio.data)
            seconds = len(samples) / RATE
        if seconds > WINDOW:
            raise PromptError(
                f"The audio has {seconds:,.0f} seconds, but {self._name} processes at most "
                f"{WINDOW} at once. Split it, or call transcribe."
            )
        features = self._features(samples)
        language, translate = self.task_of(audio)
        if language is None and self.languages:
            generator = self._begun(features)
            generator.append_tokens(np.array(self._prompt(None, False), np.int32))
            language = self._likeliest_language(last_logits(generator, self._width)[0])
        prompt = self._prompt(language, translate)
        row = np.array([*prompt, self._names["<|notimestamps|>"]], np.int32)
        return Perceived([row], [("", "")], inputs=partial(_tensors, features))

    def transcribe(self, window: Window) -> Passes[WindowTranscript]:
        """Transcribe a window, pass by pass."""
        features = self._features(window.samples)
        language, written = window.language, None
        for temperature in (window.temperature, *(() if window.temperature else _TEMPERATURES)):
            now = window._replace(language=language, temperature=temperature)
            written = yield from self._written(features, now)
            language = written.language
            if written.logprob < _LEAST_SURE and written.no_speech > _SILENT:
                written = written._replace(token_ids=())
                break
            if written.logprob >= _LEAST_SURE and written.compression_ratio <= _MOST_REPETITIVE:
                break
        assert written is not None
        segments, done = self._segments(written, len(window.samples) / RATE)
        return WindowTranscript(language or "en", segments, done)

    def _segments(self, written: _Written, seconds: float) -> tuple[list[Segment], float]:
        """Return a window's segments, and the number of its ``seconds`` that are finished."""
        tokens = np.array(written.token_ids, np.int64)
        is_stamp = tokens >= self._first_stamp
        cuts = (np.flatnonzero(is_stamp[:-1] & is_stamp[1:]) + 1).tolist()
        done = seconds
        if is_stamp[-2:].tolist() == [False, True] or not cuts:
            cuts.append(len(tokens))  # after the last segment is silence
        else:
            done = float(tokens[cuts[-1] - 1] - self._first_stamp) * _STEP
        found = []
        for row in np.split(tokens, cuts)[:-1]:
            stamps = ((row[row >= self._first_stamp] - self._first_stamp) * _STEP).tolist()
            start = min(stamps[0], seconds) if stamps else 0.0
            end = min(stamps[-1], seconds) if len(stamps) > 1 else seconds
            text = self._text(row)
            if text.strip():
                ids, (_, *more) = tuple(row.tolist()), written[1:]
                found.append(Segment(start, end, text, ids, *more))
        return found, done

    # -- one pass after another ---------------------------------------------------------------

    def _features(self, samples: Samples) -> npt.NDArray[Any]:
        """Return the features for the encoder; silence is added to a sound that is too short."""
        samples = np.pad(samples, (0, max(RATE - len(samples), 0)))
        try:
            with self._lock:
                found = self._processor(["a"], audios=og.Audios.open_bytes(wav(samples)))
            return np.array(found["audio_features"].as_numpy())
        except Exception as error:
            raise PromptError(f"{self._name} cannot process the audio: {error}.") from error

    def _begun(self, features: npt.NDArray[Any]) -> Any:
        params = og.GeneratorParams(self._og_model)
        params.set_search_options(
            max_length=CONTEXT, do_sample=False, num_beams=1, num_return_sequences=1
        )
        generator = Running(self._og_model, params, self._name)
        generator.set_inputs(_tensors(features))
        return generator

    def _written(self, features: npt.NDArray[Any], window: Window) -> Passes[_Written]:
        start = self._names["<|startoftranscript|>"]
        prompt = window.before.tolist()[-(CONTEXT // 2 - 1) :]
        prompt = [*([self._names["<|startofprev|>"], *prompt] if prompt else ()), start]
        generator = self._begun(features)
        yield
        generator.append_tokens(np.array(prompt, np.int32))
        logits = last_logits(generator, self._width)[0]
        silent = 0.0 if self._silence is None else float(np.exp(_logs(logits)[self._silence]))
        language = window.language
        if language is None and self.languages:
            language = self._likeliest_language(logits)
        rest = self._prompt(language, window.translate)[1:]
        if rest:
            yield
            generator.append_tokens(np.array(rest, np.int32))
        room = min(_MOST_TOKENS, CONTEXT - len(prompt) - len(rest))
        random = np.random.default_rng(0)
        tokens: list[int] = []
        total = 0.0
        while len(tokens) < room:
            scores = self._ruled(last_logits(generator, self._width)[0], tokens)
            noise = window.temperature * random.gumbel(size=len(scores))
            token = int(np.argmax(scores + noise))
            total += float(scores[token])
            if not np.isfinite(total + silent):
                raise ModelError(f"{self._name} returned NaN or infinite scores. It is damaged.")
            if token == self._end:
                break
            tokens.append(token)
            if len(tokens) < room:
                yield
                generator.append_tokens(np.array([token], np.int32))
        data = self._text(np.array(tokens, np.int64)).encode()
        ratio = len(data) / len(zlib.compress(data))
        logprob = total / (len(tokens) + 1)
        return _Written(language, tuple(tokens), window.temperature, logprob, ratio, silent)

    def _ruled(self, logits: npt.NDArray[np.float32], tokens: list[int]) -> npt.NDArray[np.float32]:
        """Return the log probabilities of the next token, with the rules that time stamps come in
        pairs and never go back."""
        first = self._first_stamp
        scores = np.where(self._barred, -np.inf, logits)
        stamps = [token for token in tokens if token >= first]
        is_last, is_pair = tokens[-1:] == stamps[-1:] != [], len(tokens) < 2 or tokens[-2] >= first
        if not tokens:
            scores[:first] = -np.inf
            scores[first + _LATEST_START + 1 :] = -np.inf
        elif is_last and is_pair:
            scores[first:] = -np.inf  # a segment has begun
        elif is_last:
            scores[: self._end] = -np.inf  # a segment has ended
        if stamps:
            scores[first : stamps[-1] + (not is_last or is_pair)] = -np.inf
        scores = _logs(scores)
        if np.logaddexp.reduce(scores[first:]) > scores[:first].max():
            scores[:first] = -np.inf
            scores = _logs(scores)
        return scores

    def _text(self, tokens: npt.NDArray[np.int64]) -> str:
        pieces = [self._tokens[i] for i in tokens.tolist() if i < self._end]
        return b"".join(pieces).decode(errors="replace")

    # -- languages ----------------------------------------------------------------------------

    def task_of(self, audio: Audio) -> tuple[str | None, bool]:
        """Return the language of a sound, or None, and whether to translate it.

        Raises:
            PromptError: the model does not know the language, or cannot translate.
        """
        language = audio.language
        if not self.languages:
            if audio.translate or language not in (None, "en"):
                raise PromptError(f"{self._name} supports English only and cannot translate.")
            return None, False
        if language is not None and language not in self.languages:
            raise PromptError(
                f"{self._name} does not support the language {language!r}. Supported languages: "
                f"{', '.join(sorted(self.languages))}."
            )
        return language, audio.translate

    def _likeliest_language(self, logits: npt.NDArray[np.float32]) -> str:
        return max(self.languages, key=lambda one: float(logits[self.languages[one]]))

    def _prompt(self, language: str | None, translate: bool) -> list[int]:
        start = self._names["<|startoftranscript|>"]
        if language is None or not self.languages:
            return [start]
        task = "<|translate|>" if translate else "<|transcribe|>"
        return [start, self.languages[language], self._names[task]]


def _tensors(features: npt.NDArray[Any]) -> Any:
    """Return the features as the runtime's tensors, which refer to them."""
    found = og.NamedTensors()
    found["audio_features"] = features
    return found


def _logs(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = scores - np.logaddexp.reduce(scores)
    return found
