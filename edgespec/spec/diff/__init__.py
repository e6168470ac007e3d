"""What differs between two projects, as a reviewer wants to read it: by meaning, not by line."""
