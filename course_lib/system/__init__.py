"""The lowest layer, which all other packages may import: errors, files, paths, processes, signals."""
