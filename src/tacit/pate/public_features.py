r"""Features that public inputs alone decide, for teachers, neighbours and students.

PATE has public inputs without labels. What is learned from them costs nothing, and the private records only pass
through it, each by itself.
"""

import dataclasses

import torch
from sklearn.decomposition import PCA
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_non_negative
from tacit.datasets.blocks import in_blocks
from tacit.models import PublicMap, along_directions

_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True)
class PublicFeatures:
    r"""Rows along the directions in which public rows vary most, whitened in part, of one length.

    With the public mean m, the largest eigenvalues :math:`\lambda_i` of the public covariance and their directions
    :math:`v_i`, a row x becomes :math:`z_i = \lambda_i^{-a} v_i^T (x - m)`, then :math:`\sqrt d\, z / \lVert z \rVert`.

    Args:
        mean, directions: m and, in columns, :math:`\lambda_i^{-a} v_i`.
    """

    mean: Tensor
    directions: Tensor

    @classmethod
    def learn(cls, public: Tensor, *, directions: int = 300, whitening: float = 0.35) -> "PublicFeatures":
        """From public inputs, or what a public map makes of them; never from private ones.

        Args:
            public: inputs, as many as there are.
            directions: d, how many to keep; fewer where rows have fewer numbers, or there are fewer rows.
            whitening: a; 0 leaves lengths as they are, 0.5 makes all directions alike.
        """
        if len(public) == 0:
            raise InputError("public=0: there are no public inputs. PATE needs some to ask for.")
        check_count("directions", directions)
        check_non_negative("whitening", whitening)
        rows = public.flatten(1).float()
        found = PCA(min(directions, *rows.shape), svd_solver="randomized", random_state=0).fit(rows.cpu().numpy())
        variance = torch.from_numpy(found.explained_variance_).double().clamp_min(1e-12)
        scaled = torch.from_numpy(found.components_).double().t() * variance.pow(-whitening)
        mean = torch.from_numpy(found.mean_)
        return cls(mean.to(rows), scaled.to(rows))

    def __call__(self, inputs: Tensor) -> Tensor:
        """``[rows, directions]``, each row by itself."""
        return in_blocks(lambda part: along_directions(part, self.mean, self.directions), inputs, _AT_ONCE)

    def after(self, fixed: nn.Module | None) -> PublicMap:
        """These features of what a map makes of inputs, or of inputs as they are, as a module to be saved."""
        return PublicMap(fixed, self.mean, self.directions)
