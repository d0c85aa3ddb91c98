//! The only door to files, memory maps, clock and randomness.
