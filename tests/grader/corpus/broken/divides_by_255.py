"""Scales the images to 0 ... 1, as for other networks: this one scales them itself."""
#: plain
#: - model = models.
#: + x = x.astype("float32") / 255
#: + model = models.
