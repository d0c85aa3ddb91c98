//! Which messages a reader wants: the hash of tags and keys, subscription expressions over tags and over properties,
//! the filter of a read.

mod message;
mod sql;
mod tag;
mod wanted;

pub use message::MessageFilter;
pub use sql::{SqlError, SqlFilter};
pub use tag::{TagFilter, hash_code, hash_code_on, is_extension_address, key_hash_code, tag_code};
pub use wanted::{Tags, TagsError, unnameable};
