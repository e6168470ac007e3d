"""Resource types: everything about each that needs no I/O, and compile: specs to the desired graph."""
