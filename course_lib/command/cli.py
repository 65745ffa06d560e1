"""The `course` command: thin; each command calls one function of the library."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import List, Optional

import typer

from course_lib.system import interrupt, variables
from course_lib.system.errors import CourseError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("one-model-many-gpus"))
        raise typer.Exit()


@app.callback()
def course(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_print_version, help="Print the version."),
) -> None:
    """One Model, Many GPUs: a hands-on course on training one neural network on many GPUs."""


@app.command()
def setup() -> None:
    """Install or repair the environment, the packages and Horovod."""
    from course_lib.command.setup import bootstrap

    raise SystemExit(bootstrap.main([]))


@app.command()
def lab(
    directory: Path = typer.Option(Path("workspace"), "--dir", help="The learner's workspace; created if missing."),
    port: Optional[int] = typer.Option(None, help="Port of JupyterLab; default: a free one."),
    browser: bool = typer.Option(True, "--browser/--no-browser", help="Open a browser window."),
    way: Optional[str] = typer.Option(None, help="Your way through the course, such as day; see `course plan`."),
) -> None:
    """Open JupyterLab on a workspace with the notebooks."""
    from course_lib.command.classroom import workspace

    raise typer.Exit(workspace.open_lab(directory, port, browser, way=way))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def test(
    context: typer.Context,
    everything: bool = typer.Option(False, "--all", help="Run all tests; takes over an hour."),
) -> None:
    """Run the quick tests; further arguments go to pytest."""
    from course_lib.command import testing

    raise typer.Exit(testing.run(context.args, everything))


@app.command()
def doctor(
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    gpu: bool = typer.Option(False, "--gpu", help="Test everything the course does with GPUs; takes up to 15 min."),
    report_file: Optional[Path] = typer.Option(
        None, "--report", metavar="FILE", help="With --gpu: write FILE.json and FILE.html, a report to send in."
    ),
    rehearse: bool = typer.Option(False, "--rehearse", help="With --gpu, on a host without GPUs: run on the CPU."),
) -> None:
    """Show what this machine can do, and report problems.

    Exit code: 0 without problems, 1 with problems; with --gpu also 2 if nothing failed but there was no GPU to test.
    """
    from course_lib.command.doctor import diagnosis

    if gpu:
        from course_lib.command.doctor.gpu import runner

        raise typer.Exit(runner.main(file=report_file, rehearse=rehearse, as_json=as_json))
    if report_file or rehearse:
        raise CourseError("--report and --rehearse need --gpu: run `course doctor --gpu`.", code=2)
    report = diagnosis.diagnose()
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        diagnosis.show(report)
    raise typer.Exit(1 if report["problems"] else 0)


@app.command()
def data(
    names: Optional[List[str]] = typer.Argument(None, metavar="[NAME]...", help="Default: all."),
) -> None:
    """Download and verify the data sets, and show where they come from."""
    from course_lib import data

    data.show(data.fetch(names or None))


@app.command(context_settings={"allow_interspersed_args": True})
def run(
    script: Path = typer.Argument(..., help="A Python script that uses Horovod."),
    args: Optional[List[str]] = typer.Argument(None, metavar="[-- ARGS]...", help="The script's arguments."),
    ranks: Optional[int] = typer.Option(None, "-np", help="Ranks; default: all slots, one per GPU, else 2."),
    timeout: Optional[float] = typer.Option(None, help="Stop the run after this many seconds (exit code 124)."),
    hosts: Optional[str] = typer.Option(None, "-H", "--hosts", help="host:slots,host:slots; default: this host."),
    hostfile: Optional[Path] = typer.Option(None, help="A file with one line `host slots=N` for each host."),
    gloo: bool = typer.Option(False, "--gloo", help="Use the Gloo controller."),
    mpi: bool = typer.Option(False, "--mpi", help="Use the MPI controller."),
    slurm: bool = typer.Option(False, "--slurm", help="Run as a Slurm job; inside a job, run on its nodes."),
    nodes: Optional[int] = typer.Option(None, "-N", "--nodes", help="Nodes of the job; default: 1."),
    where: bool = typer.Option(False, "--where", help="At the end, show where the time of a training step goes."),
) -> None:
    """Run a script on N Horovod ranks."""
    from course_lib.command import console
    from course_lib.ranks import launch, remote

    if gloo and mpi:
        raise CourseError("Choose one of --gloo and --mpi.", code=2)
    hosts = _slurm(script, slurm, nodes, ranks, remote.chosen(hosts, hostfile))
    controller = "gloo" if gloo else "mpi" if mpi else None
    with console.profile_folder(where, hosts) as profile:
        options = launch.Options(hosts=hosts, profile=profile)
        run = launch.start(script, args or (), ranks, controller=controller, timeout=timeout, options=options)
        code = console.follow(run)
        if profile and not code:
            from course_lib.command import tables

            tables.show_shares(profile)
    raise typer.Exit(code)


@app.command()
def assess(
    script: Path = typer.Argument(Path("assessment.py"), help="A Python script; assessment.ipynb describes the task."),
    ranks: Optional[int] = typer.Option(None, "-np", help="Ranks; default: the profile's number, or one per GPU."),
    profile: Optional[str] = typer.Option(None, help="cpu, gpu, large or short; default: gpu with GPUs, else cpu."),
    json_file: Optional[Path] = typer.Option(None, "--json", help="Write the outcome here, as one JSON object."),
) -> None:
    """Assess a script: run it on N ranks, measure, give points with reasons.

    Exit code 3: the script has what it needs to pass, but a person must first review what else it does.
    """
    from course_grader.display import leaderboard, report, stages
    from course_grader.script import contract, grader
    from course_lib.system.files import require_place, write

    if json_file:
        require_place(json_file)  # now, not after minutes
    with stages.stages() as follow:
        outcome = grader.assess(script, ranks=ranks, profile=profile, on_event=follow)
    if json_file:
        write(json_file, json.dumps(outcome.as_json(), indent=1).encode())
    report.show(outcome)
    if standing := leaderboard.standing_beside(script, outcome, contract.read()):
        print(standing)
    raise typer.Exit(0 if outcome.passed else 3 if outcome.needs_a_look else 1)


@app.command()
def build(
    check: bool = typer.Option(False, "--check", help="Write nothing; fail if a file is stale."),
) -> None:
    """Build the learner's notebooks from the masters."""
    from course_lib.authoring import masters

    paths = masters.build(check=check)
    for path in paths:
        print(f"{'stale' if check else 'wrote'} {path}")
    if not paths:
        print("All notebooks are up to date.")
    raise typer.Exit(1 if check and paths else 0)


