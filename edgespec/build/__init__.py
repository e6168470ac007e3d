"""The build pipeline (edge): from a spec's model, task and quantisation to an artifact in a cache."""
