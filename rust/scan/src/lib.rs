//! Columnar scan of a store, or of pulled records, into Arrow record batches.
