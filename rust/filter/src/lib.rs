//! Which messages a reader wants: the hash of tags and keys, the subscription expression, the filter of a read.

mod message;
mod tag;
mod wanted;

pub use message::MessageFilter;
pub use tag::{TagFilter, hash_code, hash_code_on, is_extension_address, key_hash_code, tag_code};
pub use wanted::{Tags, TagsError, unnameable};
