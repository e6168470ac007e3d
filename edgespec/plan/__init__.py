"""Desired state against what was last done and what is live: changes for people, steps for the applier."""