@app.command()
def reproduce(
    name: Optional[str] = typer.Argument(None, help="An experiment; see --list."),
    show: bool = typer.Option(False, "--list", help="List the experiments."),
) -> None:
    """Run an experiment of the labs again; write its table and figure."""
    from course_lib.notebook import experiments

    if show or name is None:
        print(experiments.listing())
    else:
        print(f"wrote into {experiments.reproduce(name)}")


@app.command()
def plan(
    way: Optional[str] = typer.Argument(
        None,
        metavar="WAY|LAB|NOTEBOOK",
        help="A way, for its timetable; a lab or a notebook (7, 7b), for what it needs; default: all ways.",
    ),
    choose: bool = typer.Option(False, "--choose", help="Choose this way for the workspace that you are in."),
) -> None:
    """Show the ways through the course, the timetable of one, or what a lab or a notebook needs."""
    from course_lib.authoring import released, ways
    from course_lib.command.classroom import workspace

    if choose:
        print(workspace.choose(way, Path.cwd()))
    else:
        print("\n".join(ways.plan(way, released.course_files())))


@app.command()
def solution(
    notebook: str = typer.Argument(..., help="The short name of a notebook, such as 3d."),
    directory: Path = typer.Option(Path("workspace"), "--dir", help="The learner's workspace."),
) -> None:
    """Show the course's solutions beside yours, once all checks of a notebook have passed."""
    from course_lib.authoring import solutions
    from course_lib.command import tables

    tables.show_solutions(solutions.pairs(notebook, directory))


