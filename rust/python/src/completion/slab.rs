//! Futures by number.

use pyo3::prelude::*;

use super::future::SendOutcome;

/// Futures that wait for an outcome. A number is used again after its future was taken.
#[derive(Default)]
pub(crate) struct Slab {
    futures: Vec<Option<Py<SendOutcome>>>,
    free: Vec<u32>,
}

impl Slab {
    /// Keeps a future and returns its number.
    pub(crate) fn insert(&mut self, future: Py<SendOutcome>) -> u64 {
        match self.free.pop() {
            Some(number) => {
                self.futures[number as usize] = Some(future);
                u64::from(number)
            }
            None => {
                self.futures.push(Some(future));
                self.futures.len() as u64 - 1
            }
        }
    }

    /// Takes a future out.
    ///
    /// # Panics
    /// When there is none of this number.
    pub(crate) fn take(&mut self, number: u64) -> Py<SendOutcome> {
        let future = self.futures[number as usize].take();
        self.free.push(number as u32);
        future.expect("a message has one outcome")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.futures.len()
    }
}
