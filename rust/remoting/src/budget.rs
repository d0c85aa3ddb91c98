//! What the peers of a process make it hold in memory: counted for each connection, bounded for all together.
//!
//! docs/decisions/memory-budget.md lists everything that counts, and says what happens at the bound.
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tracing::warn;

/// What memory is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// The part of a frame that has arrived.
    Frame = 0,
    /// Answers that the peer has not taken yet.
    Answers = 1,
    /// Requests that are not answered yet.
    Requests = 2,
    /// Entries of tables: groups, subscriptions, routes, key-value configuration.
    Tables = 3,
}

impl MemoryKind {
    const ALL: [Self; 4] = [Self::Frame, Self::Answers, Self::Requests, Self::Tables];

    /// Names it, for a log line.
    const fn name(self) -> &'static str {
        match self {
            Self::Frame => "partial frames",
            Self::Answers => "answers not taken",
            Self::Requests => "unanswered requests",
            Self::Tables => "table entries",
        }
    }

    const fn pool(self) -> usize {
        match self {
            Self::Frame | Self::Answers => MOVING,
            Self::Requests | Self::Tables => KEPT,
        }
    }
}

/// The pool of what is on its way and leaves by itself: frames and answers.
const MOVING: usize = 0;
/// The pool of what stays until its peer takes it back or goes: requests and entries of tables.
const KEPT: usize = 1;
/// A sweep brings a pool this far below its bound (1/8 of it), so that sweeps are rare however many peers fill it.
const SWEEP_SHARE: usize = 8;
/// Part of the kept pool for entries that no connection answers for (1/2): routes, key-value configuration.
const OWNERLESS_SHARE: usize = 2;

/// Part of the moving pool (1/4) up to which answers are copied where slices of mapped files would do.
const COPIES_SHARE: usize = 4;

/// Bounds the memory that the peers of a process make it hold; its name server and its broker share one.
///
/// Half of it is for what is on its way (partial frames, answers that were not taken), half for what stays (unanswered requests,
/// entries of tables). When the first half is exceeded, the connections that hold most for longest without progress are closed.
/// When the second half is exceeded, the connections that hold most are closed, or their requests refused. What a connection leaves
/// behind, such as requests that wait for the disk, makes no other connection close; beyond the size of a half it lets nobody take more.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: usize,
    used: [Count; 2],
    ownerless: AtomicUsize,
    closed: AtomicU64,
    started: Instant,
    accounts: Mutex<HashMap<u64, Registered>>,
}

/// A number of bytes that many threads change. A subtraction may come before the addition that it belongs to: for that moment the sum
/// is too small, and below 0 it counts as 0.
#[derive(Debug)]
struct Count(AtomicI64);

