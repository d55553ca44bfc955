"""Fits of the kernel constants of ``hardware/kernels/*.yaml`` on measured tables."""
