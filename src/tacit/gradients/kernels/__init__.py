"""Triton kernels for per-example gradients, each with a plain twin that runs wherever PyTorch does."""

from tacit.gradients.kernels.fitting import GRAM_BLOCK as GRAM_BLOCK
from tacit.gradients.kernels.fitting import HALF as HALF
from tacit.gradients.kernels.fitting import MOST_POSITIONS as MOST_POSITIONS
from tacit.gradients.kernels.fitting import NARROW as NARROW
from tacit.gradients.kernels.fitting import cutouts_fit as cutouts_fit
from tacit.gradients.kernels.fitting import triton_is_installed as triton_is_installed
from tacit.gradients.kernels.geometry import Geometry as Geometry
from tacit.gradients.kernels.operators import convolution_norms as convolution_norms
from tacit.gradients.kernels.operators import convolution_products as convolution_products
from tacit.gradients.kernels.operators import convolution_sum as convolution_sum
from tacit.gradients.kernels.operators import patch_grams as patch_grams
from tacit.gradients.kernels.operators import product_norms as product_norms
from tacit.gradients.kernels.row_operators import ADD_UP as ADD_UP
from tacit.gradients.kernels.row_operators import CLEAR as CLEAR
from tacit.gradients.kernels.row_operators import fetch_box_ as fetch_box_
from tacit.gradients.kernels.row_operators import outer_sum as outer_sum
from tacit.gradients.kernels.row_operators import weighted_rows as weighted_rows
from tacit.gradients.kernels.row_operators import zero_rows_ as zero_rows_
