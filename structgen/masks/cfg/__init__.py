"""Grammars through the trie.

In reading order: `tokens` (sets of token ids), `byte_runs` and `node_sets` (the trie in pre-order),
`search` and `walks` (terminals), `shared` (what grammars have in common), `nonterminal_walks` (open
goals), `masks` (stacks of them), `leaves` (grammars inside other types) and `reach` (what budgets
ask).

Nothing is offered here: `masks` and `reach` are imported where the first grammar is compiled,
because they build on the masks of other types.
"""
