//! Settings that a tool may change while the name server runs.

use parking_lot::{Mutex, RwLock};
use rocketpy_protocol::settings::ConfigChange;
use tokio::sync::Notify;

use crate::config::NameServerConfig;
use crate::error::Refusal;

/// The settings as they are now.
#[derive(Debug)]
pub(crate) struct LiveSettings {
    pub(crate) config: RwLock<NameServerConfig>,
    /// Notified after a change.
    pub(crate) changed: Notify,
    /// Held during a change: readers do not wait for its file.
    changing: Mutex<()>,
}

impl LiveSettings {
    pub(crate) fn new(config: NameServerConfig) -> Self {
        Self { config: RwLock::new(config), changed: Notify::new(), changing: Mutex::new(()) }
    }

    /// Makes and saves a change, all of it or none; a dry run only checks it. Returns a note for the operator. Blocks until the
    /// values are on disk.
    ///
    /// # Errors
    /// A key cannot change while the server runs, its value is invalid, or the live values cannot be saved.
    pub(crate) fn change(&self, change: &ConfigChange) -> Result<Option<String>, Refusal> {
        let _one_at_a_time = self.changing.lock();
        let before = self.config.read().clone();
        let after = before.text.changed(&before, change)?;
        if change.is_dry_run {
            return Ok(None);
        }
        let note = before.text.keep(change)?;
        *self.config.write() = after;
        self.changed.notify_one();
        Ok(note)
    }
}
