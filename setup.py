"""Builds the native CPU kernel; everything else is in pyproject.toml.

The kernel is a plain shared library with a C interface, loaded through ctypes: it is built without
PyTorch's headers, so one build serves every PyTorch version. Where it cannot be compiled the install
goes on without it, and the layers compute through PyTorch alone.
"""

import os

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = ["interface", "portable", "avx2", "avx512"]
HEADERS = ["interface", "kernels", "channels", "across", "depthwise", "grids", "shape", "tile", "transpose"]


class BuildNative(build_ext):
    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []  # a ctypes library has no PyInit_* function to export


flags = os.environ.get("SLEEPCONV_CXXFLAGS", "-O3 -std=c++17 -ffp-contract=fast -fvisibility=hidden -Wno-psabi")
native = Extension(
    "sleepconv.kernels.native._native",
    sources=[f"src/sleepconv/kernels/native/{name}.cpp" for name in SOURCES],
    depends=[f"src/sleepconv/kernels/native/{name}.h" for name in HEADERS],
    extra_compile_args=flags.split(),
    extra_link_args=os.environ.get("SLEEPCONV_LDFLAGS", "").split(),
    optional=True,
)
setup(ext_modules=[native], cmdclass={"build_ext": BuildNative})
