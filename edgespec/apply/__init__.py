"""Read what is live, follow a plan's steps, keep state true at every moment."""

from typing import Final

PARALLELISM: Final = 8
"""Steps at once where nobody says otherwise."""
