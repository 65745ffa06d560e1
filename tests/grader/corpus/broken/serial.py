"""The starter as it was handed out: it runs, twice, and each process trains a network of its own."""
#: starter
