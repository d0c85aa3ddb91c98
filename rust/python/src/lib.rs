//! The extension module `rocketpy._rocketpy`: one file per Python class, and no logic.
//!
//! Four rules hold in every file. A call that waits goes through `wait`: without the interpreter lock, awake for Ctrl-C.
//! What it waited for becomes a Python object apart from that (`convert`), so that a future may get it as well. A value
//! with threads or sockets behind it is `process::Owned`: a forked child gets an error, never a hang. No thread of a
//! runtime ever waits for the interpreter lock (`completion`, `aio`, `logs`).

#![allow(unsafe_code, reason = "Python's buffer protocol and values that a forked child must not drop")]

mod accounts;
mod admin;
mod aio;
mod answers;
mod arrow;
mod balance;
mod body;
mod buffer;
mod change;
mod client;
mod completion;
mod config;
mod consumer;
mod consumer_options;
mod convert;
mod credentials;
mod duration;
mod error;
mod inventory;
mod json;
mod load;
mod logs;
mod message;
mod message_id;
mod named;
mod number;
mod options;
mod process;
mod producer;
mod push;
mod queue;
mod range_reader;
mod receipt;
mod received;
mod rows;
mod runtime;
mod server;
mod server_log;
mod stacks;
mod start;
mod stats;
mod store;
mod store_retention;
mod store_tools;
mod tags;
mod tls;
mod trace;
mod transaction;
mod untracked;
mod wait;

use pyo3::prelude::*;

/// Whether this build can end its process at a failpoint, or can have planted bugs.
const HAS_TEST_FAULTS: bool = rocketpy_env::failpoint::FAILPOINTS || rocketpy_store::planted::PLANTED_BUGS;

// Checks of the whole workspace build it together with the proof, by the dev profile; `tests/cli/test_build.py` looks at that wheel.
#[cfg(not(debug_assertions))]
const _: () = assert!(!HAS_TEST_FAULTS, "release module must not contain faults of tests");

#[pymodule(name = "_rocketpy")]
mod extension {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::accounts::put_user_offline;
    #[pymodule_export]
    use crate::admin::PyAdmin;
    #[pymodule_export]
    use crate::aio::{Answer, Arrivals};
    #[pymodule_export]
    use crate::arrow::ArrowBatch;
    #[pymodule_export]
    use crate::balance::{PyAllocation, PyAllocations};
    #[pymodule_export]
    use crate::change::PyChange;
    #[pymodule_export]
    use crate::completion::SendOutcome;
    #[pymodule_export]
    use crate::config::{
        config_check_on_command_line, config_key_name, config_keys, config_unset, config_unused_keys,
    };
    #[pymodule_export]
    use crate::consumer::PyConsumer;
    #[pymodule_export]
    use crate::json::json_columns;
    #[pymodule_export]
    use crate::load::SendLoad;
    #[pymodule_export]
    use crate::message::{PyMessage, is_reserved_property, message_copy, split_keys};
    #[pymodule_export]
    use crate::message_id::{offset_message_id_parts, tag_hashes, unique_key_parts};
    #[pymodule_export]
    use crate::producer::PyProducer;
    #[pymodule_export]
    use crate::push::{Messages, PyPushConsumer, PyWork};
    #[pymodule_export]
    use crate::range_reader::PyRangeReader;
    #[pymodule_export]
    use crate::receipt::{SentMany, UnreadReceipt};
    #[pymodule_export]
    use crate::received::ReceivedMessage;
    #[pymodule_export]
    use crate::server::PyServer;
    #[pymodule_export]
    use crate::server_log::{reopen_log, start_log};
    #[pymodule_export]
    use crate::store::{PyStoreReader, Scan};
    #[pymodule_export]
    use crate::store_retention::store_retention;
    #[pymodule_export]
    use crate::store_tools::{
        StoreRecords, StoreTransfer, store_cut, store_diff, store_facts, store_properties, store_repair,
        store_snapshot, store_verify,
    };
    #[pymodule_export]
    use crate::tags::tag_names;
    #[pymodule_export]
    use crate::trace::trace_records;
    #[pymodule_export]
    use crate::transaction::{Check, Checks, Half};

    /// Removes the list of names that the module gets by itself: the stub lists them, and `stubtest` compares.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.delattr("__all__")
    }

    /// Seconds since a moment that stays the same while the process lives. No test library freezes or moves it.
    #[pyfunction]
    fn monotonic() -> f64 {
        use rocketpy_env::Disk;

        rocketpy_env::RealDisk.monotonic().as_secs_f64()
    }

    /// Moves the clock of this process, for tests of what waits.
    #[pyfunction]
    fn move_clock(by_ms: i64) {
        rocketpy_env::move_clock(by_ms);
    }

    /// Ends the threads that call into Python: those that complete futures, and the one that hands the last log records of clients to
    /// Python's loggers. Later records are dropped.
    #[pyfunction]
    fn end_threads(py: Python<'_>) {
        crate::completion::end(py);
        crate::stacks::end(py);
        crate::logs::end(py);
    }

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python packages use")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// The cargo profile: `make demo` and `make test` install a wheel that builds fast, users get the other one.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "like the version")]
    const __profile__: &str = if cfg!(debug_assertions) { "dev" } else { "release" };

    /// The commit of the sources: `build.rs` finds it.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "like the version")]
    const __commit__: &str = env!("ROCKETPY_COMMIT");

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "like the version")]
    const __has_test_faults__: bool = crate::HAS_TEST_FAULTS;
}
