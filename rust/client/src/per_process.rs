//! Values of which each process has one, even a process that was forked from another.

use std::sync::OnceLock;

/// A value that belongs to one process.
///
/// A forked child finds the value of its parent, whose lock another thread may have held at the moment of the fork. The child leaves
/// that value alone and uses one of its own behind it.
pub(crate) struct PerProcess<T>(OnceLock<Owned<T>>);

struct Owned<T> {
    process_id: u32,
    value: T,
    of_child: OnceLock<Box<Self>>,
}

impl<T: Default> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The value of the current process.
    pub(crate) fn get(&self) -> &T {
        self.of(rocketpy_env::process_id())
    }

    fn of(&self, process_id: u32) -> &T {
        let mut owned = self.0.get_or_init(|| Owned::new(process_id));
        while owned.process_id != process_id {
            owned = owned.of_child.get_or_init(|| Box::new(Owned::new(process_id)));
        }
        &owned.value
    }
}

impl<T: Default> Owned<T> {
    fn new(process_id: u32) -> Self {
        Self { process_id, value: T::default(), of_child: OnceLock::new() }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn a_forked_child_has_a_value_of_its_own_and_finds_it_again() {
        let values = PerProcess::<Mutex<u32>>::new();
        let parent = values.of(1);
        let _held_by_another_thread = parent.lock();
        let (child, grandchild) = (values.of(2), values.of(3));
        assert!(child.try_lock().is_some() && grandchild.try_lock().is_some());
        assert!(std::ptr::eq(values.of(2), child) && std::ptr::eq(values.of(3), grandchild));
        assert!(std::ptr::eq(values.of(1), parent));
    }
}
