//! The binary outside the wheel, for figures and soak: `rocketpy server|namesrv|broker` without Python.
fn main() {}
