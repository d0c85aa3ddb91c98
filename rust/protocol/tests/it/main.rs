//! Tests of the codecs from outside: the vectors of the specifications, round trips, tolerance and hostile bytes.

mod dialect;
mod generate;
mod golden;
mod golden_bodies;
mod golden_frames;
mod golden_records;
mod golden_values;
mod hostile;
mod json_header;
mod record_crc;
mod round_trip;
