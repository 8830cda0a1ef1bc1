"""Ask a database in English: the grammar of the query is made from the tables that there are.

The model can name only tables and columns that exist, compare a column only with values of its
type, and write nothing but a SELECT. The connection is read-only besides.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import structgen
from structgen import Cfg, Generator

ROWS = [("Oslo", "Norway", 717710), ("Bergen", "Norway", 291940), ("Rome", "Italy", 2748109)]
VALUES = {"INTEGER": "NUMBER", "TEXT": "STRING"}


def make(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE cities (name TEXT, country TEXT, population INTEGER)")
        database.executemany("INSERT INTO cities VALUES (?, ?, ?)", ROWS)
    database.close()


def grammar(database: sqlite3.Connection) -> str:
    """The SELECT statements over the tables of a database, in Lark's syntax."""
    rules = []
    tables = [
        row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
    ]
    for table in tables:
        columns = {row[1]: row[2] for row in database.execute(f'PRAGMA table_info("{table}")')}
        names = " | ".join(f'"{column}"' for column in columns)
        tests = " | ".join(
            f'"{column} " OPERATOR " " {VALUES[kind]}' for column, kind in columns.items()
        )
        rules.append(f"""
{table}: "SELECT " {table}_what " FROM {table}" (" WHERE " {table}_test (" AND " {table}_test)?)?
{table}_what: {table}_column (", " {table}_column)? | "count(*)"
{table}_column: {names}
{table}_test: {tests}""")
    return "\n".join(
        [
            f'start: ({" | ".join(tables)}) ";"',
            *rules,
            'OPERATOR: "=" | "<" | ">"',
            "NUMBER: /[0-9]{1,9}/",
            "STRING: /'[A-Za-z ]{1,20}'/",
        ]
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.db"
        make(path)
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        model = structgen.load("smollm2-135m-instruct")
        generator = Generator(model, Cfg(grammar(database)))
        examples = (
            "-- cities(name, country, population)\n"
            "-- Which cities of Spain are there?\n"
            "SELECT name FROM cities WHERE country = 'Spain';\n"
            "-- Which cities have more than 5000 people?\n"
            "SELECT name FROM cities WHERE population > 5000;\n"
        )
        for question in (
            "Which cities of Norway are there?",
            "Which cities have more than 500000 people?",
        ):
            query = generator(f"{examples}-- {question}\n", max_new_tokens=60)
            print(question, query, [*database.execute(query)], sep="\n  ")
        database.close()


if __name__ == "__main__":
    main()
