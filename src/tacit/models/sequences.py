"""A small recurrent network that reads a sequence and answers once."""

import torch
from torch import nn

from tacit.core.validation import check_count, check_positive
from tacit.models.recurrent import PrivateRNN


class SequenceReader(nn.Module):
    """A recurrent layer with tanh, and an affine map of its last hidden state.

    The recurrent weights start as ``gain`` times an orthogonal matrix: at 1 the hidden state neither grows nor fades at
    first, so that a task with long memory can be learned at all, and gradients through time can explode as soon as
    learning makes the weights larger.

    Args:
        features: how many numbers a time step has.
        hidden: the width of the hidden state.
        outputs: the width of the answer.
        gain: the size of the recurrent weights at the start.
    """

    def __init__(self, features: int, hidden: int, outputs: int, gain: float = 1.0) -> None:
        super().__init__()
        self.recurrent = PrivateRNN(features, hidden, batch_first=True)
        self.head = nn.Linear(hidden, check_count("outputs", outputs))
        nn.init.orthogonal_(self.recurrent.get_parameter("weight_hh_l0"), check_positive("gain", gain))

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Sequences ``[examples, time, features]`` to answers ``[examples, outputs]``."""
        states, _ = self.recurrent(sequences)
        answers: torch.Tensor = self.head(states[:, -1])
        return answers
