//! Appends of one thread that are dispatched together.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::wake::Wake;

thread_local! {
    /// While the thread gathers: whether an append wanted dispatch to run at once.
    static WANTED: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Until this is dropped, appends of this thread do not hurry dispatch: a reader who waits gets several messages in one answer.
#[must_use]
#[derive(Debug)]
pub struct Gather<'a> {
    wake: &'a Wake,
    /// Of the gathering around this one.
    outer: Option<bool>,
    /// It ends on its own thread.
    _here: PhantomData<*const ()>,
}

impl<'a> Gather<'a> {
    pub(crate) fn new(wake: &'a Wake) -> Self {
        Self { wake, outer: WANTED.replace(Some(false)), _here: PhantomData }
    }
}

impl Drop for Gather<'_> {
    fn drop(&mut self) {
        let wanted = WANTED.take() == Some(true);
        match self.outer {
            Some(outer) => WANTED.set(Some(outer || wanted)),
            None if wanted => self.wake.hurry(),
            None => {}
        }
    }
}

/// Notes whether an append wants dispatch to run at once. Returns false where the thread does not gather.
pub(super) fn note(wants: bool) -> bool {
    let Some(wanted) = WANTED.get() else { return false };
    WANTED.set(Some(wanted || wants));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatch_is_hurried_once_by_the_end_of_the_outermost() {
        let wake = Wake::default();
        assert!(!note(true), "nobody gathers");
        let outer = Gather::new(&wake);
        let inner = Gather::new(&wake);
        assert!(note(true) && note(false));
        drop(inner);
        assert!(!wake.forget_hurry());
        drop(outer);
        assert!(wake.forget_hurry() && !note(true));
        drop(Gather::new(&wake));
        assert!(!wake.forget_hurry(), "nothing was wanted");
    }
}
