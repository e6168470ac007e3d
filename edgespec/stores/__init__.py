"""Where state is kept."""
