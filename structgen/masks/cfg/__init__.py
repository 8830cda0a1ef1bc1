"""Grammars through the trie.

In reading order: `tokens` (sets of token ids), `byte_runs` (the trie in pre-order), `lexer_walks`
(terminals, shared by grammars), `nonterminal_walks` (open goals, and stacks of them), `masks`
(masks, and what budgets ask).

Nothing is offered here: `masks` is imported where the first grammar is compiled, because it builds
on the masks of other types.
"""
