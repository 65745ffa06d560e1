"""What notebook 2c says of the recorded steps is what the table says."""

from __future__ import annotations

from tests.labs.notebooks import recorded, text

TEXT = text("2c")


def test_two_hosts():
    runs = recorded("two_hosts")
    assert runs["weights"].nunique() == 1
    step = runs.set_index(["hosts", "launcher"])["seconds per step"].unstack("hosts") * 1e3
    limited = step.drop(columns=["one host", "two hosts"])
    added = limited.sub(step["two hosts"], axis=0)
    slow = "two hosts, 100 Mbit/s"
    times = limited[slow] / step["two hosts"]
    assert f"{times.min():.1f} to {times.max():.1f} times as long" in TEXT
    gloo, *mpi = added.loc[["horovodrun, Gloo", "horovodrun, MPI", "mpirun"], slow]
    assert f"became {gloo:.0f} ms longer with Gloo, {mpi[0]:.0f} and {mpi[1]:.0f} ms with MPI" in TEXT
    assert f"it added between {added[slow].min():.0f} and {added[slow].max():.0f} ms" in text("2f")
    cable = 1e3 * runs.groupby("hosts")["cable alone"].first()
    assert f"they need {cable[slow]:.0f} ms" in TEXT
    scatter = 1e3 * (runs["slowest tenth"] - runs["fastest tenth"]).groupby(runs["hosts"]).min()
    assert scatter[slow] > (added[slow] - cable[slow]).abs().max()
