"""Let a model play chess against itself: it can write legal moves only.

pip install chess
"""

from __future__ import annotations

import chess

import structgen
from structgen import Choice, Generator

OPENING = ["e4", "e5", "Nf3", "Nc6"]


def main() -> None:
    model = structgen.load("smollm2-135m-instruct")
    board = chess.Board()
    game = ""
    for ply in range(10):
        if board.is_game_over():
            break
        number = f"{board.fullmove_number}." if board.turn else ""
        legal = [board.san(move) for move in board.legal_moves]
        # Each position has moves, and so a type, of its own: it compiles in a millisecond.
        move = (
            OPENING[ply]
            if ply < len(OPENING)
            else Generator(model, Choice(legal)).parse(f"{game}{number}")
        )
        board.push_san(move)
        game += f"{number}{move} "
    print(game)
    print(board)


if __name__ == "__main__":
    main()
