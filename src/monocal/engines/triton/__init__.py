"""Sums over rows on CUDA devices, by kernels written in Triton. Modules named `..._kernels` need Triton to be imported."""
