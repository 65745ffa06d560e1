"""Notebook 2e: the converted PyTorch script, and mistakes that learners make in it. CI has no PyTorch."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from course_lib.authoring import conversions
from labs.lab2_horovod.lessons import checks_2e

FOLDER = conversions.LAB2 / "pytorch"
STEPS = tuple(conversions.steps(FOLDER))
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

WRONG = {  # mistake: (steps left out, edit, criterion, words of the reason)
    "nothing done": (STEPS, (), "init", "never met"),
    "never wrapped": (
        ("average",),
        ("model.module.state_dict", "model.state_dict"),
        "average",
        "nobody averages",
    ),
    "no sampler": (("data", "epoch"), (), "data", "DistributedSampler"),
    "the epoch not told": (("epoch",), (), "epoch", "set_epoch"),
    "the rate of one process": (
        (), ("args.lr * dist.get_world_size()", "args.lr"), "rate", "2 processes make it 0.04"
    ),
    "all save": (("save",), (), "save", "let rank 0 do it"),
    "the wrapper's names": ((), ("model.module.state_dict", "model.state_dict"), "save", "`module.`"),
    "the first GPU for all": (("device",), (), "device", "as another process does: choose GPU 1, by `LOCAL_RANK`"),
    "LOCAL_RANK in a comment only": (
        ("device",), ("device = torch.device(", "# by LOCAL_RANK\ndevice = torch.device("), "device", "uses GPU 0"
    ),
    "the rank among all hosts": ((), ("os.environ['LOCAL_RANK']", "dist.get_rank()"), "device", "asks for GPU 2"),
    "no GPU at all": (
        ("device",), ('"cuda" if torch.cuda.is_available() else "cpu"', '"cpu"'), "device", "it stays on the CPU"
    ),
    "images to the first GPU": (
        (), ("images.to(device)", "images.to('cuda' if torch.cuda.is_available() else 'cpu')"), "device",
        "uses GPUs 0 and 1"
    ),
    "Gloo on GPUs": ((), ('"nccl" if torch.cuda.is_available() else "gloo"', '"gloo"'), "device", "choose NCCL there"),
    "the wrapper passed by": (
        (), ("cross_entropy(model(images", "cross_entropy(model.module(images"), "average", "call the wrapped one"
    ),
    "NCCL without a GPU": ((), ('"nccl" if torch.cuda.is_available() else "gloo"', '"nccl"'), "init", "choose Gloo"),
    "summed": (
        (),
        ("        optimizer.step()", "        [w.grad.mul_(2) for w in model.parameters()]; optimizer.step()"),
        "average",
        "2 times as long",
    ),
}  # fmt: skip

DEVICE = 'device = torch.device(f"cuda:{os.environ[\'LOCAL_RANK\']}" if torch.cuda.is_available() else "cpu")\n'
RIGHT = {
    "the rank among the GPUs of a host": (
        DEVICE,
        "gpus = torch.accelerator.device_count()\n"
        'device = torch.device("cuda", dist.get_rank() % gpus) if gpus else torch.device("cpu")\n',
    ),
    "one GPU is visible": (
        "dist.init_process_group(",
        'os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]\n'
        'os.environ["LOCAL_RANK"] = "0"\ndist.init_process_group(',
    ),
    "the GPU is selected first": (
        DEVICE,
        "if torch.cuda.is_available():\n    torch.cuda.set_device(dist.get_node_local_rank())\n"
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n',
    ),
    "the wrapper is told its GPU": (
        "DistributedDataParallel(model)",
        "DistributedDataParallel(model, device_ids=[device.index] if device.index is not None else None)",
    ),
    "a part of the images, shuffled": (
        "sampler = DistributedSampler(training, seed=args.seed)\n"
        "batches = DataLoader(training, args.batch_size, sampler=sampler, drop_last=True)\n",
        "part = torch.utils.data.Subset(training, range(dist.get_rank(), len(training), dist.get_world_size()))\n"
        "sampler = DistributedSampler(part, 1, 0)\n"
        "batches = DataLoader(part, args.batch_size, shuffle=True, drop_last=True)\n",
    ),
}


def report(tmp_path, without=(), edit=()):
    text = conversions.converted([step for step in STEPS if step not in without], FOLDER)
    if edit:
        assert edit[0] in text
        text = text.replace(*edit)
    script = tmp_path / "fashion_mnist_torch.py"
    script.write_text(text)
    return {verdict.id: verdict for verdict in checks_2e.check(script).verdicts}


@needs_torch
@pytest.mark.ranks
@pytest.mark.slow
def test_the_converted_script_is_right(tmp_path):
    verdicts = report(tmp_path)
    assert {name: verdict.reason for name, verdict in verdicts.items() if not verdict.passed} == {}


@needs_torch
@pytest.mark.ranks
@pytest.mark.slow
@pytest.mark.parametrize("which", RIGHT)
def test_another_right_script_is_right(tmp_path, which):
    verdicts = report(tmp_path, (), RIGHT[which])
    assert {name: verdict.reason for name, verdict in verdicts.items() if not verdict.passed} == {}


@needs_torch
@pytest.mark.ranks
@pytest.mark.slow
@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_named(tmp_path, mistake):
    without, edit, criterion, words = WRONG[mistake]
    verdict = report(tmp_path, without, edit)[criterion]
    assert not verdict.passed
    assert words in verdict.reason


def test_without_pytorch_the_check_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(checks_2e, "find_spec", lambda name: None)
    assert checks_2e.check("nowhere.py") is None
    said = capsys.readouterr().out
    assert "PyTorch is not installed here" in said and "pip install" in said


@pytest.mark.parametrize(
    ("script", "words"),
    [(None, "Hand over a name"), (3, "Hand over a name"), ("nowhere.py", "There is no `nowhere.py`")],
)
def test_what_is_no_script_is_told_so(script, words, monkeypatch):
    monkeypatch.setattr(checks_2e, "find_spec", lambda name: name)
    (verdict,) = checks_2e.check(script).verdicts
    assert words in verdict.reason and verdict.points == 0


def test_each_step_of_the_conversion_fits_the_script():
    assert "DistributedDataParallel" not in conversions.converted([], FOLDER)
    compile(conversions.converted(folder=FOLDER), "converted", "exec")


def run(code=0, output="", **changed):
    """Two processes that did all as it should be, but for what is changed in the second."""
    order = np.random.default_rng(0).permutation(256)
    seen = [
        {
            "images": np.concatenate([order[rank::2], order[::-1][rank::2]]),
            "saves": np.array([False] * (rank == 0)), "met": np.array(2), "steps": np.array(8),
            "rate": np.array(0.04),
            "start_0": np.ones(3), "gradient_0": np.ones(3), "end_0": np.zeros(3),
        }
        for rank in range(2)
    ]  # fmt: skip
    on_gpus = [{"gpus": [rank], "backend": "nccl", "failed": ""} for rank in range(2)]
    for name in changed.keys() & on_gpus[1].keys():
        on_gpus[1][name] = changed.pop(name)
    seen[1].update(changed)
    return checks_2e.Run(seen, [0, code], ["", output], on_gpus)


@pytest.mark.parametrize(
    ("criterion", "changed", "words"),
    [
        ("init", {"met": np.array(1)}, "never met"),
        ("start", {"start_0": np.zeros(3)}, "broadcasts them"),
        ("average", {"gradient_0": np.zeros(3)}, "nobody averages"),
        ("data", {"steps": np.array(7)}, "read all of their part"),
        ("epoch", {"images": np.tile(np.arange(128), 2)}, "set_epoch"),
        ("rate", {"rate": np.array(0.02)}, "The learning rate is 0.02 and 0.04; the check passes 0.02"),
        ("save", {"saves": np.array([False])}, "let rank 0 do it"),
        ("device", {"gpus": [0]}, "rank 3 (local rank 1) uses GPU 0, as another process does: choose GPU 1"),
        ("device", {"gpus": [3]}, "asks for GPU 3; they are numbered from 0. `RANK` counts the processes of all hosts"),
        ("device", {"gpus": [0, 1]}, "uses GPUs 0 and 1"),
        ("device", {"gpus": []}, "it stays on the CPU"),
        ("device", {"gpus": [], "failed": "ValueError: no"}, "fails: ValueError: no"),
        ("device", {"backend": "gloo"}, "choose NCCL there"),
        (
            "init",
            {"steps": np.array(0), "code": 1, "output": "x\nRuntimeError: CUDA is missing"},
            "no GPU in this check",
        ),
        ("init", {"steps": np.array(0), "code": 124}, "does one process wait"),
    ],
)
def test_what_was_seen_is_judged(criterion, changed, words):
    (asked,) = [one for one in checks_2e.CRITERIA if one.id == criterion]
    assert criterion == "average" or asked(run()).passed  # for the average the network is needed
    assert words in asked(run(**changed)).reason
