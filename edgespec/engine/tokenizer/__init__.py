"""tokenizer.json compiled to tables that the Worker reads in place. Pure."""
