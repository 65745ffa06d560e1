"""What all else stands on: errors, files, paths, processes, signals."""
