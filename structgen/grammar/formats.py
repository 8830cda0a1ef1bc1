def format_regex(name): return None
