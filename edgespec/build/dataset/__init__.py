"""Data files as examples: formats (JSON Lines, CSV, Parquet, plain text) to rows, rows to examples and their facts."""
