"""Byte recognisers built lazily from the grammar IR."""
