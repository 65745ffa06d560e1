"""The set-up of `./course`. It uses only the standard library until the packages are installed."""
