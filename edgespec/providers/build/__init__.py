"""The adapter between the resource graph and the build pipeline."""
