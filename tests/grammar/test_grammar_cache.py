"""What is kept of grammars on disk: the same as without, and never in the way."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import real_tokenizers

import structgen
from structgen import Cfg
from structgen.automaton.cfg import frame
from structgen.errors import GrammarError, Unsatisfiable
from structgen.grammar.cfg import cache as grammar_cache
from structgen.grammar.cfg import lark as loader
from structgen.grammar.cfg import library as grammars
from structgen.masks.cfg.masks import CfgMaskEngine
from structgen.storage import array_cache

SUMS = 'start: sum\nsum: sum "+" term | term\nterm: NUMBER | "(" sum ")"\nNUMBER: /[0-9]+/\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(array_cache, "root", lambda: tmp_path / "arrays")
    return tmp_path / "arrays" / "grammars"


def files(folder: Path) -> list[Path]:
    array_cache.flush()
    return sorted(folder.glob("*")) if folder.exists() else []


def test_rules_are_the_same_from_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [Cfg.named(name).text for name in grammars.names()]
    fresh = [loader.parse(text) for text in texts]
    assert len(files(folder)) == len(texts)
    monkeypatch.setattr(loader, "_read", None)
    assert [loader.parse(text) for text in texts] == fresh


def test_start_and_text_both_count(folder: Path) -> None:
    assert loader.parse(SUMS).nonterminals != loader.parse(SUMS, "term").nonterminals
    assert loader.parse(SUMS).terminals != loader.parse(SUMS.replace("+", "-")).terminals
    assert len(files(folder)) == 3


def test_damaged_files_are_read_anew(folder: Path) -> None:
    fresh = loader.parse(SUMS)
    (file,) = files(folder)
    whole = file.read_bytes()
    for data in (b"", whole[:-1], whole[:-70] + b"[" + whole[-69:], b"x" * len(whole)):
        file.write_bytes(data)
        assert loader.parse(SUMS) == fresh
        array_cache.flush()
    assert file.read_bytes() == whole


def test_what_is_not_in_the_text_is_not_kept(folder: Path, tmp_path: Path) -> None:
    imported = tmp_path / "numbers.lark"
    main = tmp_path / "main.lark"
    main.write_text("%import .numbers.NUMBER\nstart: NUMBER\n")
    patterns = []
    for digits in ("[0-9]+", "[0-7]+"):
        imported.write_text(f"NUMBER: /{digits}/\n")
        (terminal,) = loader.parse(main.read_text(), "start", str(main)).terminals
        patterns.append(getattr(terminal, "pattern", None))
    assert patterns[0] != patterns[1]
    with pytest.raises(GrammarError):
        loader.parse("start: missing")
    loader.parse('start: "a" %json {"type": "null"}')
    assert files(folder) == []


def test_other_code_has_other_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader.parse(SUMS)
    monkeypatch.setattr(grammar_cache, "_code", lambda: "other code")
    loader.parse(SUMS)
    assert len(files(folder)) == 2


def test_first_masks_are_the_same_from_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    text = Cfg.named("sql-select").text
    rows = []
    for _ in range(2):
        constraint = structgen.compile(Cfg(text), vocabulary)
        row = np.zeros((vocabulary.size + 31) // 32, np.uint32)
        constraint.start().fill_mask(row)
        rows.append(row.tobytes())
        if len(rows) == 1:
            monkeypatch.setattr(CfgMaskEngine, "_put_together", None)
            monkeypatch.setattr(loader, "_read", None)
    assert rows[0] == rows[1]


def test_a_first_mask_from_disk_builds_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    text = "SELECT a FROM b WHERE c IN (1, 2)"

    def masks(constraint: structgen.Constraint) -> list[bytes]:
        cursor = constraint.start()
        row = np.zeros((vocabulary.size + 31) // 32, np.uint32)
        rows = []
        for token in (*constraint.named.encode(text.encode()), None):
            cursor.fill_mask(row)
            rows.append(row.tobytes())
            if token is not None:
                cursor.accept(token)
        return rows

    fresh = masks(structgen.compile(Cfg.named("sql-select"), vocabulary))
    row = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    with monkeypatch.context() as context:
        context.setattr(frame, "Terminals", None)
        constraint = structgen.compile(Cfg.named("sql-select"), vocabulary)
        constraint.start().fill_mask(row)
    assert row.tobytes() == fresh[0]
    # Whoever comes next builds the rest, once.
    found: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda: found.append(masks(constraint))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [fresh] * 4


def test_of_a_new_grammar_only_the_rules_are_looked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    looked_for: list[str] = []
    find = array_cache.find

    def counted(folder: str, name: str, key: str) -> array_cache.Arrays | None:
        looked_for.append(name)
        return find(folder, name, key)

    monkeypatch.setattr(array_cache, "find", counted)
    row = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    for files_met in (1, 3, 3):
        looked_for.clear()
        structgen.compile(Cfg.named("json"), vocabulary).start().fill_mask(row)
        assert len(looked_for) == files_met
        # What this process has kept is found, on its way or on disk.
        monkeypatch.setattr(CfgMaskEngine, "_put_together", None)
        array_cache.flush()


def test_grammars_without_a_text_are_refused_every_time(folder: Path) -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    rules = "".join(f"r{i}: A B r{i + 1}\n" for i in range(12))
    text = f"start: r0\n{rules}r12: A B\nA: /[a-z]+/\nB: /[a-z]+/\n"
    for _ in range(2):
        with pytest.raises(Unsatisfiable):
            structgen.compile(Cfg(text), vocabulary)


def test_files_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_cache, "MAX_FILES", 8)
    data = {"array": np.zeros(1, np.uint8)}
    for i in range(200):
        looks = i % 5 == 0
        grammar_cache._keep(f"{16 * i + (not looks):04x}", lambda: data)
        assert len(files(folder)) <= (8 if looks else 12)


def test_a_folder_that_cannot_be_used_is_as_good_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(array_cache, "root", lambda: blocked)
    assert array_cache.load("grammars", "a", "a") is None
    assert loader.parse(SUMS) == loader.parse(SUMS)
