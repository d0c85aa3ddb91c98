//! Compression of message bodies, and decompression with a bound.
//!
//! # Source
//! docs/reference/protocol.md 4.5, docs/reference/client.md 4.6, docs/durability.md R10.

use std::io::{self, Read, Write};

pub use rocketpy_model::CompressionType;

/// zlib level of the reference client.
pub const DEFAULT_LEVEL: i32 = 5;

/// How far a body may grow when it is decompressed.
///
/// A body may reach `free_bytes` at any ratio: that is the largest message an ordinary broker takes, and a page of
/// zeros compresses a thousandfold without being an attack. Above it the ratio counts too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecompressLimits {
    /// Most bytes of a decompressed body.
    pub max_bytes: usize,
    /// Most decompressed bytes for each compressed byte, above `free_bytes`.
    pub max_ratio: usize,
    /// Decompressed bytes up to which any ratio is allowed.
    pub free_bytes: usize,
}

impl DecompressLimits {
    /// The default.
    pub const DEFAULT: Self = Self { max_bytes: 64 << 20, max_ratio: 100, free_bytes: 4 << 20 };

    /// For the body of a message: up to 16 MiB, the largest frame, any ratio is allowed.
    pub const MESSAGE: Self = Self { free_bytes: 16 << 20, ..Self::DEFAULT };

    /// Up to `max_bytes`, at any ratio.
    #[must_use]
    pub const fn up_to(max_bytes: usize) -> Self {
        Self { max_bytes, free_bytes: max_bytes, ..Self::DEFAULT }
    }

    /// The most that a body of `compressed` bytes may become.
    #[must_use]
    pub fn allowed(&self, compressed: usize) -> usize {
        self.max_bytes.min(self.free_bytes.max(compressed.saturating_mul(self.max_ratio)))
    }
}

impl Default for DecompressLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Why a body could not be compressed or decompressed. A retry does not help.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum CompressionError {
    #[error("unknown compression type bits: {bits:#x}")]
    UnknownType { bits: i32 },
    #[error("{compressed} compressed bytes exceed the limit of {limit} decompressed bytes")]
    TooLarge { compressed: usize, limit: usize },
    #[error("body is not valid {kind:?} data")]
    Malformed { kind: CompressionType, source: io::Error },
    #[error("{kind:?} encoder failed")]
    Encoder { kind: CompressionType, source: io::Error },
}

/// Compresses `body`. `level` is the encoder's own scale (zlib 0 to 9, zstd 1 to 22; LZ4 has none).
///
/// # Errors
/// When the encoder fails; a caller may send the body as it is then.
pub fn compress(kind: CompressionType, level: i32, body: &[u8]) -> Result<Vec<u8>, CompressionError> {
    let failed = |source| CompressionError::Encoder { kind, source };
    match kind {
        CompressionType::Zlib => {
            let level = flate2::Compression::new(level.clamp(0, 9) as u32);
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::with_capacity(body.len() / 2 + 64), level);
            encoder.write_all(body).and_then(|()| encoder.finish()).map_err(failed)
        }
        CompressionType::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::with_capacity(body.len() / 2 + 64));
            encoder.write_all(body).map_err(failed)?;
            encoder.finish().map_err(|error| failed(error.into()))
        }
        CompressionType::Zstd => zstd::bulk::compress(body, level.clamp(1, 22)).map_err(failed),
    }
}

/// Decompresses `body`, holding no more than [`DecompressLimits::allowed`] bytes at any time.
///
/// # Errors
/// When the body is not what its type says, is cut short, or grows past the limit.
pub fn decompress(
    kind: CompressionType,
    body: &[u8],
    limits: &DecompressLimits,
) -> Result<Vec<u8>, CompressionError> {
    let limit = limits.allowed(body.len());
    let malformed = |source| CompressionError::Malformed { kind, source };
    if body.is_empty() {
        // The LZ4 decoder accepts no bytes at all as an empty body; no encoder writes that.
        return Err(malformed(io::ErrorKind::UnexpectedEof.into()));
    }
    match kind {
        CompressionType::Zlib => {
            read_bounded(kind, body.len(), limit, flate2::bufread::ZlibDecoder::new(body))
        }
        CompressionType::Lz4 => {
            read_bounded(kind, body.len(), limit, lz4_flex::frame::FrameDecoder::new(body))
        }
        CompressionType::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(malformed)?;
            decoder.window_log_max(window_log(limit)).map_err(malformed)?;
            read_bounded(kind, body.len(), limit, decoder)
        }
    }
}

