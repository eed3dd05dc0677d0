"""Norms in, factors and a sensitivity out: how much one example may move the sum of gradients.

```python
clipping = Flat(0.1)                      # or PerLayer(0.1), PerLayer({"fc": 0.1, ...}), Automatic(0.1), Tanh(c, k)
bound = clipping.bind(names)              # names: the trainable parameters, in any order
bound.groups                              # tuple[tuple[str, ...], ...]: each group's norm is taken jointly
bound.factors(norms)                      # float64 [examples, groups] -> float64 [examples, groups]
bound.sensitivity(Neighbours.ADD_REMOVE)  # L2 bound on the change of the sum of the clipped gradients
```
"""

from tacit.clipping.automatic import Automatic as Automatic
from tacit.clipping.bound import BoundClipping as BoundClipping
from tacit.clipping.bound import Clipping as Clipping
from tacit.clipping.flat import Flat as Flat
from tacit.clipping.per_layer import PerLayer as PerLayer
from tacit.clipping.tanh import Tanh as Tanh
