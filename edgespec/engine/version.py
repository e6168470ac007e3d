"""The format of `model.edge` that this edgespec writes and reads: what a plan must know of the compiler."""

VERSION = 1
