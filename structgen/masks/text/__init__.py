"""Strings through the trie, by whole characters.

In reading order: `character_nodes` and `characters` (the trie as characters), `character_runs` and
`lone_runs` (what stays in a set), `alphabet_points`, `transition_table` and `tables` (transitions
as arrays), `ends`, `steps`, `runs`, `levels`, `open_texts`, `differences` (ways to walk), `walks`
(which of them a text takes) and `string_walks` (with what stands around the text).
"""
