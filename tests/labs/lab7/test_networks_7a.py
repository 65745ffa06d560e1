"""The networks of notebook 7a, with the learner's solutions on rehearsed ranks, against their serial twins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from course_lib.parallel.group import rehearse
from labs.lab7_splitting_the_model.lessons import autodiff_pair, balanced_gate, cut_network, experts, wire_words
from labs.lab7_splitting_the_model.lessons.checks_7a import loads

NOTEBOOK = "7a_cut_the_layer"


@pytest.fixture(scope="module")
def learned(answer):
    return cut_network.Learners(*(answer(NOTEBOOK, name) for name in ("Cut", "deal", "cut_cross_entropy")))


@pytest.fixture(scope="module")
def serial():
    return cut_network.serial()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_cut_network_equals_its_twin(learned, serial, ranks):
    found = rehearse(lambda group: cut_network.train(group, learned), ranks)
    assert max(cut_network.apart(found, serial, learned.deal).values()) < 1e-12
    assert serial["losses"][-1] < serial["losses"][0]
    assert found[0]["calls"] == ["all_reduce"] * 7


def test_a_difference_is_seen(learned, serial):
    found = rehearse(lambda group: cut_network.train(group, learned), 2)
    found[1]["weights"]["w2"][3, 2] += 1e-3
    assert cut_network.apart(found, serial, learned.deal)["weights"] == pytest.approx(1e-3)


@pytest.mark.parametrize("ranks", [2, 4])
def test_experts_on_ranks_equal_their_twin(answer, ranks):
    route, balance = answer(NOTEBOOK, "route"), answer(NOTEBOOK, "balance")
    found = rehearse(lambda group: experts.train(group, route, balance, factor=1.0), ranks)
    assert max(experts.apart(found, experts.serial(ranks, factor=1.0)).values()) < 1e-12
    assert any(rank["dropped"] > 0 for rank in found)
    assert all(0 < rank["sent"] / 64 < 4 * 8 for rank in found)


def test_the_words_are_those_of_the_collectives(answer):
    cut, words = answer(NOTEBOOK, "Cut"), answer(NOTEBOOK, "words")

    def program(everybody, pairs, across):
        groups = {"all": everybody, "pairs": pairs, "across": across}
        found = {}
        for plan in wire_words.PLANS:
            data, tensor = wire_words.groups_of(plan, groups)
            before = data.sent + tensor.sent
            wire_words.pair_step(data, tensor, cut, 64)
            found[plan] = data.sent + tensor.sent - before
        return found

    def members(rank):
        return [[0, 1, 2, 3], [rank // 2 * 2, rank // 2 * 2 + 1], [rank % 2, rank % 2 + 2]]

    for found in rehearse(program, 4, members):
        for plan, ways in wire_words.PLANS.items():
            assert found[plan] == pytest.approx(words(64, wire_words.SIZES, *ways))
            assert found[plan] == pytest.approx(sum(loads(64, wire_words.SIZES, *ways)))


def test_the_functions_that_are_shown_are_the_library_s():
    assert autodiff_pair.source().count("def call") == 2
    assert autodiff_pair.source().startswith("def copied")


def test_a_socket_s_bytes_are_counted():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        other, _ = server.accept()
        with other:
            before = wire_words.socket_bytes()
            client.sendall(bytes(1000))
            received = 0
            while received < 1000:
                received += len(other.recv(1000))
            assert wire_words.sent_between(before, wire_words.socket_bytes()) == 1000


def test_the_gradients_of_the_small_network_are_those_of_its_loss():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 196)), random.integers(10, size=40)

    def loss(network):
        h = np.maximum(x @ network.into, 0)
        p = experts.softmax(h @ network.gate)
        choice = p.argmax(1)
        kept = experts.places(choice, 4, int(1.25 * 10))
        made = np.zeros(h.shape)
        for number, expert in enumerate(network.experts):
            mine = kept & (choice == number)
            made[mine] = expert.forward(h[mine])
        logits = (h + p.max(1, keepdims=True) * made) @ network.out
        shares = np.bincount(choice, minlength=4) / 40
        return -np.log(experts.softmax(logits)[np.arange(40), y]).mean() + 0.1 * 4 * shares @ p.mean(0)

    for name, place in (("into", (3, 2)), ("gate", (5, 1)), ("out", (4, 7))):
        network = balanced_gate.Network(1, 4)
        weights, small = getattr(network, name), 1e-6
        around = []
        for sign in (1, -1):
            weights[place] += sign * small
            around.append(loss(network))
            weights[place] -= sign * small
        before = weights.copy()
        network.step(x, y, 1.0, 0.1)
        slope = (before - getattr(network, name))[place]
        assert slope == pytest.approx((around[0] - around[1]) / (2 * small), rel=1e-4, abs=1e-8)


def test_capacity_takes_the_first_ones():
    assert experts.places(np.array([0, 1, 0, 0, 1]), 2, 2).tolist() == [True, True, True, False, True]


def test_on_sixteen_ranks_experts_are_overfilled_by_chance_and_more_by_the_gate(answer):
    route, balance = answer(NOTEBOOK, "route"), answer(NOTEBOOK, "balance")
    found = rehearse(lambda group: experts.train(group, route, balance, steps=1), 16)
    assert int(1.25 * 64 / 16) == 5  # "there is room for five, and about a quarter of the tokens are dropped"
    assert np.mean([rank["dropped"] for rank in found]) == pytest.approx(0.26, abs=0.01)
    tokens = np.arange(65)
    by_chance = (np.maximum(0, tokens - 5) * binom.pmf(tokens, 64, 1 / 16)).sum() * 16 / 64
    assert by_chance == pytest.approx(0.1, abs=0.005)  # "with an even gate, it would be a tenth"


@pytest.fixture
def few_images(monkeypatch):
    """Few images, which train and validation share."""
    monkeypatch.setenv("COURSE_SLICE", "511")
    for name, value in {"TRAIN": 256, "VALIDATION": 100, "EPOCHS": 1}.items():
        monkeypatch.setattr(balanced_gate, name, value)
    balanced_gate.fashion.cache_clear()
    yield balanced_gate.fashion()
    balanced_gate.fashion.cache_clear()


def test_a_single_expert_takes_every_image(few_images):
    assert [len(few_images[name][0]) for name in ("train", "validation")] == [256, 100]
    assert np.abs(few_images["train"][0]).max() <= 2.5  # brightness, about 0 and of size 1
    _, row = balanced_gate.train(1, 0.0, 0.1, 1)
    assert row == {"dropped": 0.0, "fullest": 1.0}
