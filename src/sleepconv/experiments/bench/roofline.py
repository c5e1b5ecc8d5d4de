"""What bounds a layer on a GPU, computed from its bytes and operations; nothing here is measured."""

# Input and output channels, kernel, stride and input side of every layer of ResNet20 on 32×32 pixels, and of the
# half-width ResNet18 on 224×224.
RESNET20 = [
    (3, 16, 3, 1, 32),
    (16, 16, 3, 1, 32),
    (16, 32, 3, 2, 32),
    (16, 32, 1, 2, 32),
    (32, 32, 3, 1, 16),
    (32, 64, 3, 2, 16),
    (32, 64, 1, 2, 16),
    (64, 64, 3, 1, 8),
]
RESNET18 = [
    (3, 32, 7, 2, 224),
    (32, 32, 3, 1, 56),
    (32, 64, 3, 2, 56),
    (32, 64, 1, 2, 56),
    (64, 64, 3, 1, 28),
    (64, 128, 3, 2, 28),
    (64, 128, 1, 2, 28),
    (128, 128, 3, 1, 14),
    (128, 256, 3, 2, 14),
    (128, 256, 1, 2, 14),
    (256, 256, 3, 1, 7),
]
