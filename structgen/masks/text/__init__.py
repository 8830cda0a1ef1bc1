"""Strings through the trie, by whole characters.

In reading order: `character_nodes` and `characters` (the trie as characters), `character_arrays`
and `character_runs` (what stays in a set), `tables` (transitions as arrays, steps and ends),
`text_walks` (the ways to walk, and which of them a text takes), `string_walks` (with what stands
around the text).
"""
