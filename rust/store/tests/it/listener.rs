//! What a store reports to its owner, and when.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

use rocketpy_model::PhysicalOffset;
use rocketpy_store::{Arrival, FlushMode, Store, StoreListener};

use crate::support::{PATIENCE, quiet, record};

/// Passes on the reports of dispatch, and how far dispatch is at that moment.
struct Dispatched {
    store: OnceLock<Arc<Store>>,
    told: Sender<Told>,
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Arrived,
    Dispatched { offset: PhysicalOffset, is_dispatched: bool },
}

impl StoreListener for Dispatched {
    fn arrived(&self, _arrivals: &[Arrival]) {
        let _ = self.told.send(Told::Arrived);
    }

    fn dispatched(&self, offset: PhysicalOffset) {
        let is_dispatched = self.store.get().is_some_and(|store| store.dispatched_offset() >= offset);
        let _ = self.told.send(Told::Dispatched { offset, is_dispatched });
    }
}

#[test]
fn dispatch_is_told_once_it_shows_and_after_the_arrivals() {
    for mode in [FlushMode::Async, FlushMode::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(quiet(dir.path(), mode)).unwrap();
        let (told, heard) = channel();
        let listener = Arc::new(Dispatched { store: OnceLock::new(), told });
        assert!(listener.store.set(store.clone()).is_ok());
        store.add_listener(listener);
        for _ in 0..10 {
            let end = store.append(&record("t", 0, b"x")).unwrap().end;
            store.request_flush(end);
            let heard: Vec<Told> = [(); 2].map(|()| heard.recv_timeout(PATIENCE).unwrap()).into();
            assert_eq!(heard, [Told::Arrived, Told::Dispatched { offset: end, is_dispatched: true }]);
        }
        store.shutdown().unwrap();
    }
}
