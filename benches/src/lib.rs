//! Criterion kernels of RocketPy; see the benches folder.
