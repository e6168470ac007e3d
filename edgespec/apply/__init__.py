"""Read what is live, follow a plan's steps, keep state true at every moment."""
