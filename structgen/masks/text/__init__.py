"""Strings through the trie, by whole characters.

In reading order: `character_arrays` (the trie as characters, and what stays in a set), `characters`
(sets of characters there), `tables` (transitions as arrays, steps and ends), `quote_texts` (pieces
of a document), `text_walks` (the ways to walk, and which of them a text takes), `string_walks`
(with what stands around the text).
"""