impl Count {
    const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    fn get(&self) -> usize {
        usize::try_from(self.0.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// Returns the new number.
    fn add(&self, bytes: usize) -> usize {
        let before = self.0.fetch_add(bytes as i64, Ordering::AcqRel);
        usize::try_from(before + bytes as i64).unwrap_or(0)
    }

    fn subtract(&self, bytes: usize) {
        self.0.fetch_sub(bytes as i64, Ordering::AcqRel);
    }
}

/// A connection, as far as the budget knows it.
pub(crate) trait Holder: Send + Sync {
    fn peer(&self) -> SocketAddr;
    /// Ends the connection at once, and frees what waits in it.
    fn abort(&self);
}

/// A connection that is alive, or of which memory is still held.
#[derive(Debug)]
struct Registered {
    account: Weak<Account>,
    connection: Weak<dyn Holder>,
}

impl Registered {
    fn upgrade(&self) -> Option<Offender> {
        Some(Offender { account: self.account.upgrade()?, connection: Weak::clone(&self.connection) })
    }
}

/// A connection that a sweep looks at.
#[derive(Clone)]
struct Offender {
    account: Arc<Account>,
    connection: Weak<dyn Holder>,
}

/// What one connection holds, or, without a connection, what a table holds.
///
/// It lives as long as anything that is counted in it: requests may wait for the disk long after their connection has ended.
pub(crate) struct Account {
    budget: Option<Arc<MemoryBudget>>,
    /// `None` for a table whose entries no connection answers for.
    connection_id: Option<u64>,
    /// By [`MemoryKind`].
    bytes: [Count; 4],
    /// When partial frames, and when answers, last rose from nothing or made progress, in milliseconds from the start of the budget.
    progress_at_ms: [AtomicU64; 2],
    /// The connection has ended, or the budget closes it: closing it again gives nothing back.
    leaving: AtomicBool,
}

/// There is no room for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("peer memory budget of {limit_bytes} bytes (maxPeerBytes) is exhausted; try again later")]
pub struct NoMemory {
    /// The bound of all peers together.
    pub limit_bytes: usize,
}

impl MemoryBudget {
    /// The bound that a process has without a configuration.
    pub const DEFAULT_BYTES: usize = 512 << 20;

    /// A budget of `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            used: [const { Count::new() }; 2],
            ownerless: AtomicUsize::new(0),
            closed: AtomicU64::new(0),
            started: Instant::now(),
            accounts: Mutex::default(),
        })
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    pub fn used_bytes(&self) -> usize {
        self.used.iter().map(|pool| pool.get()).sum()
    }

    /// Connections that were closed because they held too much.
    pub fn closed_connections(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// The memory of a table whose entries no connection answers for.
    pub fn of_table(self: &Arc<Self>) -> TableMemory {
        TableMemory { account: Arc::new(Account::new(Some(Arc::clone(self)), None)) }
    }

    /// Lets the budget close a connection that holds too much, by its number.
    pub(crate) fn register(&self, id: u64, account: &Arc<Account>, connection: Weak<dyn Holder>) {
        let registered = Registered { account: Arc::downgrade(account), connection };
        self.accounts.lock().insert(id, registered);
    }

    fn pool_limit(&self) -> usize {
        self.limit_bytes / 2
    }

    fn no_memory(&self) -> NoMemory {
        NoMemory { limit_bytes: self.limit_bytes }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Closes the worst connections until a pool is well below its bound. What ended and closed connections still hold counts as
    /// gone, up to the size of the pool: it makes nobody else's connection close.
    ///
    /// With `instead_of`, a connection that asks for more, only those are closed that hold more than it does. False when that
    /// would not make room for it, or when connections that are gone still hold more than the pool: then none is closed.
    fn sweep(&self, pool: usize, instead_of: Option<&Account>) -> bool {
        // Closing a connection frees what waits in it, and perhaps unmaps files: not under the lock.
        let (allowed, chosen) = self.choose(pool, instead_of);
        for offender in &chosen {
            self.close(offender, pool);
        }
        allowed
    }

    /// What [`Self::sweep`] answers, and the connections that it closes. They count as leaving from now on.
    fn choose(&self, pool: usize, instead_of: Option<&Account>) -> (bool, Vec<Offender>) {
        // Declared before the guard and so dropped after it: the last reference to an account takes the lock in its drop.
        let registered: Vec<Offender>;
        let accounts = self.accounts.lock();
        registered = accounts.values().filter_map(Registered::upgrade).collect();
        let held = |it: &Offender| it.account.held(pool);
        let (leaving, staying): (Vec<_>, Vec<_>) = registered.iter().partition(|it| it.account.is_leaving());
        let going: usize = leaving.into_iter().map(held).sum();
        let used = self.used[pool].get().saturating_sub(going);
        let limit = self.pool_limit();
        if going > limit && instead_of.is_some() {
            return (false, Vec::new());
        }
        if used <= limit {
            return (true, Vec::new());
        }
        let at_least = instead_of.map_or(0, |account| account.held(pool));
        let mut offenders: Vec<_> = staying.into_iter().filter(|it| held(it) > at_least).collect();
        if instead_of.is_some() && used - limit > offenders.iter().map(|it| held(it)).sum() {
            return (false, Vec::new());
        }
        let now_ms = self.now_ms();
        offenders.sort_by_cached_key(|it| std::cmp::Reverse(it.account.weight(pool, now_ms)));
        let mut too_much = used - (limit - limit / SWEEP_SHARE);
        let mut chosen = Vec::new();
        for offender in offenders {
            if too_much == 0 {
                break;
            }
            too_much = too_much.saturating_sub(held(offender));
            offender.account.leave();
            chosen.push(offender.clone());
        }
        (true, chosen)
    }

    fn close(&self, Offender { account, connection }: &Offender, pool: usize) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        let Some(connection) = connection.upgrade() else { return };
        warn!(
            peer = %connection.peer(),
            id = account.connection_id,
            held_bytes = account.held(pool),
            kind = account.largest_kind(pool).name(),
            limit_bytes = self.limit_bytes,
            "peer memory budget exceeded (maxPeerBytes); closing the largest connection"
        );
        connection.abort();
    }
}

impl Account {
    pub(crate) fn new(budget: Option<Arc<MemoryBudget>>, connection_id: Option<u64>) -> Self {
        Self {
            budget,
            connection_id,
            bytes: [const { Count::new() }; 4],
            progress_at_ms: [const { AtomicU64::new(0) }; 2],
            leaving: AtomicBool::new(false),
        }
    }

