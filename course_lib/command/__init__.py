"""The `course` command: `cli` has its subcommands, each of which calls one function."""
