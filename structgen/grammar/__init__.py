"""Source languages lowered to one grammar IR."""
