"""Images, and the launcher that builds them and starts containers."""
