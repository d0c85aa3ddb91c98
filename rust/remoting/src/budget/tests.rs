//! Connections without sockets, and what the budget does to them.
use std::net::SocketAddr;
use std::sync::OnceLock;

use bytes::Bytes;
use rocketpy_protocol::{Command, SerializeType};

use super::*;
use crate::config::ServerConfig;
use crate::connection::{Connection, Phase};

/// Each pool has 400 bytes.
const LIMIT_BYTES: usize = 800;

fn connection(budget: &Arc<MemoryBudget>) -> Arc<Connection> {
    let nowhere = SocketAddr::from(([0; 4], 0));
    let config = ServerConfig { memory: Arc::clone(budget), ..ServerConfig::new(nowhere) };
    let ends = (nowhere, nowhere);
    let connection =
        Arc::new(Connection::new(ends, "nowhere".into(), SerializeType::Json, config.limits(), None));
    connection.register_in(budget);
    connection
}

#[test]
fn the_connection_that_holds_most_is_closed_for_one_that_holds_less() {
    let budget = MemoryBudget::new(LIMIT_BYTES);
    let [large, small] = [(); 2].map(|()| connection(&budget));
    let held = large.reserve(MemoryKind::Tables, 300).expect("there is room");
    let _first = small.reserve(MemoryKind::Tables, 50).expect("there is room");
    let _second = small.reserve(MemoryKind::Tables, 100).expect("the other one makes room");
    assert_eq!((large.phase(), small.phase()), (Phase::Aborted, Phase::Open));
    assert_eq!(budget.closed_connections(), 1);
    let _third =
        small.reserve(MemoryKind::Tables, 100).expect("what a closed connection still holds counts as gone");
    assert_eq!(budget.used_bytes(), 550);
    drop(held);
    assert_eq!(budget.used_bytes(), 250);
}

#[test]
fn the_connection_that_holds_most_gets_no_more_and_nobody_is_closed_for_it() {
    let budget = MemoryBudget::new(LIMIT_BYTES);
    let [large, small] = [(); 2].map(|()| connection(&budget));
    let held = large.reserve(MemoryKind::Tables, 300).expect("there is room");
    let _kept = small.reserve(MemoryKind::Tables, 50).expect("there is room");
    assert_eq!(large.reserve(MemoryKind::Tables, 200).unwrap_err(), NoMemory { limit_bytes: LIMIT_BYTES });
    assert_eq!((large.phase(), small.phase()), (Phase::Open, Phase::Open));
    assert_eq!(budget.used_bytes(), 350, "what was refused does not count");
    drop(held);
    assert!(large.reserve(MemoryKind::Tables, 200).is_ok());
}

#[test]
fn nothing_is_copied_while_peers_leave_a_quarter_of_what_may_be_on_its_way() {
    let budget = MemoryBudget::new(LIMIT_BYTES);
    let [slow, other] = [(); 2].map(|()| connection(&budget));
    let mut waiting = Gauge::new(slow.account(), MemoryKind::Answers);
    assert!(waiting.set(99) && other.has_room_for_copies());
    assert!(waiting.set(100) && !other.has_room_for_copies());
    let _kept = slow.reserve(MemoryKind::Tables, 300).expect("there is room");
    assert!(waiting.set(0) && other.has_room_for_copies(), "what stays is another pool");
}

