//! Tag filter: the hash of tags and keys, and the subscription expression over tags.

mod tag;

pub use tag::{TagFilter, hash_code, hash_code_on, key_hash_code, tag_code};
