"""What edgespec did last time: an immutable snapshot, and its text."""
