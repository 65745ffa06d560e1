"""What notebook 2c and its checks say of the recorded steps is what the tables say."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab2_horovod.lessons import checks_2c, step_time
from tests.labs.notebooks import recorded, text

TEXT = text("2c")


def test_two_hosts():
    runs = recorded("two_hosts")
    assert runs["weights"].nunique() == 1
    step = runs.set_index(["hosts", "launcher"])["seconds per step"].unstack("hosts") * 1e3
    limited = step.drop(columns=["one host", "two hosts"])
    added = limited.sub(step["two hosts"], axis=0)
    slow, fast = "two hosts, 100 Mbit/s", "two hosts, 1 Gbit/s"
    times = limited[slow] / step["two hosts"]
    assert f"{times.min():.1f} to {times.max():.1f} times as long" in TEXT
    gloo, *mpi = added.loc[["horovodrun, Gloo", "horovodrun, MPI", "mpirun"], fast]
    assert f"{gloo:.1f} ms longer with Gloo, {mpi[0]:.1f} and {mpi[1]:.1f} ms with MPI" in TEXT
    gloo, *mpi = added.loc[["horovodrun, Gloo", "horovodrun, MPI", "mpirun"], slow]
    assert f"{gloo:.0f} ms longer with Gloo, {mpi[0]:.0f} and {mpi[1]:.0f} ms with MPI" in TEXT
    assert f"it added between {added[slow].min():.0f} and {added[slow].max():.0f} ms" in TEXT
    cable = 1e3 * runs.groupby("hosts")["cable alone"].first()
    assert f"it needs {cable[fast]:.1f} ms" in TEXT
    assert f"they need {cable[slow]:.0f} ms" in TEXT
    scatter = 1e3 * (runs["slowest tenth"] - runs["fastest tenth"]).groupby(runs["hosts"]).min()
    assert scatter[fast] > added[fast].max() - cable[fast]


def test_tuning():
    medians = step_time.quiet(recorded("tuning")).groupby("setting")[["seconds", "bytes"]].median()
    ms, kilobytes = 1e3 * medians["seconds"], 1e-3 * medians["bytes"]
    assert f"a default step took {ms['default']:.0f} ms, of which {ms['no exchange']:.0f} ms without" in TEXT
    assert f"a step takes {ms['threshold 0']:.0f} ms, by default {ms['default']:.0f}" in TEXT
    assert f"{kilobytes['threshold 0']:.0f} kB were sent without fusion, {kilobytes['default']:.0f} kB" in TEXT
    assert f"no time gained: {ms['fp16']:.0f} ms" in TEXT
    assert f"a quarter of the bytes, {ms['4 passes']:.0f} ms" in TEXT
    assert f"with one of 20 a step takes {ms['cycle 20 ms']:.0f} ms, and {ms['cycle 50 ms']:.0f} with one" in TEXT
    assert f"with a cycle of 50 ms a step takes {ms['cycle 50 ms']:.0f}:" in TEXT
    assert ms["cycle 5 ms"] == pytest.approx(ms["default"], rel=0.1)
    saved, lost = (medians.loc[pair[0]] - medians.loc[pair[1]] for pair in (("default", "fp16"), ("fp16", "default")))
    assert f"pays below {8e-6 * saved['bytes'] / lost['seconds']:.0f} Mbit/s" in TEXT


def test_the_check_reckons_with_the_recorded_table():
    medians = step_time.quiet(recorded("tuning")).groupby("setting")["seconds"].median()
    for (_, later), setting in zip(checks_2c.FUSED_LATER, ("default", "threshold 64 Ki", "threshold 0")):
        assert later == round(round(medians[setting], 4) - round(medians["default"], 4), 4)
    assert medians["threshold 256 Ki"] == pytest.approx(medians["default"], rel=0.02)
    assert [seconds for seconds, _ in checks_2c.RECORDED] == [round(medians[name], 4) for name in ("default", "fp16")]
    for cycle in (5, 20, 50):
        expected = checks_2c.expected_step({**checks_2c.BEST, "cycle_ms": cycle}, np.inf)
        assert expected == pytest.approx(medians[f"cycle {cycle} ms"], rel=0.06)


def test_no_knob_halves_the_step_by_itself():
    given = checks_2c.expected_step(checks_2c.GIVEN, checks_2c.SLOW)
    for knob, value in {**checks_2c.BEST, "compression": "fp16"}.items():
        assert checks_2c.expected_step({**checks_2c.GIVEN, knob: value}, checks_2c.SLOW) > given / 2


def test_scaling():
    runs = step_time.quiet(recorded("scaling"))
    runs = runs.assign(rate=runs["ranks"] * runs["batch"] / runs["seconds"])
    rate = runs.groupby(["setting", "ranks"])["rate"].median()
    two = runs.query("setting == 'weak copies' and ranks == 2")["rate"]
    copies = [rate[f"{kind} copies", ranks].round(-1) for kind in ("weak", "strong") for ranks in (2, 3, 4)]
    others = [rate["alone, all cores", 1], rate["strong", 2], rate["weak", 2], two.min(), two.max()]
    for told in (*copies, *np.round(others, -2)):
        assert f"{told:,.0f}" in TEXT
    lost = {kind: 1 - rate[f"{kind} copies", 2] / rate["alone", 1] / 2 for kind in ("weak", "strong")}
    assert f"lose {lost['weak']:.0%} (weak) and {lost['strong']:.0%} (strong)".replace("%", " %") in TEXT
    seconds = 1e3 * runs.groupby(["setting", "ranks"])["seconds"].median()
    exchange = {(kind, n): seconds[kind, n] - seconds[f"{kind} copies", n] for kind in lost for n in (2, 3, 4)}
    assert f"{exchange['weak', 2]:.1f} ms of a weak step and {exchange['strong', 2]:.1f} ms of a strong" in TEXT
    assert f"to {exchange['weak', 3]:.0f} ms (weak) and {exchange['strong', 3]:.0f} ms (strong) on 3 ranks" in text(
        "2c"
    )
    assert f"to {exchange['weak', 4]:.0f} and {exchange['strong', 4]:.0f} ms on 4" in TEXT
    efficiency = [f"{rate[kind, 2] / rate['alone', 1] / 2:.2f}"[1:] for kind in ("strong", "weak")]
    assert "its efficiency is {}, not {}".format(*efficiency) in TEXT
    startup = runs.groupby("ranks")["startup"]
    alone, low, high = startup.median()[1], startup.min()[4], startup.max()[4]
    assert f"about {alone:.0f} s with one rank, {low:.0f} to {high:.0f} s with four" in TEXT