    /// Notes that closing the connection gives nothing back any more.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    fn held(&self, pool: usize) -> usize {
        let of_pool = MemoryKind::ALL.into_iter().filter(|kind| kind.pool() == pool);
        of_pool.map(|kind| self.bytes[kind as usize].get()).sum()
    }

    fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    fn largest_kind(&self, pool: usize) -> MemoryKind {
        let of_pool = MemoryKind::ALL.into_iter().filter(|kind| kind.pool() == pool);
        of_pool.max_by_key(|kind| self.bytes[*kind as usize].get()).unwrap_or(MemoryKind::Frame)
    }

    /// Rank of the connection among those to close. Moving bytes count by the time since they last made progress: a peer that takes
    /// its answers and completes its frames is not closed because others do not.
    fn weight(&self, pool: usize, now_ms: u64) -> u128 {
        if pool == KEPT {
            return self.held(pool) as u128;
        }
        let kinds = [MemoryKind::Frame, MemoryKind::Answers];
        let weights = kinds.map(|kind| {
            let held = self.bytes[kind as usize].get() as u128;
            let age_ms = now_ms.saturating_sub(self.progress_at_ms[kind as usize].load(Ordering::Relaxed));
            held * (u128::from(age_ms) + 1)
        });
        weights.iter().sum()
    }

    /// Whether answers may be copied: frames and answers of all peers take little of what they may.
    pub(crate) fn has_room_for_copies(&self) -> bool {
        let budget = self.budget.as_deref();
        budget.is_none_or(|budget| budget.used[MOVING].get() < budget.pool_limit() / COPIES_SHARE)
    }

    /// Notes that a frame was completed, or that the peer took answers.
    fn note_progress(&self, kind: MemoryKind) {
        if let (Some(budget), Some(progress_at_ms)) = (&self.budget, self.progress_at_ms.get(kind as usize)) {
            progress_at_ms.store(budget.now_ms(), Ordering::Relaxed);
        }
    }

    /// Counts bytes. False when the pool is exceeded now: the caller then calls [`Self::settle`], holding no lock.
    #[must_use]
    pub(crate) fn add(&self, kind: MemoryKind, bytes: usize) -> bool {
        let Some(budget) = &self.budget else { return true };
        if bytes == 0 {
            return true;
        }
        let pool = kind.pool();
        if self.bytes[kind as usize].add(bytes) == bytes {
            self.note_progress(kind);
        }
        budget.used[pool].add(bytes) <= budget.pool_limit()
    }

