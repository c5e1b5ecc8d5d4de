"""Plain convolutional networks; their connectivity comes from ``sleepconv.nn.convert``."""

from sleepconv.models.resnet18 import resnet18
from sleepconv.models.resnet_cifar import resnet20

__all__ = ["resnet18", "resnet20"]
