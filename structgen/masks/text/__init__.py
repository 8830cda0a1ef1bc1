"""Walk strings through the trie, by whole characters.

In reading order: `character_arrays` (the trie as characters), `characters` (sets of characters
there), `tables` (transitions as arrays, walks of single characters), `quote_texts` (pieces of a
document), `text_walks` (the ways to walk a text, and the choice among them), `string_walks` (texts
with their quotes).
"""
