//! libFuzzer around the target that `ROCKETPY_FUZZ_TARGET` names; `tools/fuzz` builds and runs it.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rocketpy_proof::fuzz::{Target, target};

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("ROCKETPY_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("ROCKETPY_FUZZ_TARGET names no target: {name:?}"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
