//! Commit log, consume queue, flush, dispatch and recovery. No async runtime.
