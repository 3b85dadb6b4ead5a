"""Results of commands as text for people and as values for JSON: `to_text` and `to_dict` for each kind of result."""
