//! The extension module rocketpy._rocketpy.