    pub(crate) fn subtract(&self, kind: MemoryKind, bytes: usize) {
        if let Some(budget) = &self.budget
            && bytes > 0
        {
            self.bytes[kind as usize].subtract(bytes);
            budget.used[kind.pool()].subtract(bytes);
        }
    }

    /// Closes connections until the pool of `kind` is below its bound.
    pub(crate) fn settle(&self, kind: MemoryKind) {
        if let Some(budget) = &self.budget {
            budget.sweep(kind.pool(), None);
        }
    }

    /// Whether more than the bound is held, by connections that are being closed: no more requests are handled until it is free.
    pub(crate) fn is_crowded(&self) -> bool {
        self.budget.as_ref().is_some_and(|it| it.used[MOVING].get() > it.pool_limit())
    }

    /// Takes memory that stays until the reservation is dropped.
    pub(crate) fn reserve(self: &Arc<Self>, kind: MemoryKind, bytes: usize) -> Result<Reservation, NoMemory> {
        let fits = self.add(kind, bytes);
        // Its drop gives the bytes back.
        let reservation = Reservation { account: Arc::clone(self), kind, bytes };
        if !fits
            && let Some(budget) = &self.budget
            && !budget.sweep(kind.pool(), Some(self))
        {
            return Err(budget.no_memory());
        }
        Ok(reservation)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let (Some(budget), Some(connection_id)) = (&self.budget, self.connection_id) {
            budget.accounts.lock().remove(&connection_id);
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The memory of a table whose entries no connection answers for, such as routes.
#[derive(Debug)]
pub struct TableMemory {
    account: Arc<Account>,
}

impl TableMemory {
    /// Takes memory for an entry.
    ///
    /// # Errors
    /// [`NoMemory`] when the entries of all such tables would take more than their part of the budget. No connection is closed
    /// for them.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, NoMemory> {
        let fits = self.account.add(MemoryKind::Tables, bytes);
        // Its drop gives everything back.
        let reservation = Reservation { account: Arc::clone(&self.account), kind: MemoryKind::Tables, bytes };
        let Some(budget) = &self.account.budget else { return Ok(reservation) };
        let others = budget.ownerless.fetch_add(bytes, Ordering::AcqRel);
        if others.saturating_add(bytes) > budget.pool_limit() / OWNERLESS_SHARE {
            return Err(budget.no_memory());
        }
        if !fits {
            // Such entries alone do not fill the pool: connections do.
            budget.sweep(KEPT, None);
        }
        Ok(reservation)
    }
}

/// A number of bytes that rises and falls, counted in its account; its drop counts it as 0.
#[derive(Debug)]
pub(crate) struct Gauge {
    account: Arc<Account>,
    kind: MemoryKind,
    bytes: usize,
}

impl Gauge {
    pub(crate) fn new(account: &Arc<Account>, kind: MemoryKind) -> Self {
        Self { account: Arc::clone(account), kind, bytes: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the number. False when the pool is exceeded now: the caller then calls [`Account::settle`], holding no lock.
    #[must_use]
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes > before {
            return self.account.add(self.kind, bytes - before);
        }
        self.account.subtract(self.kind, before - bytes);
        true
    }

    /// Notes that the peer completed a frame or took answers: what is held is younger than it was.
    pub(crate) fn note_progress(&self) {
        if self.bytes > 0 {
            self.account.note_progress(self.kind);
        }
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.account.subtract(self.kind, self.bytes);
    }
}

/// Memory that was taken from a budget; its drop gives it back.
#[derive(Debug)]
#[must_use = "dropping it gives the memory back"]
pub struct Reservation {
    account: Arc<Account>,
    kind: MemoryKind,
    bytes: usize,
}

impl Reservation {
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.account.connection_id.is_none()
            && let Some(budget) = &self.account.budget
        {
            budget.ownerless.fetch_sub(self.bytes, Ordering::AcqRel);
        }
        self.account.subtract(self.kind, self.bytes);
    }
}

#[cfg(test)]
mod tests;
