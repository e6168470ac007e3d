"""The command line: arguments in, exit code out. One short module a command."""
