"""An editor saved it in Latin-1."""
#: plain
#: - cifar = data.load
#: + print("Ger@latin-1@t", hvd.local_rank())
#: + cifar = data.load
