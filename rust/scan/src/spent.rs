//! Memory of batches that are no longer read. Fresh pages are the largest cost of a large batch: the kernel clears each.

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{ArrowNativeType, Buffer};

use crate::{Column, Columns};

/// How much larger a vector may be than what is asked for: a small batch that somebody keeps holds little memory.
const LARGEST_EXCESS: usize = 4;

/// The columns of a batch whose memory the next one takes over, as far as nobody else holds it.
#[derive(Default)]
pub(crate) struct Spent {
    columns: Vec<(Column, SpentColumn)>,
}

/// Buffers of one column, in the order in which its vectors are made.
#[derive(Default)]
pub(crate) struct SpentColumn {
    buffers: std::vec::IntoIter<Buffer>,
    is_spent: bool,
}

impl Spent {
    pub(crate) fn new(columns: &Columns, batch: RecordBatch) -> Self {
        let (_, arrays, _) = batch.into_parts();
        let columns = columns.order().iter().copied();
        Self { columns: columns.zip(arrays.into_iter().map(SpentColumn::new)).collect() }
    }

    pub(crate) fn take(&mut self, column: Column) -> SpentColumn {
        let found = self.columns.iter_mut().find(|(name, _)| *name == column);
        found.map(|(_, spent)| std::mem::take(spent)).unwrap_or_default()
    }
}

impl SpentColumn {
    fn new(array: ArrayRef) -> Self {
        let data = array.to_data();
        drop(array);
        let (mut buffers, mut parts) = (Vec::new(), vec![data]);
        while let Some(part) = parts.pop() {
            let (_, _, _, _, own, children) = part.into_parts();
            buffers.extend(own);
            parts.extend(children.into_iter().rev());
        }
        Self { buffers: buffers.into_iter(), is_spent: true }
    }

    /// An empty vector with room for `capacity` values.
    pub(crate) fn vector<T: ArrowNativeType>(&mut self, capacity: usize) -> Vec<T> {
        let old = self.buffers.next().and_then(|buffer| buffer.into_vec::<T>().ok());
        let fits =
            |old: &Vec<T>| (capacity..=capacity.saturating_mul(LARGEST_EXCESS)).contains(&old.capacity());
        match old.filter(fits) {
            Some(mut vector) => {
                vector.clear();
                vector
            }
            // What is to be taken over again is a little larger than asked for: the next batch may have more rows.
            None if self.is_spent => Vec::with_capacity(capacity + capacity / 4),
            None => Vec::with_capacity(capacity),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int32Array, RecordBatch};

    use super::*;

    fn batch(values: Vec<i32>) -> (Columns, RecordBatch) {
        let columns = Columns::of(&[Column::QueueId]);
        let array: ArrayRef = Arc::new(Int32Array::from(values));
        let batch = RecordBatch::try_new(columns.schema(), vec![array]).unwrap();
        (columns, batch)
    }

    #[test]
    fn memory_is_taken_over_when_nobody_else_holds_the_batch() {
        let values: Vec<i32> = (0..1000).collect();
        let place = values.as_ptr();
        let (columns, batch) = batch(values);
        let vector = Spent::new(&columns, batch).take(Column::QueueId).vector::<i32>(900);
        assert_eq!((vector.as_ptr(), vector.len()), (place, 0));
    }

    #[test]
    fn memory_that_somebody_reads_is_left_alone() {
        let (columns, batch) = batch((0..1000).collect());
        let mut spent = Spent::new(&columns, batch.clone());
        let mut vector = spent.take(Column::QueueId).vector::<i32>(900);
        vector.extend([7; 900]);
        let kept = batch.column(0).to_data();
        assert_eq!(kept.buffers()[0].typed_data::<i32>(), (0..1000).collect::<Vec<i32>>());
    }

    #[test]
    fn a_small_batch_does_not_get_a_large_ones_memory() {
        let (columns, batch) = batch((0..1000).collect());
        let vector = Spent::new(&columns, batch).take(Column::QueueId).vector::<i32>(10);
        assert!(vector.capacity() < 100);
    }
}
