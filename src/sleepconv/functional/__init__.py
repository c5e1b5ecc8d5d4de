"""Functions on tensors that layers, sleep and simulations are built from."""

from sleepconv.functional.grids import adjusted_rand_index, interior_neurons, lateral_grids, leave_border_alone
from sleepconv.functional.locally_connected import locally_connected1d, locally_connected2d, locally_connected3d
from sleepconv.functional.measures import pooled_weight_snr, weight_snr
from sleepconv.functional.on_grids import grid_convolution
from sleepconv.functional.per_patch import per_patch_linear
from sleepconv.functional.plain import decompositions
from sleepconv.functional.sharing import grid_sums, hebbian_step_, set_grids_, share_weights_
from sleepconv.functional.sizes import output_size

__all__ = [
    "adjusted_rand_index",
    "decompositions",
    "grid_convolution",
    "grid_sums",
    "hebbian_step_",
    "interior_neurons",
    "lateral_grids",
    "leave_border_alone",
    "locally_connected1d",
    "locally_connected2d",
    "locally_connected3d",
    "output_size",
    "per_patch_linear",
    "pooled_weight_snr",
    "set_grids_",
    "share_weights_",
    "weight_snr",
]
