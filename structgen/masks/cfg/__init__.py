"""Walk grammars through the trie.

In reading order: `lexer_walks` (the trie in pre-order, and walks of terminals) and `masks` (walks
of goals, masks, token budgets). This file exports nothing: `masks` builds on the masks of other
types, so it is imported when the first grammar is compiled.
"""
