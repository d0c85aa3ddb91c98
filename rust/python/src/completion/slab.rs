//! Futures by number.

/// Futures that wait for an outcome. A number is used again after its future was taken.
pub(crate) struct Slab<F> {
    futures: Vec<Option<F>>,
    free: Vec<u32>,
}

impl<F> Default for Slab<F> {
    fn default() -> Self {
        Self { futures: Vec::new(), free: Vec::new() }
    }
}

impl<F> Slab<F> {
    /// Keeps a future and returns its number.
    pub(crate) fn insert(&mut self, future: F) -> u64 {
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
    pub(crate) fn take(&mut self, number: u64) -> F {
        let future = self.futures[number as usize].take();
        self.free.push(number as u32);
        future.expect("a message has one outcome")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.futures.len()
    }
}
