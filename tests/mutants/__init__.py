"""Mutation testing of edgespec/plan and edgespec/state: `scripts/mutants`."""
