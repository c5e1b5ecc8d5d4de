"""Tools that let a sleeping network learn at full speed: gradients, rates and momentum that know who shares."""

from sleepconv.optim.compact_adamw import CompactAdamW
from sleepconv.optim.gradients import Coherence, gradient_coherence, share_gradients, share_moments, share_moments_
from sleepconv.optim.rates import scaled_groups
from sleepconv.optim.slow_momentum import SlowMomentum

__all__ = [
    "Coherence",
    "CompactAdamW",
    "SlowMomentum",
    "gradient_coherence",
    "scaled_groups",
    "share_gradients",
    "share_moments",
    "share_moments_",
]
