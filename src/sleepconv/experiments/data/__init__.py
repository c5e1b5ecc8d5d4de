"""Datasets: the paper's four, small ones and your own, their translations, and batches of them."""

from sleepconv.experiments.data.batches import Batches
from sleepconv.experiments.data.cifar import cifar10, cifar10_16x16, cifar100
from sleepconv.experiments.data.decoding import CorruptImageError, Decoders
from sleepconv.experiments.data.description import data_directory
from sleepconv.experiments.data.digits import digits, on_visual_field
from sleepconv.experiments.data.fashion_mnist import fashion_mnist
from sleepconv.experiments.data.imagenet import EncodedSource, ImageFolders, imagenet_folders
from sleepconv.experiments.data.images import IMAGENET, ChannelStatistics, Images, Source, TensorSource, measure
from sleepconv.experiments.data.tasks import Task, find_dataset, load_task, register_dataset
from sleepconv.experiments.data.tiny_imagenet import tiny_imagenet
from sleepconv.experiments.data.translations import Translate, translate
from sleepconv.experiments.runs.registry import DATASETS

__all__ = [
    "DATASETS",
    "IMAGENET",
    "Batches",
    "ChannelStatistics",
    "CorruptImageError",
    "Decoders",
    "EncodedSource",
    "ImageFolders",
    "Images",
    "Source",
    "Task",
    "TensorSource",
    "Translate",
    "cifar10",
    "cifar10_16x16",
    "cifar100",
    "data_directory",
    "digits",
    "fashion_mnist",
    "find_dataset",
    "imagenet_folders",
    "load_task",
    "measure",
    "on_visual_field",
    "register_dataset",
    "tiny_imagenet",
    "translate",
]
