r"""Labels of a few public inputs spread to all of them, along a graph of which is near to which."""

import dataclasses

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_open_unit, check_positive

_BLOCK = 1024
_FEWEST, _SHARE = 5, 100  # links, and inputs for each further one: more would join classes
Labels = npt.NDArray[np.int64]
Distributions = npt.NDArray[np.float64]
"""``[rows, classes]``, each row adding up to 1."""


@dataclasses.dataclass(frozen=True)
class Propagation:
    r"""Label spreading: :math:`F \leftarrow \alpha S F + (1 - \alpha) Y`, from the answers Y.

    Every input is linked to those at the smallest angle to it, with weights :math:`e^{(c - c_1) / w}` for cosines c and
    the nearest one's :math:`c_1`; S is the symmetric matrix of weights, divided by the roots of its row sums. Classes
    start with one mass each and end with shares like those of the answers, so that a class with few answers is not
    swallowed by its neighbours.

    Attributes:
        links: of each input; fewer where there are few inputs, a hundredth of them but at least 5.
        width: w.
        spread: :math:`\alpha`.
        rounds: of spreading.

    Reference: Zhou, Bousquet, Lal, Weston, Schölkopf, Learning with Local and Global Consistency, 2003; Zhu,
    Ghahramani, Lafferty, Semi-Supervised Learning Using Gaussian Fields and Harmonic Functions, 2003, for the shares.
    """

    links: int = 20
    width: float = 0.1
    spread: float = 0.98
    rounds: int = 100

    def __post_init__(self) -> None:
        check_count("links", self.links)
        check_positive("width", self.width)
        check_open_unit("spread", self.spread)
        check_count("rounds", self.rounds)

    def spread_labels(self, features: Tensor, rows: Labels, labels: Labels, classes: int) -> Distributions:
        """What every row of the features is, ``[rows, classes]``; where no label reaches, all classes alike.

        Args:
            features: of the public inputs, ``[inputs, numbers]``.
            rows, labels: the answers; a row may have several.
            classes: how many there are.
        """
        if len(rows) == 0:
            raise InputError("rows=0: no question was answered. Ask more questions, or give them a larger budget.")
        matrix = self._matrix(features)
        start = np.zeros((len(features), classes))
        np.add.at(start, (rows, labels), 1.0)
        shares = (start.sum(0) + 1) / (len(rows) + classes)
        start /= np.maximum(start.sum(0), 1.0)
        reached = start
        for _ in range(self.rounds):
            reached = self.spread * (matrix @ reached) + (1 - self.spread) * start
        reached = reached * (shares / np.maximum(reached.sum(0), np.finfo(float).tiny))
        total = reached.sum(1, keepdims=True)
        return np.where(total > 0, reached / np.where(total > 0, total, 1.0), 1 / classes)

    def _matrix(self, features: Tensor) -> sparse.csr_array:
        unit = torch.nn.functional.normalize(features.float(), dim=1)
        links = min(self.links, max(_FEWEST, len(unit) // _SHARE), len(unit) - 1)
        weights, places = [], []
        for start in range(0, len(unit), _BLOCK):
            cosines = unit[start : start + _BLOCK] @ unit.t()
            own = torch.arange(len(cosines), device=unit.device)
            cosines[own, own + start] = -2.0  # nobody is its own neighbour
            nearest = cosines.topk(links)
            weights.append(((nearest.values - nearest.values[:, :1]) / self.width).exp().double().cpu())
            places.append(nearest.indices.cpu())
        ends = np.arange(len(unit) + 1) * links
        shape = (len(unit), len(unit))
        flat = torch.cat(weights).flatten().numpy(), torch.cat(places).flatten().numpy(), ends
        one_way = sparse.csr_array(flat, shape=shape)
        both_ways = one_way + one_way.T
        scale = sparse.diags_array(1 / np.sqrt(np.maximum(both_ways.sum(1), np.finfo(float).tiny)))
        return sparse.csr_array(scale @ both_ways @ scale)
