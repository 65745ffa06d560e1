"""What notebook 2f and its checks say of the recorded steps is what the tables say."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab2_horovod.lessons import checks_2f, step_time
from tests.labs.notebooks import recorded, text

TEXT = text("2f")


def test_tuning():
    medians = step_time.quiet(recorded("tuning")).groupby("setting")[["seconds", "bytes"]].median()
    ms, kilobytes = 1e3 * medians["seconds"], 1e-3 * medians["bytes"]
    assert f"a default step took {ms['default']:.0f} ms, of which {ms['no exchange']:.0f} ms without" in TEXT
    assert f"a step takes {ms['threshold 0']:.0f} ms, by default {ms['default']:.0f}" in TEXT
    assert f"{kilobytes['threshold 0']:.0f} kB were sent without fusion, {kilobytes['default']:.0f} kB" in TEXT
    assert f"no time gained: {ms['fp16']:.0f} ms" in TEXT
    assert f"in the fp16 step of {ms['fp16']:.1f} ms" in TEXT
    assert f"a quarter of the bytes, {ms['4 passes']:.0f} ms" in TEXT
    assert f"takes {ms['cycle 50 ms']:.0f}, and with one of 20 it takes {ms['cycle 20 ms']:.0f}:" in TEXT
    assert f"The recorded default step takes {ms['default']:.1f} ms" in TEXT
    free = checks_2f.FREE_CYCLE_MS / ms["default"]
    assert f"{free:.1f}" == "0.3" and f"A cycle of {checks_2f.FREE_CYCLE_MS} ms costs nothing" in TEXT
    assert ms["cycle 5 ms"] == pytest.approx(ms["default"], rel=0.1)
    saved, lost = (medians.loc[pair[0]] - medians.loc[pair[1]] for pair in (("default", "fp16"), ("fp16", "default")))
    assert f"pays below {8e-6 * saved['bytes'] / lost['seconds']:.0f} Mbit/s" in TEXT


def test_the_check_reckons_with_the_recorded_table():
    medians = step_time.quiet(recorded("tuning")).groupby("setting")["seconds"].median()
    for (_, later), setting in zip(checks_2f.FUSED_LATER, ("default", "threshold 64 Ki", "threshold 0")):
        assert later == round(round(medians[setting], 4) - round(medians["default"], 4), 4)
    assert medians["threshold 256 Ki"] == pytest.approx(medians["default"], rel=0.02)
    assert [seconds for seconds, _ in checks_2f.RECORDED] == [round(medians[name], 4) for name in ("default", "fp16")]
    for cycle in (5, 20, 50):
        expected = checks_2f.expected_step({**checks_2f.best(np.inf), "cycle_ms": cycle}, np.inf)
        assert expected == pytest.approx(medians[f"cycle {cycle} ms"], rel=0.06)


def test_no_knob_halves_the_step_by_itself():
    given = checks_2f.expected_step(checks_2f.GIVEN, checks_2f.SLOW)
    for knob, value in checks_2f.best(checks_2f.SLOW).items():
        assert checks_2f.expected_step({**checks_2f.GIVEN, knob: value}, checks_2f.SLOW) > given / 2


def test_scaling():
    runs = step_time.quiet(recorded("scaling"))
    runs = runs.assign(rate=runs["ranks"] * runs["batch"] / runs["seconds"])
    rate = runs.groupby(["setting", "ranks"])["rate"].median()
    copies = [rate["weak copies", ranks].round(-1) for ranks in (2, 3, 4)]
    others = [rate["alone, all cores", 1], rate["strong", 2], rate["weak", 2]]
    for told in (*copies, *np.round(others, -2)):
        assert f"{told:,.0f}" in TEXT
    lost = {kind: 1 - rate[f"{kind} copies", 2] / rate["alone", 1] / 2 for kind in ("weak", "strong")}
    assert f"lose {lost['weak']:.0%} (weak) and {lost['strong']:.0%} (strong)".replace("%", " %") in TEXT
    seconds = 1e3 * runs.groupby(["setting", "ranks"])["seconds"].median()
    exchange = {kind: seconds[kind, 2] - seconds[f"{kind} copies", 2] for kind in lost}
    assert f"{exchange['weak']:.1f} ms of a weak step and {exchange['strong']:.1f} ms of a strong" in TEXT
    efficiency = [f"{rate[kind, 2] / rate['alone', 1] / 2:.2f}"[1:] for kind in ("strong", "weak")]
    assert "its efficiency is {}, not {}".format(*efficiency) in TEXT
    startup = runs.groupby("ranks")["startup"]
    alone, low, high = startup.median()[1], startup.min()[4], startup.max()[4]
    assert f"about {alone:.0f} s with one rank, {low:.0f} to {high:.0f} s with four" in TEXT
