"""`init`: a working project from a template per task, and its CI."""
