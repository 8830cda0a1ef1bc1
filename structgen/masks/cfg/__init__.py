"""Grammars through the trie.

In reading order: `lexer_walks` (the trie in pre-order, and terminals, shared by grammars), `masks`
(open goals, masks, and what budgets ask).

Nothing is offered here: `masks` is imported where the first grammar is compiled, because it builds
on the masks of other types.
"""
