"""Run a learner's script on one rank and on all, measure it, and give it points.

The output and the reports of the script are shown, but are no evidence. The host's clock measures the time, the ranks
run in a sandbox (see `sandbox`), the accuracy is that of the saved weights on images that are not in the sandbox (see
`evaluator`), and `criteria` has all other rules.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from course_grader.sandbox import bubblewrap
from course_grader.sandbox.sandbox import Sandbox
from course_grader.script import calibration, criteria, slots, static_analysis, watermarks
from course_grader.script import contract as contracts
from course_grader.script.contract import Contract
from course_grader.script.evaluator import Evaluator, Weights
from course_grader.script.host_checks import HostRecord
from course_grader.script.outcome import CannotGrade, Outcome, Stopped
from course_lib import data
from course_lib.data.published import PUBLISHED
from course_lib.notebook.judging import Verdict, judge
from course_lib.ranks import launch, run_record
from course_lib.ranks.messages import gpu_memory, known_errors
from course_lib.ranks.run_record import RunRecord
from course_lib.system import variables
from course_lib.system.errors import CourseError

SERIAL_IMAGES = 640  # images of the run on one rank, which need not learn anything
SERIAL_UPDATES = 2  # minimum number of full batches in this run, if the profile requires a batch size
SERIAL_LIMIT_S = 60.0  # time limit of this run before calibration, if the profile's is not shorter
MIN_FREE_BYTES = 2**30  # in the folder of temporary files, in addition to the images
TAIL_LINES = 8  # last lines of a failed run that are shown
MAX_CLAIM_CHARACTERS = 300  # at the end of a printed line, which are searched for an accuracy
_CLAIM = re.compile(r"acc(?:uracy)?[ =:]{1,3}(?:is |of )?(\d\d?\d?(?:\.\d+)?) ?(%?)", re.IGNORECASE)


def assess(
    script: str | Path,
    *,
    ranks: int | None = None,
    profile: str | None = None,
    contract: Contract | None = None,
    on_event: Callable[[launch.Event], None] | None = None,
    stopping: threading.Event | None = None,
) -> Outcome:
    """Assess a script. This function may be called from any thread. When it returns, all its processes have ended.

    Args:
        script: path of the script.
        ranks: number of ranks; default: the profile's.
        profile: name of the profile; default: see `Contract.profile`.
        contract: default: the course's.
        on_event: called with the events of the run on all ranks, and with an event of kind "stage" at the start of each
            stage of the assessment: `text` describes the stage, `limit` is its time limit in seconds, or None.
        stopping: set this event to stop the assessment.

    Raises:
        CannotGrade: if the host or the grader fails. Stopped: if `stopping` was set.
    """
    try:
        return _Assessment(script, ranks, profile, contract, on_event, stopping or threading.Event()).run()
    except CannotGrade:
        raise
    except CourseError as error:
        raise (Stopped() if error.code == 130 else CannotGrade(str(error))) from None
    except OSError as error:
        raise CannotGrade(f"This host has a problem: {error.strerror or error} ({error.filename}).") from None
    except Exception as error:
        logging.getLogger(__name__).exception("The grader failed")
        cause = error.__cause__ or error
        raise CannotGrade(
            f"The grader failed, not the script ({type(cause).__name__}: {cause}): please report it."
        ) from error


def claimed(line: str) -> float | None:
    """Return the last accuracy in a printed line, from 0 to 1; None if it has none."""
    claims = _CLAIM.findall(line[-MAX_CLAIM_CHARACTERS:])
    return float(claims[-1][0]) / (100 if claims[-1][1] else 1) if claims else None


@dataclass(frozen=True)
class _Run:
    """One run in the sandbox: its record, the host's measurements, the file of weights, facts about the sandbox."""

    record: RunRecord
    host: HostRecord
    weights: Path
    kind: str
    weaknesses: tuple[str, ...]
    claimed: float | None
    others: float | None