#[test]
fn answers_that_are_not_taken_close_the_worst_whoever_adds_to_them() {
    let budget = MemoryBudget::new(LIMIT_BYTES);
    let [worst, other] = [(); 2].map(|()| connection(&budget));
    let mut waiting = [&worst, &other].map(|it| Gauge::new(it.account(), MemoryKind::Answers));
    assert!(waiting[0].set(390));
    assert!(!waiting[1].set(20), "the pool is exceeded");
    let at = |account: &Account, ms| {
        account.progress_at_ms[MemoryKind::Answers as usize].store(ms, Ordering::Relaxed)
    };
    at(worst.account(), 0);
    at(other.account(), u64::MAX);
    other.account().settle(MemoryKind::Answers);
    assert_eq!((worst.phase(), other.phase()), (Phase::Aborted, Phase::Open));
    drop(waiting);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn moving_bytes_weigh_with_the_time_since_their_last_progress() {
    let budget = MemoryBudget::new(LIMIT_BYTES);
    let [old, new] = [0, 1000].map(|since_ms| {
        let account = Arc::new(Account::new(Some(Arc::clone(&budget)), Some(0)));
        let mut gauge = Gauge::new(&account, MemoryKind::Frame);
        assert!(gauge.set(if since_ms == 0 { 10 } else { 100 }));
        account.progress_at_ms[MemoryKind::Frame as usize].store(since_ms, Ordering::Relaxed);
        (account, gauge)
    });
    assert!(old.0.weight(MOVING, 1000) > new.0.weight(MOVING, 1000));
    let now_ms = budget.now_ms() + 1;
    old.1.note_progress();
    assert!(old.0.weight(MOVING, now_ms) < new.0.weight(MOVING, 1000 + now_ms));
}

#[test]
fn entries_without_an_owner_have_a_part_of_their_own_and_close_nobody() {
    let budget = MemoryBudget::new(LIMIT_BYTES);
    let connection = connection(&budget);
    let _held = connection.reserve(MemoryKind::Tables, 100).expect("there is room");
    let table = budget.of_table();
    let entry = table.reserve(150).expect("there is room");
    assert!(table.reserve(100).is_err(), "beyond a quarter of the budget");
    assert_eq!((budget.used_bytes(), connection.phase()), (250, Phase::Open));
    drop(entry);
    assert_eq!(budget.used_bytes(), 100);
    assert!(table.reserve(200).is_ok());
}

#[test]
fn a_number_that_is_below_nothing_for_a_moment_closes_nobody() {
    let budget = MemoryBudget::new(1 << 20);
    let account = Arc::new(Account::new(Some(Arc::clone(&budget)), Some(0)));
    account.subtract(MemoryKind::Requests, 100);
    assert_eq!(budget.used_bytes(), 0);
    assert!(
        budget.of_table().reserve(1000).is_ok(),
        "what came too early does not count as more than everything"
    );
    assert!(account.add(MemoryKind::Requests, 100));
}

#[test]
fn what_a_connection_leaves_behind_closes_nobody_else() {
    let budget = MemoryBudget::new(LIMIT_BYTES);
    let [gone, other] = [(); 2].map(|()| connection(&budget));
    let waits_for_the_disk = gone.reserve(MemoryKind::Requests, 300).expect("there is room");
    gone.ended();
    drop(gone);
    let held = other.reserve(MemoryKind::Requests, 200).expect("what is left behind counts as gone");
    other.account().settle(MemoryKind::Requests);
    assert_eq!((other.phase(), budget.closed_connections()), (Phase::Open, 0));
    assert_eq!(budget.accounts.lock().len(), 2, "it is known until its last byte is given back");
    drop(waits_for_the_disk);
    assert_eq!((budget.accounts.lock().len(), budget.used_bytes()), (1, 200));
    drop((other, held));
    assert!(budget.accounts.lock().is_empty());
}

#[test]
fn connections_that_leave_more_behind_than_the_pool_let_nobody_take_more() {
    let budget = MemoryBudget::new(LIMIT_BYTES);
    let left_behind = [(); 2].map(|()| {
        let gone = connection(&budget);
        let held = gone.reserve(MemoryKind::Requests, 300).expect("there is room");
        gone.ended();
        held
    });
    let other = connection(&budget);
    assert!(other.reserve(MemoryKind::Requests, 10).is_err());
    assert_eq!(other.phase(), Phase::Open);
    drop(left_behind);
    assert!(other.reserve(MemoryKind::Requests, 10).is_ok());
}

#[test]
fn what_waits_in_a_closed_connection_is_freed_outside_of_the_lock() {
    /// A slice that notes, when it is freed, whether the lock is free.
    struct Slice(Arc<MemoryBudget>, Arc<OnceLock<bool>>);

    impl AsRef<[u8]> for Slice {
        fn as_ref(&self) -> &[u8] {
            &[7; 100]
        }
    }

    impl Drop for Slice {
        fn drop(&mut self) {
            self.1.get_or_init(|| self.0.accounts.try_lock().is_some());
        }
    }

    let budget = MemoryBudget::new(LIMIT_BYTES);
    let connection = connection(&budget);
    let was_free = Arc::new(OnceLock::new());
    let slice = Bytes::from_owner(Slice(Arc::clone(&budget), Arc::clone(&was_free)));
    let mapped_bytes = slice.len();
    connection.outbox().push(&Command::bare_request(1), vec![slice], mapped_bytes).expect("queued");
    let mut held = Gauge::new(connection.account(), MemoryKind::Tables);
    assert!(!held.set(500), "the pool is exceeded");
    connection.account().settle(MemoryKind::Tables);
    assert_eq!((connection.phase(), was_free.get()), (Phase::Aborted, Some(&true)));
}
