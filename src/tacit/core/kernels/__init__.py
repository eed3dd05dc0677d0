"""Triton kernels of core, each with a plain twin beside it. Nothing here is imported where Triton is missing."""
