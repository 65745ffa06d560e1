"""Run a learner's script on one rank and on all, measure what it did, say what it is worth.

What the script prints, writes or reports is shown but not believed. The clock is ours, the ranks run in a sandbox
(see `sandbox`), the accuracy is that of the saved weights on images that the sandbox does not hold (see `evaluator`),
and the rest is what `evidence` and `criteria` say.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from course_grader.sandbox import Sandbox, bubblewrap
from course_grader.script import calibration, criteria, slots, static_analysis, watermarks
from course_grader.script import contract as contracts
from course_grader.script.contract import Contract
from course_grader.script.evaluator import Evaluator
from course_lib import data
from course_lib.data.published import PUBLISHED
from course_lib.notebook.judging import Verdict, judge
from course_lib.ranks import environment, launch, remote, run_record
from course_lib.system.errors import CourseError

SERIAL_IMAGES = 640  # images of the run on one rank, which need not learn anything
SERIAL_UPDATES = 2  # that it has images for at least, where the profile asks for a batch
SERIAL_LIMIT_S = 60.0  # and its time limit, where the profile's is not shorter, before calibration
MIN_FREE_BYTES = 2**30  # where temporary files go
TAIL_LINES = 8  # last lines of a failed run that are shown
MAX_CLAIM_CHARACTERS = 300  # at the end of a printed line, that are searched for a claim
_CLAIM = re.compile(r"acc(?:uracy)?[ =:]{1,3}(?:is |of )?(\d\d?\d?(?:\.\d+)?) ?(%?)", re.IGNORECASE)


class CannotGrade(CourseError):
    """The host lacks what grading needs. This says nothing about the script."""

    def __init__(self, sentence: str, code: int = 2) -> None:
        super().__init__(sentence, code)


class Stopped(CannotGrade):
    """The user stopped the assessment."""

    def __init__(self) -> None:
        super().__init__("Stopped.", code=130)


@dataclass(frozen=True)
class Outcome:
    """What came of an assessment.

    Attributes:
        passed: enough points, all criteria met that the contract requires, and nothing that needs a look.
        seconds: of the run on all ranks; None where it did not take place.
        limit: the seconds that it could take: the profile's times `factor`.
        factor: how much more time this host gets, by its calibration.
        train_accuracy, test_accuracy: of the saved weights; None where there are none that can be used.
        claimed: the accuracy that the script printed last; None where it printed none.
        sandbox: "bubblewrap" or "none"; `weaknesses`: what it does not protect, in sentences.
        error: what went wrong with the run as a whole, with the last lines of the rank that failed first.
        look: what the script does that training does not need, with its lines.
        needs_a_look: nothing but that stands between the script and its pass: a person has to look at it.
    """

    passed: bool
    score: float
    max_score: float
    profile: str
    ranks: int
    data: str
    seconds: float | None
    train_accuracy: float | None
    test_accuracy: float | None
    verdicts: tuple[Verdict, ...]
    limit: float
    factor: float
    sandbox: str
    weaknesses: tuple[str, ...] = ()
    claimed: float | None = None
    error: str = ""
    look: tuple[str, ...] = ()
    needs_a_look: bool = False

    def as_json(self) -> dict[str, Any]:
        """The object that `course assess --json` writes."""
        table = asdict(self)
        table["criteria"] = [{**asdict(verdict), "passed": verdict.passed} for verdict in self.verdicts]
        del table["verdicts"]
        return table

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Outcome:
        """The outcome of which `as_json` made `table`."""
        verdicts = tuple(Verdict(**{k: v for k, v in row.items() if k != "passed"}) for row in table["criteria"])
        rest = {key: value for key, value in table.items() if key not in ("criteria", "weaknesses", "look")}
        return cls(**rest, verdicts=verdicts, weaknesses=tuple(table["weaknesses"]), look=tuple(table["look"]))


def assess(
    script: str | Path,
    *,
    ranks: int | None = None,
    profile: str | None = None,
    hosts: str | None = None,
    contract: Contract | None = None,
    on_event: Callable[[launch.Event], None] | None = None,
    stopping: threading.Event | None = None,
) -> Outcome:
    """Assess a script. It may be called from any thread; nothing that it started is left when it returns.

    Args:
        ranks: default: the profile's; with `hosts` one for each of their slots.
        profile: default: see `Contract.profile`.
        hosts: `host:slots,…` for the run on all ranks, this host first; default: this host alone.
        contract: default: the course's.
        on_event: gets the events of the run on all ranks and, of kind "stage", what is being done: `text`, and
            `limit`, the seconds that it can take, or None.
        stopping: set it to stop.

    Raises:
        CannotGrade: where the host lacks what it takes. Stopped: where `stopping` was set.
    """
    try:
        return _Assessment(script, ranks, profile, hosts, contract, on_event, stopping or threading.Event()).run()
    except CannotGrade:
        raise
    except CourseError as error:
        raise CannotGrade(str(error), 130 if error.code == 130 else 2) from None
    except OSError as error:
        raise CannotGrade(f"This host is in the way: {error.strerror or error} ({error.filename}).") from None


def claimed(line: str) -> float | None:
    """The last accuracy that a printed line speaks of, from 0 to 1; None where it speaks of none."""
    found = _CLAIM.findall(line[-MAX_CLAIM_CHARACTERS:])
    return float(found[-1][0]) / (100 if found[-1][1] else 1) if found else None


class _Assessment:
    """One script being assessed."""

    def __init__(
        self,
        script: str | Path,
        ranks: int | None,
        profile: str | None,
        hosts: str | None,
        contract: Contract | None,
        on_event: Callable[[launch.Event], None] | None,
        stopping: threading.Event,
    ) -> None:
        self._script = Path(script)
        self._contract = contract or contracts.read()
        self._profile = self._contract.profile(profile)
        self._gpus = slots.count()
        named = remote.parse(hosts) if hosts is not None else ()
        self._ranks = self._number(ranks if ranks is not None else sum(host.slots for host in named) or None)
        used = remote.first(named, self._ranks) if named else ()
        self._hosts = () if len(used) == 1 and remote.here(used[0].name) else used
        self._on_event, self._stopping = on_event, stopping
        self._began = time.time()
        self._source = b""  # of the script that was run

    def run(self) -> Outcome:
        """Everything, in its order."""
        self._check_host()
        size, largest = self._script.stat().st_size, self._contract.largest * 1024
        if size > largest:
            return self._refused(f"The script has {size:,} bytes; at most {largest:,} are taken: nothing was run.")
        with contextlib.ExitStack() as stack:
            held: dict[str, object] = {}
            if self._hosts:
                held = stack.enter_context(slot_holder.hold(self._hosts, self._tell, self._stopping))
                taken = held[self._hosts[0].name].taken
            else:
                taking = slots.take(self._ranks, gpus=self._gpus, waiting=self._tell, stopping=self._stopping)
                taken = stack.enter_context(taking)
            stack.enter_context(slots.on_cores(taken, self._gpus))
            env = slots.environment(taken, self._gpus)
            factor = self._calibrate(env)
            evaluator = stack.enter_context(Evaluator(self._contract.data, self._profile.images))
            folder = Path(tempfile.mkdtemp(dir=evaluator.folder))
            script = folder / "assessment.py"
            shutil.copyfile(self._script, script)  # both runs get the same one, whatever becomes of it meanwhile
            self._source = script.read_bytes()
            self._tell("On one rank, to see that it runs")
            short = min(SERIAL_LIMIT_S, self._profile.seconds) * factor
            few = max(SERIAL_IMAGES, SERIAL_UPDATES * (self._profile.batch or 0))
            alone = self._measure(script, folder / "alone", 1, few, short, env)
            if not self._gpus:  # now there seem to be some: so the choice of a GPU can be judged on any host
                env[environment.FAKE_GPUS] = str(self._ranks)
            if alone.weights.exists():  # else there will hardly be any to evaluate
                evaluator.wait()
            where = f" on {len(self._hosts)} hosts" if len(self._hosts) > 1 else ""
            limit = self._profile.seconds * factor
            on_all = f"On {_ranks(self._ranks)}{where}"
            self._tell(on_all, limit)
            measured, together = self._timed(script, alone, evaluator, limit, env, held)
            runs = [alone, together]
            if measured.marks_leave_doubt():
                self._tell(f"{on_all}, once more: whether all ranks took part is not clear from one run", limit)
                first = measured
                measured, together = self._timed(script, alone, evaluator, limit, env, held)
                measured = measured.with_marks_of(first)
                runs.append(together)
            looks = [look for run in runs for look in run.evidence.looks()]
            return self._outcome(measured, together, factor, evaluator.data, looks=looks)

    def _timed(
        self,
        script: Path,
        alone: _Run,
        evaluator: Evaluator,
        limit: float,
        env: dict[str, str],
        held: Mapping[str, object],
    ) -> tuple[criteria.Measured, _Run]:
        """Run the script on all ranks, with marks of its own, and measure what it saved."""
        folder = Path(tempfile.mkdtemp(dir=script.parent))
        marks, files = self._marks(folder)
        seconds = limit * (1 + self._contract.tolerance)
        together = self._measure(
            script,
            folder / "all",
            self._ranks,
            self._profile.images,
            seconds,
            env,
            shown=True,
            held=held,
            marks=files,
        )
        self._require_free_cores(together)
        self._tell("Measuring the accuracy of the saved weights")
        measured = criteria.Measured(
            alone=alone.evidence,
            together=together.evidence,
            weights=evaluator.evaluate(
                together.weights,
                marks if together.kind == "bubblewrap" else (),
                together.evidence.ranks[0].kept or together.evidence.ranks[0].weights,
            ),
            limit=limit,
            tolerance=self._contract.tolerance,
            images=self._images,
            train_target=self._profile.train_accuracy,
            test_target=self._profile.test_accuracy,
            batch=self._profile.batch,
            updates=self._profile.updates,
        )
        return measured, together

    def _number(self, ranks: int | None) -> int:
        number = ranks or self._profile.ranks or self._gpus
        if not number:
            raise CannotGrade(f"The profile {self._profile.name} needs GPUs, and this host has none: give -np.")
        if number < 1:
            raise CannotGrade(f"An assessment needs at least one rank, not {number}: give -np 1 or more.")
        return number

    def _check_host(self) -> None:
        if not self._script.is_file():
            raise CannotGrade(f"There is no script {self._script}: give the path of a Python file.")
        controllers = launch.controllers()
        if self._gpus and (problem := bubblewrap.cuda_problem()):
            raise CannotGrade(problem)
        data.locate(self._contract.data)
        where = tempfile.gettempdir()
        if (free := shutil.disk_usage(where).free) < MIN_FREE_BYTES:
            raise CannotGrade(
                f"Only {free >> 20} MB are free in {where}: free {MIN_FREE_BYTES >> 20} MB, or set TMPDIR."
            )
        if self._hosts:
            self._check_hosts(controllers)

    def _check_hosts(self, controllers: tuple[str, ...]) -> None:
        first = self._hosts[0].name
        if not remote.here(first):
            raise CannotGrade(f"An assessment is started on the first of its hosts: give the command on {first}.")
        if "gloo" not in controllers:
            raise CannotGrade("An assessment across hosts needs Gloo, and Horovod was built without it here.")
        with tempfile.TemporaryDirectory() as folder:
            files = data.bundle(self._contract.data, Path(folder), test=False, limit=self._profile.images).files
            shared = "set COURSE_DATA_DIR to a folder that all hosts share, with the data in it."
            paths = {Path(folder): "set TMPDIR to a folder that all hosts share.", **dict.fromkeys(files, shared)}
            remote.check(self._hosts, paths)

    def _calibrate(self, env: dict[str, str]) -> float:
        hosts = [remote.written(self._hosts)] if self._hosts else []
        speed = calibration.known(self._ranks, *hosts)
        if speed is None:
            self._tell(f"Calibrating: how fast {'these hosts train' if hosts else 'this host trains'}, measured once")
            speed = calibration.measure(self._ranks, env, *hosts)
        self._raise_if_stopped()
        return calibration.factor(speed, self._contract.images_per_second)

    def _pretended_hosts(self, ranks: int) -> str | None:
        """Two names of this host with half of the ranks each, so that a rank and its local rank are not the same; None
        for one rank, and where real GPUs, or MPI, would be misled."""
        if ranks < 2 or self._gpus or self._hosts or launch.controllers()[0] != "gloo":
            return None
        return f"localhost:{ranks - ranks // 2},127.0.0.1:{ranks // 2}"

    @property
    def _images(self) -> int:
        """How many there are to train on."""
        return self._profile.images or PUBLISHED[self._contract.data].images[0]

    def _marks(self, folder: Path) -> tuple[list[watermarks.Mark], list[Path]]:
        """A mark for each rank, and the files that put them on the ranks' images."""
        rng = np.random.default_rng()
        classes = len(PUBLISHED[self._contract.data].classes)
        drawn = watermarks.draw(self._ranks, classes, rng)
        files = [folder / f"marks-{rank}.json" for rank in range(self._ranks)]
        for mark, file in zip(drawn, files):
            number = watermarks.number(self._images, self._ranks)
            watermarks.write(file, mark, watermarks.others(drawn, rng), number, secrets.randbits(64))
        return drawn, files

    def _measure(
        self,
        script: Path,
        folder: Path,
        ranks: int,
        images: int | None,
        seconds: float,
        env: dict[str, str],
        *,
        shown: bool = False,
        held: Mapping[str, object] | None = None,
        marks: Sequence[Path] = (),
    ) -> _Run:
        """Run the script in a sandbox; across the hosts where `held` has their slots; `marks`: as for `Sandbox`."""
        folder.mkdir()
        bundle = data.bundle(self._contract.data, folder, test=False, limit=images)
        env = {**env, **bundle.env, **({environment.SLICE: str(images)} if images else {})}
        keys = [secrets.token_hex(16) for _ in range(ranks)]
        limits = self._contract.limits
        if held:
            box = HostSandboxes(script, limits, self._hosts, held, bundle.files, env, seconds, marks, keys)
        else:
            names = self._pretended_hosts(ranks)
            box = Sandbox(script, limits, ranks, bundle.files, env, seconds, marks, keys, names)
        with box, box.start(ranks, patience=self._profile.patience) as run:
            threading.Thread(target=self._stop_when_asked, args=(run,), daemon=True).start()
            claim = None
            for event in run:
                if event.kind == "output" and (number := claimed(event.data["text"])) is not None:
                    claim = number
                if shown and self._on_event:
                    self._on_event(event)
            result = run.wait()
            self._raise_if_stopped()
            # Only Gloo between CPU ranks sends all that is reduced over the loopback device.
            counted = not self._gpus and launch.controllers()[0] == "gloo"
            traffic = box.use[-1].traffic if counted and box.use else None
            found = run_record.read(
                box.folder / "evidence", ranks, result, traffic=traffic, ended_by=box.ended_by, use=box.use, keys=keys
            )
            weights = folder / "weights.h5"
            with contextlib.suppress(OSError):
                shutil.copyfile(box.folder / "weights.h5", weights)
            return _Run(found, weights, box.kind, box.weaknesses, claim, box.others)

    def _require_free_cores(self, run: _Run) -> None:
        """Not the script is to blame where other programs took more of its cores than the tolerance makes up for."""
        late = run.evidence.result.code == launch.TIMED_OUT
        if late and run.others is not None and run.others > self._contract.tolerance:
            raise CannotGrade(
                f"The script was not done in time, but other programs had {run.others:.0%} of the time of the cores "
                "that it ran on: end them, then assess it again."
            )

    def _outcome(
        self,
        measured: criteria.Measured | None,
        run: _Run | None,
        factor: float,
        data_name: str,
        reason: str = "",
        looks: Sequence[str] = (),
    ) -> Outcome:
        asked = criteria.with_points(self._contract.points)
        if measured is None:
            verdicts = [Verdict(one.id, one.title, 0.0, one.max_points, reason) for one in asked]
        else:
            verdicts = judge(measured, asked)
        score = sum(verdict.points for verdict in verdicts)
        met = {verdict.id for verdict in verdicts if verdict.passed}
        weights = measured.weights if measured else None
        result = run.evidence.result if run else None
        enough = score >= self._contract.pass_points and met.issuperset(self._contract.required)
        look = (*static_analysis.findings(self._source), *dict.fromkeys(looks))
        if measured:
            look += criteria.other_weights(measured) + criteria.without_gradients(measured)
        return Outcome(
            passed=enough and not look,
            needs_a_look=enough and bool(look),
            look=look,
            score=round(score, 2),
            max_score=sum(self._contract.points.values()),
            profile=self._profile.name,
            ranks=self._ranks,
            data=data_name,
            seconds=round(result.seconds, 1) if result else None,
            train_accuracy=weights.train_accuracy if weights else None,
            test_accuracy=weights.test_accuracy if weights else None,
            verdicts=tuple(verdicts),
            limit=round(self._profile.seconds * factor, 1),
            factor=round(factor, 3),
            sandbox=run.kind if run else "bubblewrap",
            weaknesses=run.weaknesses if run else (),
            claimed=run.claimed if run else None,
            error="\n".join([run.evidence.ended_by or result.message, *result.tail[-TAIL_LINES:]])
            if result and result.code
            else reason,
        )

    def _refused(self, reason: str) -> Outcome:
        return self._outcome(None, None, 1.0, self._contract.data, reason)

    def _tell(self, text: str, limit: float | None = None) -> None:
        self._raise_if_stopped()
        if self._on_event:
            event = launch.Event("stage", None, time.time() - self._began, {"text": text, "limit": limit})
            self._on_event(event)

    def _raise_if_stopped(self) -> None:
        if self._stopping.is_set():
            raise Stopped

    def _stop_when_asked(self, run: launch.Run) -> None:
        while run.running:
            if self._stopping.wait(0.1):
                run.stop()
                return


@dataclass(frozen=True)
class _Run:
    """What came of one run in the sandbox."""

    evidence: evidence.Evidence
    weights: Path
    kind: str
    weaknesses: tuple[str, ...]
    claimed: float | None
    others: float | None


def _ranks(number: int) -> str:
    return "one rank" if number == 1 else f"{number} ranks"
