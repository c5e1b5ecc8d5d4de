"""What lets a sleeping network learn at its full speed: rates, gradients and steps that know who shares with whom."""

from sleepconv.optim.gradients import Coherence, gradient_coherence, share_gradients, share_moments
from sleepconv.optim.rates import scaled_groups
from sleepconv.optim.slow_momentum import SlowMomentum

__all__ = ["Coherence", "SlowMomentum", "gradient_coherence", "scaled_groups", "share_gradients", "share_moments"]
