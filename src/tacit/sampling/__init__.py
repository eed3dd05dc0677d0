"""Which records a step sees, and the event that this choice earns.

Every sampler is a frozen description with public fields only; the data set's real size and the randomness are
arguments of `indices`. The event that an accountant is given comes from the sampler that really ran:

| sampler | relations | event of T steps |
|---|---|---|
| `Poisson` | all three | T Poisson-sampled Gaussians |
| `TruncatedPoisson` | zero-out, replace-one | T truncated subsampled Gaussians |
| `FixedSize` | replace-one | T Gaussians sampled without replacement |
| `Shuffled` | zero-out, replace-one | one plain Gaussian an epoch: shuffling is not amplified |
"""

from tacit.sampling.chunks import Chunk as Chunk
from tacit.sampling.chunks import chunks as chunks
from tacit.sampling.fixed_size import FixedSize as FixedSize
from tacit.sampling.named import SAMPLERS as SAMPLERS
from tacit.sampling.named import named_sampler as named_sampler
from tacit.sampling.poisson import Poisson as Poisson
from tacit.sampling.sampler import Sampler as Sampler
from tacit.sampling.sampler import check_sampler as check_sampler
from tacit.sampling.sampler import steps_for_epochs as steps_for_epochs
from tacit.sampling.shuffled import Shuffled as Shuffled
from tacit.sampling.truncated import TruncatedPoisson as TruncatedPoisson
