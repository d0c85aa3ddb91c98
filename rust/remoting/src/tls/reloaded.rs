//! A context made of files that may change while connections are served.

use parking_lot::{Mutex, RwLock};

use super::error::TlsError;
use super::files::Contents;

/// The context that the next handshake uses.
pub(super) struct Reloaded<T> {
    current: RwLock<T>,
    /// Contents of the files that were tried last, broken ones too.
    tried: Mutex<Option<Contents>>,
}

impl<T: Clone> Reloaded<T> {
    pub(super) fn new(current: T, contents: Contents) -> Self {
        Self { current: RwLock::new(current), tried: Mutex::new(Some(contents)) }
    }

    pub(super) fn get(&self) -> T {
        self.current.read().clone()
    }

    /// Makes the context of the contents that the files have now; true when they have changed and are used from now on. `make` gives none of
    /// files without a certificate: then the former context stays.
    ///
    /// # Errors
    /// A file cannot be read or used: the former context stays in use. Each broken content is reported once.
    pub(super) fn reload(
        &self,
        read: impl FnOnce() -> Result<Contents, TlsError>,
        make: impl FnOnce(&Contents) -> Result<Option<T>, TlsError>,
    ) -> Result<bool, TlsError> {
        let mut tried = self.tried.lock();
        let contents = match read() {
            Ok(contents) => contents,
            // Reported once, until the files can be read again.
            Err(error) => return if tried.take().is_some() { Err(error) } else { Ok(false) },
        };
        if tried.as_ref() == Some(&contents) {
            return Ok(false);
        }
        let made = make(&contents);
        *tried = Some(contents);
        let Some(made) = made? else { return Ok(false) };
        *self.current.write() = made;
        Ok(true)
    }
}
