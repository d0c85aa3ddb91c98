//! The bits of a message's `sysFlag` and of a pull request's `sysFlag`.
//!
//! # Source
//! docs/reference/protocol.md 4.3 and 5.1, docs/reference/store-format.md 2.3.

/// The body is compressed; bits [`COMPRESSION_MASK`] say how.
pub const COMPRESSED: i32 = 0x1;
/// The tag text holds several values.
pub const MULTI_TAGS: i32 = 0x2;
/// The two transaction bits.
pub const TRANSACTION_MASK: i32 = 0xC;
/// A half message.
#[doc(alias = "TRANSACTION_PREPARED_TYPE")]
pub const TRANSACTION_PREPARED: i32 = 0x4;
/// A committed message of a transaction.
#[doc(alias = "TRANSACTION_COMMIT_TYPE")]
pub const TRANSACTION_COMMIT: i32 = 0x8;
/// A message of a transaction that was rolled back.
#[doc(alias = "TRANSACTION_ROLLBACK_TYPE")]
pub const TRANSACTION_ROLLBACK: i32 = 0xC;
/// The born host has 16 address bytes.
pub const BORN_HOST_V6: i32 = 0x10;
/// The store host has 16 address bytes.
pub const STORE_HOST_V6: i32 = 0x20;
/// The consumer unwraps this inner batch.
pub const NEED_UNWRAP: i32 = 0x40;
/// The record holds an inner batch.
pub const INNER_BATCH: i32 = 0x80;
/// The three compression type bits.
pub const COMPRESSION_MASK: i32 = 0x700;

/// Bits of a pull request's `sysFlag`.
#[doc(alias = "PullSysFlag")]
pub mod pull {
    /// The request also commits its `commitOffset`.
    pub const COMMIT_OFFSET: i32 = 0x1;
    /// The broker may hold the request when it has nothing to give.
    pub const SUSPEND: i32 = 0x2;
    /// The request carries its subscription.
    pub const SUBSCRIPTION: i32 = 0x4;
    /// Legacy filter classes.
    pub const CLASS_FILTER: i32 = 0x8;
    /// Sent by a lite consumer.
    pub const LITE_PULL: i32 = 0x10;
}

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompressionType {
    /// LZ4 frame.
    Lz4,
    /// Zstandard frame.
    Zstd,
    /// zlib stream (RFC 1950); what every client can read.
    Zlib,
}

impl CompressionType {
    /// The type bits of this kind, without [`COMPRESSED`].
    #[must_use]
    pub const fn bits(self) -> i32 {
        match self {
            Self::Lz4 => 0x100,
            Self::Zstd => 0x200,
            Self::Zlib => 0x300,
        }
    }

    /// The compression that `sys_flag` states: `None` for a plain body, zlib when the type bits are 0 (older senders).
    ///
    /// # Errors
    /// The type bits when no type is known for them.
    pub const fn of_sys_flag(sys_flag: i32) -> Result<Option<Self>, i32> {
        if sys_flag & COMPRESSED == 0 {
            return Ok(None);
        }
        match sys_flag & COMPRESSION_MASK {
            0 | 0x300 => Ok(Some(Self::Zlib)),
            0x100 => Ok(Some(Self::Lz4)),
            0x200 => Ok(Some(Self::Zstd)),
            unknown => Err(unknown),
        }
    }

    /// `sys_flag` with the compressed bit and this type's bits set.
    #[must_use]
    pub const fn mark(self, sys_flag: i32) -> i32 {
        (sys_flag & !COMPRESSION_MASK) | COMPRESSED | self.bits()
    }

    /// `sys_flag` without compressed and type bits, as it describes a decompressed body.
    #[must_use]
    pub const fn clear(sys_flag: i32) -> i32 {
        sys_flag & !(COMPRESSION_MASK | COMPRESSED)
    }
}

/// The transaction bits of `sys_flag`.
#[must_use]
#[doc(alias = "getTransactionValue")]
pub const fn transaction(sys_flag: i32) -> i32 {
    sys_flag & TRANSACTION_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_bits_of_older_senders_mean_zlib() {
        assert_eq!(CompressionType::of_sys_flag(0x300), Ok(None));
        assert_eq!(CompressionType::of_sys_flag(0x001), Ok(Some(CompressionType::Zlib)));
        assert_eq!(CompressionType::of_sys_flag(0x101), Ok(Some(CompressionType::Lz4)));
        assert_eq!(CompressionType::of_sys_flag(0x201), Ok(Some(CompressionType::Zstd)));
        assert_eq!(CompressionType::of_sys_flag(0x301), Ok(Some(CompressionType::Zlib)));
        assert_eq!(CompressionType::of_sys_flag(0x401), Err(0x400));
        assert_eq!(CompressionType::Zstd.mark(0x304), 0x205);
    }
}