/// The largest zstd window to allow, as a power of two: the decoder allocates what the frame's head asks for.
///
/// Encoders that do not know the length beforehand ask for up to 8 MiB at the usual levels.
fn window_log(limit: usize) -> u32 {
    limit.next_power_of_two().ilog2().clamp(23, 26)
}

/// Reads to the end; one byte more than `limit` ends it with an error. The buffer grows with what was really read.
fn read_bounded(
    kind: CompressionType,
    compressed: usize,
    limit: usize,
    decoder: impl Read,
) -> Result<Vec<u8>, CompressionError> {
    let mut out = Vec::with_capacity(compressed.saturating_mul(3).min(limit).min(1 << 20));
    let most = limit as u64 + 1;
    decoder
        .take(most)
        .read_to_end(&mut out)
        .map_err(|source| CompressionError::Malformed { kind, source })?;
    if out.len() > limit {
        return Err(CompressionError::TooLarge { compressed, limit });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [CompressionType; 3] = [CompressionType::Zlib, CompressionType::Lz4, CompressionType::Zstd];

    #[test]
    fn every_kind_reads_back_what_it_wrote() {
        let body: Vec<u8> = (0..100_000u32).map(|number| (number / 7 % 251) as u8).collect();
        for kind in KINDS {
            let packed = compress(kind, DEFAULT_LEVEL, &body).unwrap();
            assert!(packed.len() < body.len(), "{kind:?}");
            assert_eq!(decompress(kind, &packed, &DecompressLimits::default()).unwrap(), body, "{kind:?}");
        }
    }

    #[test]
    fn a_page_of_zeros_is_not_taken_for_an_attack() {
        let body = vec![0; 4 << 20];
        for kind in KINDS {
            let packed = compress(kind, DEFAULT_LEVEL, &body).unwrap();
            assert!(packed.len() * 100 < body.len());
            assert_eq!(decompress(kind, &packed, &DecompressLimits::default()).unwrap().len(), body.len());
        }
    }

    #[test]
    fn a_body_that_grows_past_ratio_or_size_is_refused() {
        let body = vec![0; (4 << 20) + 1];
        for kind in KINDS {
            let packed = compress(kind, DEFAULT_LEVEL, &body).unwrap();
            let limits = DecompressLimits::default();
            let expected = limits.allowed(packed.len());
            match decompress(kind, &packed, &limits) {
                Err(CompressionError::TooLarge { limit, .. }) => assert_eq!(limit, expected),
                other => panic!("{kind:?}: {:?}", other.map(|body| body.len())),
            }
            let small = DecompressLimits { max_bytes: 1000, ..limits };
            assert!(matches!(
                decompress(kind, &packed, &small),
                Err(CompressionError::TooLarge { limit: 1000, .. })
            ));
        }
    }

    #[test]
    fn a_body_cut_short_or_damaged_is_malformed() {
        let body: Vec<u8> =
            (0..10_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for kind in KINDS {
            let packed = compress(kind, DEFAULT_LEVEL, &body).unwrap();
            for cut in [0, 1, packed.len() / 2, packed.len() - 5] {
                let result = decompress(kind, &packed[..cut], &DecompressLimits::default());
                assert!(matches!(result, Err(CompressionError::Malformed { .. })), "{kind:?} cut at {cut}");
            }
            let result = decompress(kind, b"neither of them", &DecompressLimits::default());
            assert!(matches!(result, Err(CompressionError::Malformed { .. })), "{kind:?}");
        }
    }
}
