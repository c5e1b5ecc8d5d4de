"""The paper's four datasets, two small ones, their translations and loaders."""

from sleepconv.data.batches import Batches
from sleepconv.data.catalogue import DATASETS, find_dataset
from sleepconv.data.cifar import cifar10, cifar10_16x16, cifar100
from sleepconv.data.digits import digits, on_visual_field
from sleepconv.data.encoded import EncodedSource
from sleepconv.data.fashion_mnist import fashion_mnist
from sleepconv.data.imagenet import ImageFolders, imagenet_folders
from sleepconv.data.images import Images
from sleepconv.data.jpeg import CorruptImageError, Decoders
from sleepconv.data.locations import data_directory
from sleepconv.data.shards import Shards, write_shards
from sleepconv.data.sources import Source, TensorSource
from sleepconv.data.statistics import IMAGENET, Statistics, measure
from sleepconv.data.tasks import Task, load_task
from sleepconv.data.tiny_imagenet import tiny_imagenet
from sleepconv.data.translations import Translate, translate

__all__ = [
    "DATASETS",
    "IMAGENET",
    "Batches",
    "CorruptImageError",
    "Decoders",
    "EncodedSource",
    "ImageFolders",
    "Images",
    "Shards",
    "Source",
    "Statistics",
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
    "tiny_imagenet",
    "translate",
    "write_shards",
]
