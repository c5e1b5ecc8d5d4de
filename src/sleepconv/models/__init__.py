"""Plain networks with shared weights; convert them with ``sleepconv.nn`` to remove the sharing."""

from sleepconv.models.patch_models import mlp_mixer, small_vit
from sleepconv.models.resnets import resnet8, resnet18, resnet20
from sleepconv.models.tanh_network import tanh_network
from sleepconv.models.three_layers import three_layers

__all__ = ["mlp_mixer", "resnet8", "resnet18", "resnet20", "small_vit", "tanh_network", "three_layers"]
