"""Three problems for workers that share their weights: drawn, so that the truth is known, and taken example by example.

What they differ in is how many of the weights an example touches: a few (a sparse logistic regression), two rows of
two matrices (a recommender), all (a dense logistic regression).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

FIELDS = 10  # of a sparse example


@dataclass(frozen=True, eq=False)
class Sparse:
    """Logistic regression on examples with a few fields, each of which has one of many values, as a town or a brand.

    features: the weights that an example touches, one for each field, int [examples, fields]; answers: 0 or 1.
    """

    size: int
    features: np.ndarray = field(repr=False)
    answers: np.ndarray = field(repr=False)
    rate: float = 0.2

    @classmethod
    def drawn(cls, examples: int, values: int, popularity: float = 0.0, seed: int = 0) -> Sparse:
        """Ten fields of `values` values; value v is drawn in proportion to 1 / (v + 1)^popularity."""
        random = np.random.default_rng(seed)
        shares = (1.0 + np.arange(values)) ** -popularity
        drawn = random.choice(values, (examples, FIELDS), p=shares / shares.sum())
        features = drawn + values * np.arange(FIELDS)
        truth = random.normal(0, 1, FIELDS * values)
        chance = 1 / (1 + np.exp(-truth[features].sum(1)))
        return cls(FIELDS * values, features, (random.random(examples) < chance).astype(float))

    @property
    def examples(self) -> int:
        """How many examples there are."""
        return len(self.answers)

    def start(self) -> np.ndarray:
        """The weights before the first step [size]."""
        return np.zeros(self.size)

    def step(self, weights: np.ndarray, count: np.ndarray, example: int) -> int:
        """One update in place; adds 1 to the count of each weight that it touches, and returns how many these are."""
        at = self.features[example]
        slope = _sigmoid(float(weights[at].sum())) - self.answers[example]
        weights[at] -= self.rate * slope
        count[at] += 1
        return len(at)

    def loss(self, weights: np.ndarray) -> float:
        """The mean cross-entropy."""
        return _cross_entropy(weights[self.features].sum(1), self.answers)


@dataclass(frozen=True, eq=False)
class Ratings:
    """Matrix factorisation: a rating is about the user's row · the item's row. The weights are all rows, users first.

    user, item: ints [examples]; rating: [examples], drawn from a true factorisation with noise; rank: of a row.
    """

    users: int
    items: int
    user: np.ndarray = field(repr=False)
    item: np.ndarray = field(repr=False)
    rating: np.ndarray = field(repr=False)
    rate: float = 0.1
    rank: int = 8

    @classmethod
    def drawn(cls, examples: int, users: int, items: int, seed: int = 0) -> Ratings:
        """Examples drawn with a seed."""
        random = np.random.default_rng(seed)
        rank = cls.rank
        user, item = random.integers(users, size=examples), random.integers(items, size=examples)
        tastes, traits = random.normal(0, rank**-0.25, (users, rank)), random.normal(0, rank**-0.25, (items, rank))
        return cls(users, items, user, item, (tastes[user] * traits[item]).sum(1) + random.normal(0, 0.1, examples))

    @property
    def examples(self) -> int:
        """How many examples there are."""
        return len(self.rating)

    @property
    def size(self) -> int:
        """How many weights there are."""
        return (self.users + self.items) * self.rank

    def start(self) -> np.ndarray:
        """The weights before the first step [size]."""
        return np.random.default_rng(1).normal(0, 0.3, self.size)

    def step(self, weights: np.ndarray, count: np.ndarray, example: int) -> int:
        """As `Sparse.step`."""
        rank = self.rank
        u, v = self.user[example] * rank, (self.users + self.item[example]) * rank
        taste, trait = weights[u : u + rank], weights[v : v + rank]
        error = self.rate * (self.rating[example] - float(taste @ trait))
        change = error * trait
        trait += error * taste
        taste += change
        count[u : u + rank] += 1
        count[v : v + rank] += 1
        return 2 * rank

    def loss(self, weights: np.ndarray) -> float:
        """The mean squared error."""
        rows = weights.reshape(-1, self.rank)
        return float(np.mean(((rows[self.user] * rows[self.users + self.item]).sum(1) - self.rating) ** 2))


@dataclass(frozen=True, eq=False)
class Dense:
    """Logistic regression on examples in which no feature is 0: inputs [examples, size], answers 0 or 1 [examples]."""

    inputs: np.ndarray = field(repr=False)
    answers: np.ndarray = field(repr=False)

    @classmethod
    def drawn(cls, examples: int, size: int, seed: int = 0) -> Dense:
        """Examples drawn with a seed."""
        random = np.random.default_rng(seed)
        inputs = random.normal(size=(examples, size))
        truth = random.normal(0, 3 / math.sqrt(size), size)
        return cls(inputs, (random.random(examples) < 1 / (1 + np.exp(-inputs @ truth))).astype(float))

    @property
    def examples(self) -> int:
        """How many examples there are."""
        return len(self.answers)

    @property
    def size(self) -> int:
        """How many weights there are."""
        return self.inputs.shape[1]

    @property
    def rate(self) -> float:
        """The learning rate η."""
        return 2 / self.size

    def start(self) -> np.ndarray:
        """The weights before the first step [size]."""
        return np.zeros(self.size)

    def step(self, weights: np.ndarray, count: np.ndarray, example: int) -> int:
        """As `Sparse.step`."""
        x = self.inputs[example]
        slope = _sigmoid(float(weights @ x)) - self.answers[example]
        weights -= (self.rate * slope) * x
        count += 1
        return len(x)

    def loss(self, weights: np.ndarray) -> float:
        """The mean cross-entropy."""
        return _cross_entropy(self.inputs @ weights, self.answers)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-max(-500.0, min(500.0, x))))


def _cross_entropy(scores: np.ndarray, answers: np.ndarray) -> float:
    return float(np.mean(np.logaddexp(0, scores) - answers * scores))
