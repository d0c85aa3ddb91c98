//! Tag filter: the hash of a tag and the subscription expression over tags.

mod tag;

pub use tag::{TagFilter, hash_code, tag_code};
