"""Plans and results as text. Pure: values in, lines out; who prints them decides about colour and width."""
