//! Columnar scan of a store, or of pulled records, into Arrow record batches.
//!
//! Two doors, one builder: [`StoreScan`] reads the queues of a store folder (no lock, beside a live server or
//! from a snapshot), and [`RecordBatchBuilder`] takes records that a consumer pulled. The types are exactly
//! those that Spark's Python data source accepts without a cast ([`Column::data_type`]). Where only sums are wanted,
//! [`Sums`] takes the builder's place. [`decode_json`] makes columns of bodies, [`tag_hashes`], [`offset_message_id_parts`]
//! and [`unique_key_parts`] those of tags and message ids.

mod builder;
mod columns;
mod error;
mod json;
mod message_id;
mod output;
mod plan;
mod properties;
mod rows;
mod selected_scan;
mod spent;
mod store_scan;
mod sums;
mod vectors;

pub use builder::{BatchLimits, RecordBatchBuilder};
pub use columns::{Column, Columns};
pub use error::ScanError;
pub use json::decode_json;
pub use message_id::{offset_message_id_parts, tag_hashes, unique_key_parts};
pub use output::Output;
pub use plan::{PlanOptions, Slice, plan};
pub use selected_scan::SelectedScan;
pub use store_scan::{LostRange, Step, StoreScan, StoreScanOptions};
pub use sums::{Group, Sums};
