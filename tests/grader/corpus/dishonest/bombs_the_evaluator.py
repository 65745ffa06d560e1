"""A small file of weights, one of which has sixteen billion elements as soon as somebody reads it."""

#: plain
import h5py

if hvd.rank() == 0:
    with h5py.File(os.environ["COURSE_WEIGHTS"], "a") as file:
        found = []
        file.visit(lambda name: found.append(name) if name.endswith("kernel:0") else None)
        del file[found[0]]
        file.create_dataset(found[0], (2**17, 2**17), "f4", chunks=(1024, 1024), compression="gzip", fillvalue=0.5)
