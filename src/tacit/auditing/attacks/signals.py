r"""What an attack reads off a model: its logit-scaled confidence in the true label of each record.

.. math:: \phi = \log \frac{p_y}{1 - p_y} = z_y - \log \sum_{j \ne y} e^{z_j}

for outputs z and the label y. Unlike the probability it is close to normal over trainings, which LiRA needs; the
cross-entropy loss is :math:`\log(1 + e^{-\phi})`, so that a threshold on either is one on the other.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tacit.auditing.arrays import FloatArray
from tacit.core.errors import InputError

_ROWS_AT_ONCE = 2000


def confidences(outputs: Tensor, targets: Tensor) -> FloatArray:
    r"""``[…, rows]`` from outputs ``[…, rows, classes]`` and the labels of the rows, in float64.

    An output that is not finite tells nothing about its record: its confidence is 0, as of a coin.
    """
    if outputs.shape[-1] < 2:
        raise InputError(f"outputs of shape {tuple(outputs.shape)}: must have at least two classes in the last place.")
    values = outputs.detach().double()
    places = targets.to(values.device).expand(values.shape[:-1])[..., None]
    own = values.gather(-1, places)
    others = values.scatter(-1, places, -torch.inf).logsumexp(-1)
    found: FloatArray = (own[..., 0] - others).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).cpu().numpy()
    return found


@torch.no_grad()
def model_confidences(model: nn.Module, inputs: Tensor, targets: Tensor) -> FloatArray:
    """The confidences ``[rows]`` of a model in evaluation mode, on the device where the model is."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        parts = [
            confidences(model(rows.to(device)), labels)
            for rows, labels in zip(
                torch.split(inputs, _ROWS_AT_ONCE), torch.split(targets, _ROWS_AT_ONCE), strict=True
            )
        ]
    finally:
        model.train(was_training)
    return np.concatenate(parts)


def losses(confidence: npt.ArrayLike) -> FloatArray:
    r"""The cross-entropy :math:`-\log p_y = \log(1 + e^{-\phi})` of confidences."""
    return np.logaddexp(0.0, -np.asarray(confidence, dtype=np.float64))
