"""The contract is read whole, or refused with a sentence."""

from __future__ import annotations

import pytest

from course_lib.command.assess import contract
from course_lib.ranks import launch
from course_lib.system.errors import CourseError

TEXT = contract.CONTRACT.read_text()


def test_the_courses_contract_asks_what_the_course_promises():
    read = contract.read()
    cpu = read.profiles["cpu"]
    assert (cpu.ranks, cpu.images, cpu.seconds, cpu.train_accuracy, cpu.test_accuracy) == (2, None, 240, 0.75, 0.70)
    assert read.profiles["gpu"].ranks is None
    assert read.profiles["gpu"].test_accuracy > cpu.test_accuracy
    assert sum(read.points.values()) == 100
    large = read.profiles["large"]
    assert large.batch >= 2048 and large.updates and large.images is None
    assert all(one.batch is None and one.updates is None for one in read.profiles.values() if one is not large)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("pass_points = 80", "", "lacks 'pass_points'"),
        ("pass_points = 80", "pass_points = 101", "passes at 101 points, of which there are 100"),
        ("serial = 5", "", "must give points to serial, ranks"),
        ("serial = 5", "serial = 0", "every criterion needs points above 0"),
        ("seconds = 240", "seconds = -1", "seconds in profiles.cpu is -1"),
        ("seconds = 240", "second = 240", "'second' in profiles.cpu is not known"),
        ("batch = 2048", "", "profiles.large must have both batch and updates, or neither"),
        ("[limits]", "[limit]", "lacks 'limits'"),
        ('required = ["ranks"', 'required = ["rank"', "requires 'rank', which is no criterion"),
        ("[profiles.cpu]", "[profiles.cpu", "cannot be read"),
    ],
)
def test_a_mistake_is_named(tmp_path, old, new, word):
    assert old in TEXT
    path = tmp_path / "contract.toml"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(CourseError, match=word) as caught:
        contract.read(path)
    assert caught.value.code == 2
    assert str(path) in str(caught.value)


def test_the_profile_is_that_of_the_host_unless_one_is_named(monkeypatch):
    read = contract.read()
    monkeypatch.delenv("COURSE_PROFILE", raising=False)
    monkeypatch.setattr(launch, "gpus", list)
    assert read.profile().name == "cpu"
    monkeypatch.setattr(launch, "gpus", lambda: ["GPU 0"])
    assert read.profile().name == "gpu"
    monkeypatch.setenv("COURSE_PROFILE", "short")
    assert read.profile().name == "short"
    assert read.profile("cpu").name == "cpu"
    with pytest.raises(CourseError, match="There is no profile 'fast': the contract has cpu, large, gpu, short"):
        read.profile("fast")
