"""Learning while awake without weight transport: errors go back through feedback weights of their own.

``without_weight_transport`` (in ``transport``) gives the layers of a model feedback weights (``feedback_layers``), as
one of the rules (``wake_rules``) says; ``loss.backward()`` and any optimizer then train it. ``mirrors`` has the mirror
phase, a part of sleep; ``alignment`` measures how far the feedback weights are from the forward ones.
"""

from sleepconv.wake.feedback_layers import alignment
from sleepconv.wake.mirrors import mirror_, mirror_in_sleep
from sleepconv.wake.transport import with_weight_transport, without_weight_transport
from sleepconv.wake.wake_rules import (
    DirectFeedbackAlignment,
    FeedbackAlignment,
    KolenPollack,
    SignSymmetry,
    WakeRule,
    WeightMirrors,
)

__all__ = [
    "DirectFeedbackAlignment",
    "FeedbackAlignment",
    "KolenPollack",
    "SignSymmetry",
    "WakeRule",
    "WeightMirrors",
    "alignment",
    "mirror_",
    "mirror_in_sleep",
    "with_weight_transport",
    "without_weight_transport",
]