class _Assessment:
    """The assessment of one script."""

    def __init__(
        self,
        script: str | Path,
        ranks: int | None,
        profile: str | None,
        contract: Contract | None,
        on_event: Callable[[launch.Event], None] | None,
        stopping: threading.Event,
    ) -> None:
        self._script = Path(script)
        self._contract = contract or contracts.read()
        self._profile = self._contract.profile(profile)
        self._gpus = slots.count()
        self._ranks = self._number(ranks)
        self._on_event, self._stopping = on_event, stopping
        self._began = time.time()
        self._numbers: list[int] = []  # numbers of the reserved cores or GPUs

    def run(self) -> Outcome:
        """Run all stages; return the outcome."""
        self._check_host()
        size, max_size = self._script.stat().st_size, self._contract.max_script_kb * 1024
        if size > max_size:
            return self._refused(f"The script has {size:,} bytes, but only {max_size:,} are allowed: it was not run.")
        with contextlib.ExitStack() as stack:
            taking = slots.take(self._ranks, gpus=self._gpus, on_wait=self._report, stopping=self._stopping)
            self._numbers = stack.enter_context(taking)
            stack.enter_context(slots.on_cores(self._numbers, self._gpus))
            env = slots.environment(self._numbers, self._gpus)
            factor = self._calibrate(env)
            evaluator = stack.enter_context(Evaluator(self._contract.data, self._profile.images))
            script = Path(tempfile.mkdtemp(dir=evaluator.folder)) / "assessment.py"
            shutil.copyfile(self._script, script)  # all runs use this copy, even if the learner edits the script
            alone = self._run_alone(script, env, factor)
            if alone.weights.exists():  # else the run on all ranks will probably not save weights either
                evaluator.wait()
            measured, together = self._run_together(script, alone, evaluator, env, factor)
            return self._outcome(measured, together, factor, evaluator.data, script.read_bytes())

    def _run_alone(self, script: Path, env: Mapping[str, str], factor: float) -> _Run:
        self._report("Running on one rank first")
        images = max(SERIAL_IMAGES, SERIAL_UPDATES * (self._profile.batch or 0))
        limit = math.ceil(min(SERIAL_LIMIT_S, self._profile.seconds) * factor)
        folder = script.parent / "alone"
        folder.mkdir()
        bundle = data.bundle(self._contract.data, folder, test=False, limit=images)
        env = {**env, **bundle.env, variables.SLICE: str(images)}
        box = Sandbox(script, self._contract.limits, 1, files=bundle.files, env=env, seconds=limit)
        run = self._run_in(box, folder, 1)
        self._require_free_host(run)
        return run

    def _run_together(
        self, script: Path, alone: _Run, evaluator: Evaluator, env: Mapping[str, str], factor: float
    ) -> tuple[criteria.Measured, _Run]:
        """Run the script on all ranks; run it again, with other watermarks, while the measurement is `in_doubt`.

        Of the further runs only the watermarks' margins count.
        """
        limit = self._profile.seconds * factor
        stage = f"Running on {_ranks(self._ranks)}"
        self._report(stage, limit)
        run, weights = self._timed(script, evaluator, limit, env)
        measured = self._measured(alone, run, weights, limit)
        while measured.in_doubt:
            self._report(f"{stage} again: it is not clear yet whether all ranks took part", limit)
            _, again = self._timed(script, evaluator, limit, env)
            if not again.margins:
                break
            measured = replace(measured, margins=(*measured.margins, again.margins))
        return measured, run

    def _timed(self, script: Path, evaluator: Evaluator, limit: float, env: Mapping[str, str]) -> tuple[_Run, Weights]:
        """Run the script on all ranks, each with its own images and watermark, and evaluate the saved weights."""
        folder = Path(tempfile.mkdtemp(dir=script.parent))
        marks, bundles = self._watermarked(folder)
        images = self._profile.images
        box = Sandbox(
            script,
            self._contract.limits,
            self._ranks,
            files={},
            env={**env, **bundles[0].env, **({variables.SLICE: str(images)} if images else {})},
            seconds=limit * (1 + self._contract.tolerance),
            own_files=[bundle.files for bundle in bundles],
        )
        run = self._run_in(box, folder, self._ranks, shown=True)
        self._require_free_host(run)
        self._report("Evaluating the saved weights")
        weights = evaluator.evaluate(run.weights, marks if run.kind == "bubblewrap" else ())
        for bundle in bundles:
            for path in bundle.files:
                if folder in path.parents:
                    path.unlink()
        return run, weights

    def _watermarked(self, folder: Path) -> tuple[list[watermarks.Mark], list[data.Bundle]]:
        """Return a watermark for each rank, and each rank's training images, some of which carry its watermark."""
        name, rng = self._contract.data, np.random.default_rng()
        dataset = data.load(name, test=False)
        images, labels = (array[: self._profile.images] for array in (dataset.x_train, dataset.y_train))
        marks, copies = watermarks.copies(images, labels, self._ranks, len(dataset.classes), rng)
        bundles = []
        for rank, (x, y) in enumerate(copies):
            target = folder / f"images-{rank}"
            target.mkdir()
            bundles.append(data.bundle_of(name, target, x, y))
        return marks, bundles

    def _run_in(self, box: Sandbox, folder: Path, ranks: int, *, shown: bool = False) -> _Run:
        """Run the script in its sandbox, and copy its weights into `folder`; report the events of a `shown` run."""
        # The ranks see fake GPUs, so that their choice of a GPU can be judged on any host.
        fake_gpus = (self._ranks,) if shown and not self._gpus else ()
        options = {"hosts": self._hosts(ranks), "stall_timeout": self._profile.patience, "fake_gpus": fake_gpus}
        with box, box.start(ranks, **options) as run:
            threading.Thread(target=self._stop_when_asked, args=(run,), daemon=True).start()
            claim = None
            for event in run:
                if event.kind == "output" and (number := claimed(event.data["text"])) is not None:
                    claim = number
                if shown and self._on_event:
                    self._on_event(event)
            result = run.wait()
            self._raise_if_stopped()
            if box.ended_by:
                result = replace(result, message=box.ended_by, failed_rank=None)
            # Only Gloo between CPU ranks uses the loopback device for all collectives.
            counts_bytes = not self._gpus and launch.controllers()[0] == "gloo"
            weights = folder / "weights.h5"
            with contextlib.suppress(OSError):
                shutil.copyfile(box.folder / "weights.h5", weights)
            return _Run(
                run_record.read(box.folder / "record", ranks, result),
                HostRecord(box.samples, counts_bytes, bool(self._gpus), box.device_processes),
                weights,
                box.kind,
                box.weaknesses,
                claim,
                box.others,
            )

    def _hosts(self, ranks: int) -> str | None:
        """Return two names of this host with half of the ranks each, so that `hvd.rank` and `hvd.local_rank` differ.

        Return None for one rank, and for GPUs and MPI, which need the host's real name.
        """
        if ranks < 2 or self._gpus or launch.controllers()[0] != "gloo":
            return None
        return f"localhost:{ranks - ranks // 2},127.0.0.1:{ranks // 2}"

    def _measured(self, alone: _Run, together: _Run, weights: Weights, limit: float) -> criteria.Measured:
        return criteria.Measured(
            alone=alone.record,
            saved_alone=alone.weights.exists(),
            together=together.record,
            host=together.host,
            weights=weights,
            limit=limit,
            tolerance=self._contract.tolerance,
            images=self._profile.images or PUBLISHED[self._contract.data].images[0],
            train_target=self._profile.train_accuracy,
            test_target=self._profile.test_accuracy,
            batch=self._profile.batch,
            updates=self._profile.updates,
            margins=(weights.margins,) if weights.margins else (),
        )

    def _outcome(self, measured: criteria.Measured, run: _Run, factor: float, data_name: str, source: bytes) -> Outcome:
        verdicts = judge(measured, criteria.with_points(self._contract.points))
        score = sum(verdict.points for verdict in verdicts)
        met = {verdict.id for verdict in verdicts if verdict.passed}
        enough = score >= self._contract.pass_points and met.issuperset(self._contract.required)
        flags = tuple(static_analysis.findings(source))
        result = run.record.result
        return Outcome(
            passed=enough and not flags,
            needs_a_look=enough and bool(flags),
            look=flags,
            score=round(score, 2),
            max_score=sum(self._contract.points.values()),
            profile=self._profile.name,
            ranks=self._ranks,
            data=data_name,
            seconds=round(result.seconds, 1),
            train_accuracy=measured.weights.train_accuracy,
            test_accuracy=measured.weights.test_accuracy,
            verdicts=tuple(verdicts),
            limit=round(self._profile.seconds * factor, 1),
            factor=round(factor, 3),
            sandbox=run.kind,
            weaknesses=run.weaknesses,
            claimed=run.claimed,
            error=self._error(result) if result.code else "",
            first_step_seconds=calibration.first_step_seconds(self._ranks) if self._gpus else None,
        )

    def _error(self, result: launch.Result) -> str:
        """Return why a run failed, the last lines of the rank that failed first, and advice on a known error."""
        advice = known_errors.hint(_last_lines(result), self._numbers) if result.failed_rank is not None else ""
        lines = [result.cause, result.message, *result.tail[-TAIL_LINES:], advice]
        return "\n".join(line for line in lines if line)

    def _refused(self, reason: str) -> Outcome:
        """Return the outcome, without points, of a script that is not run."""
        rules = criteria.with_points(self._contract.points)
        return Outcome(
            passed=False,
            score=0.0,
            max_score=sum(self._contract.points.values()),
            profile=self._profile.name,
            ranks=self._ranks,
            data=self._contract.data,
            seconds=None,
            train_accuracy=None,
            test_accuracy=None,
            verdicts=tuple(Verdict(r.id, r.title, 0.0, r.max_points, reason, "", criteria.HOST) for r in rules),
            limit=self._profile.seconds,
            factor=1.0,
            sandbox="bubblewrap",
            error=reason,
        )

    def _number(self, ranks: int | None) -> int:
        number = ranks if ranks is not None else self._profile.ranks or self._gpus
        if not number and ranks is None:
            raise CannotGrade(f"The profile {self._profile.name} needs GPUs, but this host has none: give -np.")
        if number < 1:
            raise CannotGrade(f"An assessment needs at least one rank, not {number}: give -np 1 or more.")
        if number > watermarks.MAX_RANKS:
            most = watermarks.MAX_RANKS
            raise CannotGrade(f"An assessment can have at most {most} ranks, not {number}: give -np {most} or less.")
        return number

    def _check_host(self) -> None:
        if not self._script.is_file():
            raise CannotGrade(f"There is no script {self._script}: give the path of a Python file.")
        launch.controllers()
        if self._gpus and (problem := bubblewrap.cuda_problem()):
            raise CannotGrade(problem)
        data.locate(self._contract.data)
        folder = tempfile.gettempdir()
        published = PUBLISHED[self._contract.data]
        images = (self._profile.images or published.images[0]) * int(np.prod(published.image_shape))
        needed = MIN_FREE_BYTES + self._ranks * images
        if (free := shutil.disk_usage(folder).free) < needed:
            raise CannotGrade(f"Only {free >> 20} MB are free in {folder}: free {needed >> 20} MB, or set TMPDIR.")

    def _calibrate(self, env: Mapping[str, str]) -> float:
        speed = calibration.known(self._ranks)
        if speed is None:
            once = "once" if calibration.can_keep() else "for this assessment only, as the cache cannot be written"
            self._report(f"Calibrating: measuring {once} how fast this host trains")
            speed = calibration.measure(self._ranks, dict(env))
        self._raise_if_stopped()
        return calibration.factor(speed, self._contract.images_per_second)

    def _require_free_host(self, run: _Run) -> None:
        """Raise CannotGrade if a run failed because of other programs.

        Either the script was late, and other programs used a larger fraction of its cores' time than the contract's
        tolerance, or the script ran out of GPU memory, and other programs use most of it.
        """
        result = run.record.result
        signs = (re.search(gpu_memory.SIGNS, line) for line in _last_lines(result))
        if self._gpus and result.code and any(signs) and (sentence := gpu_memory.taken(self._numbers)):
            raise CannotGrade(f"The script could not be judged. {sentence} Then assess it again.")
        late = result.code == launch.TIMED_OUT
        if late and run.others is not None and run.others > self._contract.tolerance:
            raise CannotGrade(
                f"The script did not finish in time, but other programs used {run.others:.0%} of its cores' time: stop "
                "them, then assess it again."
            )

    def _report(self, text: str, limit: float | None = None) -> None:
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


def _last_lines(result: launch.Result) -> tuple[str, ...]:
    return (*result.tail, result.reason)


def _ranks(number: int) -> str:
    return "one rank" if number == 1 else f"{number} ranks"
