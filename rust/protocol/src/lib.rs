//! Sans-IO codecs of the remoting protocol and of the stored message.
//!
//! Nothing here reads a socket, a file or the clock. Decoders check every length against the
//! bytes that are there: bad input is refused, but neither panics nor chooses the size of an allocation.

#![warn(missing_docs)] // others build on every public item of this crate

pub mod batch;
pub mod body;
pub mod code;
pub mod compression;
pub mod disk;
pub mod frame;
pub mod handle;
pub mod header;
pub mod json;
pub mod message_id;
pub mod proof;
pub mod properties_text;
pub mod record;
pub mod settings;
pub mod signature;

mod command;
mod ext_fields;
mod language;
mod wire;

pub use command::{Command, flag};
pub use ext_fields::ExtFields;
pub use frame::{Frame, FrameError, SerializeType, decode_frame};
pub use header::{Header, HeaderError};
pub use language::Language;
