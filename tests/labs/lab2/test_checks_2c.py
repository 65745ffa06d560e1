"""Notebook 2c: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib.system.paths import ROOT
from labs.lab2_horovod.lessons import checks_2c, step_time
from labs.lab2_horovod.lessons.checks_2c import check, points

NOTEBOOK = "2c_run_watch_tune"
EXERCISES = ("covered", "lateness", "steps_per_epoch", "pays_below", "tuned", "efficiency", "serial_fraction")

LOOP = """
for index in np.argsort(start):
    end = start[index] + seconds[index]
    total += max(0.0, end - max(start[index], latest))
    latest = max(latest, end)
"""
KEYS = '["tensor", "step"]'
MEAN = 'behind.groupby(arrivals["rank"]).mean()'
BEHIND = 'behind = arrivals["start"] - first'
SHARE = "len(range(rank, examples, ranks))"
ALL = "batches, steps, examples - ranks * batch * steps"
PAYS = "saved / lost if lost > 0 else np.inf"
FP16 = '"fp16" if with_it < without else "none"'
TUNED = f'{{"fusion_mb": 1 / 4, "cycle_ms": 5, "compression": {FP16}}}'
RELATIVE = "alone / seconds * (ranks if weak else 1)"
FRACTION = "(a * b).sum() / (a**2).sum()"
TRIED = "np.linspace(0, 0.4, 400_001)[:, None]"
IN_S = f"{TRIED}[((1 / ({TRIED} + (1 - {TRIED}) / ranks) - speedup) ** 2).sum(axis=1).argmin(), 0]"

WRONG = {
    "overlaps count twice": ("covered", (LOOP, "total = seconds.sum()"), "counts twice"),
    "gaps count too": ("covered", (LOOP, "total = np.max(start + seconds) - np.min(start)"), "gaps"),
    "only the end before": ("covered", ("max(latest, end)", "end"), "the latest end so far"),
    "negative parts": (
        "covered",
        ("max(0.0, end - max(start[index], latest))", "end - max(start[index], latest)"),
        "away",
    ),
    "not sorted": ("covered", ("np.argsort(start)", "range(len(start))"), "sort them first"),
    "milliseconds": ("covered", ("return total", "return 1000 * total"), "milliseconds"),
    "no return": ("covered", ("return total", "pass"), "returns nothing"),
    "in place": ("covered", ("total, latest = 0.0, -np.inf", "seconds += start; total, latest = 0, 0"), "in place"),
    "first arrival of all": (
        "lateness",
        (f'arrivals.groupby({KEYS})["start"].transform("min")', 'arrivals["start"].min()'),
        "very first arrival",
    ),
    "first of the step": ("lateness", (KEYS, '["step"]'), "Group by tensor too"),
    "first of the tensor": ("lateness", (KEYS, '["tensor"]'), "group by step too"),
    "compared with itself": ("lateness", (KEYS, '["rank"]'), "with itself"),
    "the median": ("lateness", (MEAN, MEAN.replace("mean", "median")), "That is the median"),
    "after the mean": (
        "lateness",
        (f'arrivals.groupby({KEYS})["start"].transform("min")', f'arrivals.groupby({KEYS})["start"].transform("mean")'),
        "from the mean arrival",
    ),
    "the sum": ("lateness", (MEAN, MEAN.replace("mean", "sum")), "return the mean"),
    "the worst": ("lateness", (MEAN, MEAN.replace("mean", "max")), "worst case"),
    "means compared": (
        "lateness",
        (MEAN, 'arrivals.groupby("rank")["start"].mean() - arrivals.groupby("rank")["start"].mean().min()'),
        "before you average",
    ),
    "the sign": ("lateness", ('arrivals["start"] - first', 'first - arrivals["start"]'), "sign"),
    "a new column": ("lateness", (BEHIND, f'arrivals["first"] = first; {BEHIND}'), "add no columns"),
    "a row for each arrival": ("lateness", (MEAN, "behind"), "the lateness of three ranks should be"),
    "small batches forgotten": ("steps_per_epoch", ("-(-share // batch)", "share // batch"), "smaller batch"),
    "one batch too many": ("steps_per_epoch", ("-(-share // batch)", "share // batch + 1"), "no further batch"),
    "all shares alike": ("steps_per_epoch", (SHARE, "examples // ranks"), "the first ranks have one more"),
    "the most, not the least": ("steps_per_epoch", ("min(shares)", "max(shares)"), "has not so many"),
    "the last counts as full": ("steps_per_epoch", ("min(shares) // batch", "min(batches)"), "count full batches"),
    "left on one rank": ("steps_per_epoch", ("ranks * batch * steps", "batch * steps"), "on every rank"),
    "what is used": (
        "steps_per_epoch",
        ("examples - ranks * batch * steps", "ranks * batch * steps"),
        "that are used",
    ),
    "only the steps": ("steps_per_epoch", (ALL, "steps"), "batches, steps, left"),
    "upside down, seconds for a byte": ("pays_below", ("saved / lost", "lost / saved"), "Upside down"),
    "bits": ("pays_below", ("saved / lost", "8 * saved / lost"), "in bits"),
    "all bytes": ("pays_below", ("plain[1] - compressed[1]", "plain[1]"), "all bytes"),
    "bytes that still travel": ("pays_below", ("plain[1] - compressed[1]", "compressed[1]"), "still travel"),
    "a negative bandwidth": ("pays_below", ("plain[1] - compressed[1]", "compressed[1] - plain[1]"), "The sign"),
    "divided by nothing": ("pays_below", (PAYS, "saved / lost"), "divide by 0"),
    "negative where it is faster": ("pays_below", ("lost > 0", "lost"), "pays on every link"),
    "never in place of always": ("pays_below", ("np.inf", "0.0"), "pays on every link"),
    "no bandwidth returned": ("pays_below", (f"return {PAYS}", "pass"), "a `return` missing"),
    "never fp16": ("tuned", (FP16, '"none"'), "bytes take longer"),
    "always fp16": ("tuned", (FP16, '"fp16"'), "compression loses"),
    "fp16 for the recorded machine alone": (
        "tuned",
        (FP16, '"fp16" if megabits < 682 else "none"'),
        "at 10,000 Mbit/s, where a step computes 100 ms",
    ),
    "bits for bytes": ("tuned", ("8e-6", "1e-6"), "at 300 Mbit/s"),
    "MB a second": ("tuned", ("8e-6", "1e-6 / 8"), "bytes take longer"),
    "the seconds alone": ("tuned", ("t + size * 8e-6 / megabits", "t"), "bytes take longer"),
    "the bytes alone": ("tuned", ("t + size * 8e-6 / megabits", "size"), "compression loses"),
    "no fusion": ("tuned", ("1 / 4", "0"), "41 gradients travel"),
    "too little fusion": ("tuned", ("1 / 4", "1 / 16"), "41 gradients travel"),
    "the default buffer": ("tuned", ("1 / 4", "128"), "a smaller threshold is as fast"),
    "bytes in place of MiB": ("tuned", ("1 / 4", "2**18"), "one of the recorded values"),
    "a long cycle": ("tuned", ("5", "20"), "The cycle is too long"),
    "a very long cycle": ("tuned", ("5", "50"), "The cycle is too long"),
    "the default cycle": ("tuned", ("5", "1"), "talk more often"),
    "seconds": ("tuned", ("5", "0.005"), "one of the recorded values"),
    "true in place of a name": ("tuned", (FP16, "with_it < without"), "'none' or 'fp16'"),
    "a knob forgotten": ("tuned", (TUNED, '{"fusion_mb": 1 / 4, "cycle_ms": 5}'), "a dict with the keys"),
    "no settings returned": ("tuned", (f"return {TUNED}", "pass"), "a `return` missing"),
    "the speed-up": ("efficiency", ("speedup / ranks", "speedup"), "That is the speed-up"),
    "strong for both": ("efficiency", (RELATIVE, "alone / seconds"), "Don't divide by N"),
    "weak for both": ("efficiency", ("ranks if weak else 1", "ranks"), "That is the speed-up"),
    "upside down": ("efficiency", ("alone / seconds", "seconds / alone"), "Upside down"),
    "the inverse": ("efficiency", ("speedup / ranks", "ranks / speedup"), "Upside down"),
    "multiplied": ("efficiency", ("speedup / ranks", "speedup * ranks"), "don't multiply"),
    "the first in place of one rank's": ("efficiency", ("seconds[ranks == 1]", "seconds[0]"), "wherever it stands"),
    "per cent": ("efficiency", ("speedup / ranks", "100 * speedup / ranks"), "not in per cent"),
    "halved in place": (
        "efficiency",
        ("alone = seconds[ranks == 1]", "alone = seconds[ranks == 1]; seconds /= 2"),
        "in place",
    ),
    "the parallel share": ("serial_fraction", (FRACTION, f"1 - {FRACTION}"), "parallel share"),
    "linear in S": ("serial_fraction", ("1 / speedup", "speedup"), "for 1/S, not for S"),
    "b without 1/N": ("serial_fraction", ("1 / speedup - 1 / ranks", "1 / speedup"), "a 1/N is missing"),
    "divided by b²": ("serial_fraction", ("(a**2).sum()", "(b**2).sum()"), "Upside down"),
    "not divided": ("serial_fraction", (FRACTION, "(a * b).sum()"), "The quotient is missing"),
    "the mean of each": ("serial_fraction", (FRACTION, "(b[a > 0] / a[a > 0]).mean()"), "mean of"),
    "the last point": ("serial_fraction", (FRACTION, "b[-1] / a[-1]"), "use all points"),
    "least squares in S": ("serial_fraction", (FRACTION, IN_S), "in 1/S"),
    "an array": ("serial_fraction", (FRACTION, "b / np.maximum(a, 1e-9)"), "one number is expected"),
    "warnings": ("serial_fraction", (FRACTION, "(b / a).sum()"), "returns nan"),
}


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(answer, exercise, capsys):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert capsys.readouterr() == ("", "")
    assert all(verdict.passed for verdict in check(solution).verdicts)


@pytest.mark.parametrize(("exercise", "edit", "word"), WRONG.values(), ids=WRONG)
def test_a_mistake_costs_points_and_is_named(answer, exercise, edit, word, capsys):
    assert points(answer(NOTEBOOK, exercise, edit), 6) < 6
    said = capsys.readouterr()
    assert word in said.out
    assert said.err == ""  # nbgrader gives nothing for a cell that warns


@pytest.mark.parametrize("exercise", EXERCISES)
def test_doing_nothing_earns_nothing(exercise):
    for result in (None, 0, 0.0, [], ""):

        def lazy(*arguments, result=result):
            return result

        lazy.__name__ = exercise
        assert points(lazy, 6) == 0.0


def test_another_way_is_right_too():
    def covered(start, seconds):
        grid = np.unique(np.concatenate([start, start + seconds]))
        middle = (grid[1:] + grid[:-1]) / 2
        inside = ((middle > start[:, None]) & (middle < (start + seconds)[:, None])).any(axis=0)
        return float(np.diff(grid)[inside].sum())

    def lateness(arrivals):
        wide = arrivals.pivot(index=["tensor", "step"], columns="rank", values="start")
        return wide.sub(wide.min(axis=1), axis=0).mean().to_dict()

    assert points(covered, 6) == points(lateness, 6) == 6.0


def test_a_line_with_a_free_slope_is_not_the_law(capsys):
    def serial_fraction(ranks, speedup):
        return np.polyfit(1 / ranks, 1 / speedup, 1)[1] if len(ranks) > 1 else 0.3

    assert 0 < points(serial_fraction, 3) < 3
    assert "one number only" in capsys.readouterr().out


# What a measured step is told


def test_a_measured_step_that_is_not_halved_is_blamed_on_the_knob_that_costs_most():
    def told(share=0.9, **knobs):
        return checks_2c.halved(share, {**checks_2c.BEST, "compression": "fp16", **knobs})

    assert told(0.4).startswith("Halved")
    assert "too small" in told(fusion_mb=0)
    assert "too long" in told(cycle_ms=50)
    assert "halve them" in told(compression="none")
    assert "too small" in told(fusion_mb=1 / 16, cycle_ms=20)
    assert "measure again" in told()


# What the text and the checks say of the recorded tables


def recorded(name):
    return pd.read_csv(ROOT / "labs" / "lab2_horovod" / "recorded" / f"{name}.csv", comment="#")


def text():
    lines = (ROOT / "labs" / "lab2_horovod" / f"{NOTEBOOK}.py").read_text(encoding="utf-8").splitlines()
    return " ".join(line[2:].strip() for line in lines if line.startswith("# "))


def test_two_hosts():
    runs = recorded("two_hosts")
    assert runs["weights"].nunique() == 1
    step = runs.set_index(["hosts", "launcher"])["seconds per step"].unstack("hosts") * 1e3
    limited = step.drop(columns=["one host", "two hosts"])
    added = limited.sub(step["two hosts"], axis=0)
    slow, fast = "two hosts, 100 Mbit/s", "two hosts, 1 Gbit/s"
    times = limited[slow] / step["two hosts"]
    assert f"{times.min():.1f} to {times.max():.1f} times as long" in text()
    gloo, *mpi = added.loc[["horovodrun, Gloo", "horovodrun, MPI", "mpirun"], fast]
    assert f"{gloo:.1f} ms longer with Gloo, {mpi[0]:.1f} and {mpi[1]:.1f} ms with MPI" in text()
    gloo, *mpi = added.loc[["horovodrun, Gloo", "horovodrun, MPI", "mpirun"], slow]
    assert f"{gloo:.0f} ms longer with Gloo, {mpi[0]:.0f} and {mpi[1]:.0f} ms with MPI" in text()
    assert f"it added between {added[slow].min():.0f} and {added[slow].max():.0f} ms" in text()
    cable = 1e3 * runs.groupby("hosts")["cable alone"].first()
    assert f"it needs {cable[fast]:.1f} ms" in text()
    assert f"they need {cable[slow]:.0f} ms" in text()
    scatter = 1e3 * (runs["slowest tenth"] - runs["fastest tenth"]).groupby(runs["hosts"]).min()
    assert scatter[fast] > added[fast].max() - cable[fast]


def test_tuning():
    medians = step_time.quiet(recorded("tuning")).groupby("setting")[["seconds", "bytes"]].median()
    ms, kilobytes = 1e3 * medians["seconds"], 1e-3 * medians["bytes"]
    assert f"a default step took {ms['default']:.0f} ms, of which {ms['no exchange']:.0f} ms without" in text()
    assert f"a step takes {ms['threshold 0']:.0f} ms, by default {ms['default']:.0f}" in text()
    assert f"{kilobytes['threshold 0']:.0f} kB were sent without fusion, {kilobytes['default']:.0f} kB" in text()
    assert f"no time gained: {ms['fp16']:.0f} ms" in text()
    assert f"a quarter of the bytes, {ms['4 passes']:.0f} ms" in text()
    assert f"with one of 20 a step takes {ms['cycle 20 ms']:.0f} ms, and {ms['cycle 50 ms']:.0f} with one" in text()
    assert f"with a cycle of 50 ms a step takes {ms['cycle 50 ms']:.0f}:" in text()
    assert ms["cycle 5 ms"] == pytest.approx(ms["default"], rel=0.1)
    saved, lost = (medians.loc[pair[0]] - medians.loc[pair[1]] for pair in (("default", "fp16"), ("fp16", "default")))
    assert f"pays below {8e-6 * saved['bytes'] / lost['seconds']:.0f} Mbit/s" in text()


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
        assert f"{told:,.0f}" in text()
    lost = {kind: 1 - rate[f"{kind} copies", 2] / rate["alone", 1] / 2 for kind in ("weak", "strong")}
    assert f"lose {lost['weak']:.0%} (weak) and {lost['strong']:.0%} (strong)".replace("%", " %") in text()
    seconds = 1e3 * runs.groupby(["setting", "ranks"])["seconds"].median()
    exchange = {(kind, n): seconds[kind, n] - seconds[f"{kind} copies", n] for kind in lost for n in (2, 3, 4)}
    assert f"{exchange['weak', 2]:.1f} ms of a weak step and {exchange['strong', 2]:.1f} ms of a strong" in text()
    assert f"to {exchange['weak', 3]:.0f} ms (weak) and {exchange['strong', 3]:.0f} ms (strong) on 3 ranks" in text()
    assert f"to {exchange['weak', 4]:.0f} and {exchange['strong', 4]:.0f} ms on 4" in text()
    efficiency = [f"{rate[kind, 2] / rate['alone', 1] / 2:.2f}"[1:] for kind in ("strong", "weak")]
    assert "its efficiency is {}, not {}".format(*efficiency) in text()
    startup = runs.groupby("ranks")["startup"]
    alone, low, high = startup.median()[1], startup.min()[4], startup.max()[4]
    assert f"about {alone:.0f} s with one rank, {low:.0f} to {high:.0f} s with four" in text()