@app.command()
def grade(
    directory: Path = typer.Argument(..., help="A folder of submissions, one folder per learner."),
    jobs: Optional[int] = typer.Option(None, help="Submissions graded at once; default: 1, with --slurm up to 64."),
    slurm: bool = typer.Option(False, "--slurm", help="Grade each submission as a Slurm job."),
    accept: Optional[List[str]] = typer.Option(
        None, metavar="LEARNER", help="Accept this learner's submission after you have reviewed it."
    ),
    rerun_top: int = typer.Option(0, metavar="K", help="Run the best K scripts again and rank them by their medians."),
    runs: int = typer.Option(6, metavar="N", help="With --rerun-top: further runs of each script."),
    pseudonyms: bool = typer.Option(False, "--pseudonyms", help="Show pseudonyms on the leaderboard, not names."),
    against: Optional[Path] = typer.Option(
        None, metavar="DIR", help="Also compare this class's scripts with those of an earlier class."
    ),
) -> None:
    """Grade a class: write the gradebook, CSV files, feedback pages, leaderboard and similar scripts."""
    from course_grader.classroom import class_leaderboard, grading

    ranking = class_leaderboard.Options(rerun_top, runs, pseudonyms)
    summary = grading.grade(directory, jobs, slurm=slurm, accept=accept or (), ranking=ranking, against=against)
    raise typer.Exit(summary.code)


_EXCHANGE = typer.Option(Path("/exchange/course"), "--exchange", metavar="DIR", help="The hub's exchange.")
_CLASS = typer.Option(Path("class"), "--dir", help="The class's folder; grades are in DIR-graded.")
_LAB = typer.Argument(None, metavar="[LAB]", help="Its name or number, as lab2 or 2; default: all.")


@app.command()
def collect(
    lab: Optional[str] = _LAB,
    deadline: Optional[str] = typer.Option(
        None,
        metavar="TIME",
        help='The last time that counts, as "2026-12-01 18:00", or none; remembered.',
    ),
    extend: Optional[List[str]] = typer.Option(
        None, metavar="NAME=TIME", help="A later deadline for a learner; remembered."
    ),
    exchange: Path = _EXCHANGE,
    directory: Path = _CLASS,
) -> None:
    """On the hub: collect the newest submission of each learner that is in time, for `course grade class`.

    Exit code 1: something that was handed in was left out.
    """
    from course_grader.hub import collect

    raise typer.Exit(collect.collect(lab, directory, exchange, deadline, extend or ()))


@app.command("return")
def hand_back(lab: Optional[str] = _LAB, exchange: Path = _EXCHANGE, directory: Path = _CLASS) -> None:
    """On the hub: return the feedback for what was collected and graded.

    Exit code 1: something has not been graded since it was collected.
    """
    from course_grader.hub import hand_back

    raise typer.Exit(hand_back.hand_back(lab, directory, exchange))


@app.command("class")
def show_class(
    html: Optional[Path] = typer.Option(None, "--html", metavar="FILE", help="Also write a page."),
    canvas: Optional[Path] = typer.Option(None, metavar="FILE", help="Write the points as Canvas imports them."),
    moodle: Optional[Path] = typer.Option(None, metavar="FILE", help="Write the points as Moodle imports them."),
    exchange: Path = _EXCHANGE,
    directory: Path = _CLASS,
) -> None:
    """On the hub: how far each learner is, what is hard, which scripts are similar."""
    from course_grader.hub import class_state, platforms

    class_state.show(directory, exchange, html)
    for platform, path in {"canvas": canvas, "moodle": moodle}.items():
        if path:
            platforms.write_points(directory, platform, path)


def _slurm(
    script: Path, slurm: bool, nodes: Optional[int], ranks: Optional[int], hosts: Optional[str]
) -> Optional[str]:
    """The hosts to run on. With --slurm: those of this job; outside of any, the whole command becomes a job."""
    if not slurm and nodes is None:
        return hosts
    if not slurm:
        raise CourseError("-N works only with --slurm: add --slurm, or remove -N.", code=2)
    if hosts is not None:
        raise CourseError("With --slurm, Slurm chooses the hosts: remove -H and --hostfile.", code=2)
    from course_lib.ranks import slurm as cluster

    if cluster.inside():
        os.environ.setdefault(variables.REMOTE_SHELL, cluster.REMOTE_SHELL)
        return cluster.hosts(nodes)
    if not script.is_file():
        raise CourseError(f"There is no script {script}: give the path of a Python file.", code=2)
    raise typer.Exit(cluster.run(sys.argv[1:], nodes, ranks))


def main() -> None:
    """Entry point of the console script: problems that the user can correct are one sentence, never a traceback."""
    interrupt.raise_on_signals()
    try:
        app()
    except CourseError as error:
        print(f"course: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
