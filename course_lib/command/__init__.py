"""The `course` command. `cli` defines the subcommands; each calls one function."""
