"""KEY=VALUE on the command line becomes a knob of the right type, or one clear line."""

import dataclasses

import pytest

from tacit.core.errors import InputError
from tacit.recipes.knobs import changed, in_words, split_settings
from tacit.recipes.sweeping import Axis, read_axes


@dataclasses.dataclass(frozen=True)
class Knobs:
    epsilon: float = 2.0
    steps: int | None = 10
    learning_rate: float = 0.1
    setting: str = "published"


def test_values_are_read_as_what_they_are():
    found = changed(Knobs(), {"epsilon": "3", "steps": "20", "setting": "recalibrated"})
    assert found == Knobs(3.0, 20, 0.1, "recalibrated")
    assert isinstance(found.epsilon, float)


def test_words_are_the_same_however_it_was_said():
    words = ["epsilon=3", "steps=None", "learning_rate=0.5"]
    assert in_words(Knobs(), {"lr": "0.50", "epsilon": "3.0", "steps": "none"}) == words
    assert in_words(Knobs(), {"steps": "NONE", "learning-rate": "5e-1", "epsilon": "3"}) == words
    assert in_words(Knobs(), {"setting": "published"}) == ["setting=published"]
    assert in_words(Knobs(), {}) == []


def test_short_names_and_open_values():
    assert changed(Knobs(), {"lr": "0.5"}).learning_rate == 0.5
    assert changed(Knobs(), {"learning-rate": "0.5"}).learning_rate == 0.5
    assert changed(Knobs(), {"steps": "none"}).steps is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eps": "1"}, "eps=1: is no knob. Those there are: epsilon, steps, learning_rate, setting."),
        ({"steps": "1.5"}, "steps=1.5: must be a whole number. Take a whole number such as 10, or none."),
        ({"epsilon": "none"}, "epsilon=none: must be a number. Take a number such as 2."),
        ({"epsilon": "abc"}, "epsilon=abc: must be a number. Take a number such as 2."),
    ],
)
def test_what_is_wrong_is_named_with_a_remedy(settings, message):
    with pytest.raises(InputError) as refused:
        changed(Knobs(), settings)
    assert str(refused.value) == message


@pytest.mark.parametrize("text", ["epsilon", "=2", "epsilon="])
def test_a_setting_has_two_parts(text):
    with pytest.raises(InputError, match="KEY=VALUE"):
        split_settings("--set", [text])


def test_a_setting_is_given_once():
    with pytest.raises(InputError, match="2 times"):
        split_settings("--set", ["a=1", "a=2"])


def test_axes_are_lists_of_values():
    assert read_axes(["clip=0.1,1", "lr=2"]) == (Axis("clip", ("0.1", "1")), Axis("lr", ("2",)))


@pytest.mark.parametrize("texts", [[], ["clip"], ["clip=1,,2"], ["clip=1", "clip=2"]])
def test_bad_axes_are_refused(texts):
    with pytest.raises(InputError, match="over"):
        read_axes(texts)
