"""What an audit of a data set does unless told: all of a small set, and of a large one what two cores can train."""

import dataclasses

import pytest
import torch

from tacit.auditing.experiment import AuditExperiment, AuditSettings
from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split
from tacit.training import default_settings


def data(name: str, examples: int, shape: tuple[int, ...]) -> DataSet:
    """Every record is known by the first number of its input."""
    inputs = torch.zeros(examples, *shape)
    inputs.flatten(1)[:, 0] = torch.arange(examples)
    split = Split(inputs, torch.arange(examples) % 10)
    return DataSet(name, split, split, 10, shape, "made here")


def test_a_small_set_is_taken_whole_and_trained_as_ever():
    small = data("digits", 300, (1, 8, 8))
    chosen = AuditSettings.for_data(small)
    assert chosen.records == 300
    assert chosen.training == default_settings(small)
    assert chosen.drawn_from(small, Randomness()) is small


@pytest.mark.parametrize(("name", "shape"), [("mnist", (1, 28, 28)), ("cifar10-jpeg", (3, 32, 32))])
def test_a_large_set_gives_a_part_and_a_perceptron_unless_told(name, shape):
    large = data(name, 12_000, shape)
    chosen = AuditSettings.for_data(large)
    assert chosen.records < 12_000
    assert chosen.training.model == "mlp"
    assert chosen.canaries <= chosen.records // 8
    plan = chosen.plan(chosen.records)
    assert plan.examples == chosen.records // 2
    told = AuditSettings.for_data(large, model="tanh-cnn", records=50_000)
    assert told.records == 12_000  # all that there are
    assert told.training == default_settings(large, "tanh-cnn")


def test_the_pool_is_a_random_part_without_repetition():
    large = data("digits", 2000, (4,))
    chosen = AuditSettings.for_data(large, records=500, steps=1)
    drawn = [chosen.drawn_from(large, Randomness()).train for _ in range(2)]
    numbers = [split.inputs[:, 0].long().tolist() for split in drawn]
    for split, found in zip(drawn, numbers, strict=True):
        assert len(set(found)) == 500
        assert torch.equal(split.targets, torch.tensor(found) % 10)  # every record with its own target
        assert abs(sum(found) / 500 - 1000) < 6 * 2000 / (12 * 500) ** 0.5
    assert numbers[0] != numbers[1]


def test_the_experiment_is_of_the_pools_size():
    large = data("digits", 2000, (1, 8, 8))
    chosen = AuditSettings.for_data(large, records=400, epsilon=2.0)
    experiment = AuditExperiment.prepare(large, chosen, Randomness(), torch.device("cpu"))
    assert len(experiment.pool) == 400
    assert experiment.plan.examples == 200
    assert len(experiment.planting) == 50


def test_too_few_records_are_refused():
    chosen = AuditSettings.for_data(data("digits", 300, (1, 8, 8)))
    with pytest.raises(InputError, match=r"records=3: .*Fewer show next to nothing"):
        dataclasses.replace(chosen, records=3)


@pytest.mark.parametrize(("name", "value"), [("schedule", "cosine"), ("sampler", "shuffled")])
def test_ways_to_train_that_an_audit_does_not_go_are_refused_and_not_passed_over(name, value):
    chosen = AuditSettings.for_data(data("digits", 300, (1, 8, 8)))
    with pytest.raises(InputError, match=f"{name}='{value}': must be one of"):
        dataclasses.replace(chosen, training=chosen.training.changed(**{name: value}))
