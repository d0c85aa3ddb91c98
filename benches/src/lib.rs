//! Criterion kernels of RocketPy and what they share; see the benches folder.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use rocketpy_store::{AppendError, Appended, NewRecord, Store};

/// Properties of a plain message: unique key and tag.
pub const PLAIN: &[u8] = b"UNIQ_KEY\x017F00000100002A9F0000000000000001\x02TAGS\x01TagA\x02";

/// Appends, however long the disk is busy: with a file that is made and warmed, or with what was appended before.
pub fn append_patiently(store: &Store, record: &NewRecord<'_>) -> Appended {
    loop {
        match store.append(record) {
            Err(
                AppendError::Busy { .. } | AppendError::Behind { .. } | AppendError::DispatchBehind { .. },
            ) => {}
            appended => return appended.unwrap(),
        }
    }
}

/// A message for queue 3 of the topic `bench`.
pub fn record<'a>(body: &'a [u8], properties: &'a [u8]) -> NewRecord<'a> {
    NewRecord {
        topic: "bench",
        queue_id: 3,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 1_700_000_000_000,
        born_host: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 50_000)),
        reconsume_times: 0,
        prepared_transaction_offset: 0.into(),
        body,
        properties,
        may_have_crc: false,
    }
}
