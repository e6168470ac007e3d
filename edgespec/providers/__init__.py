"""The I/O half of every resource type."""
