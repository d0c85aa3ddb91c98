//! Tag filter: the hash of tags and keys, and the subscription expression over tags.

mod tag;

pub use tag::{TagFilter, hash_code, key_hash_code, tag_code};
