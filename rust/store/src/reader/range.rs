//! Finds the ranges of queues to read, and cuts them for workers.

use std::sync::Arc;

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, QueueOffset};

use super::log::LogFiles;
use super::queue::QueueFiles;
use super::{Missing, MissingRange, QueueRange, RangeOptions, ReadError, SliceOptions, StoreReader};

/// Entries sampled to estimate how long the records of a range are.
const SIZE_SAMPLES: u64 = 16;
/// Entries sampled for each slice to find where to cut.
const CUT_SAMPLES: u64 = 16;
/// Minimum size of a slice that is cut only to reach the minimum number of slices.
const SMALLEST_SLICE_BYTES: u64 = 1 << 20;

impl<D: Disk> StoreReader<D> {
    /// The parts of a topic that are wanted: at most one for each queue, and none is empty. Later messages do not
    /// change them.
    ///
    /// # Errors
    /// [`ReadError::UnknownTopic`], [`ReadError::UnknownQueue`], [`ReadError::InvertedRange`]; under [`Missing::Fail`]
    /// [`ReadError::Missing`] when a start or an end lies outside its queue, and [`ReadError::IncompleteQueues`].
    pub fn ranges(&self, topic: &str, options: &RangeOptions) -> Result<Vec<QueueRange>, ReadError> {
        let queues = self.topic(topic)?;
        let known: Vec<u32> = queues.queues.iter().map(|(queue_id, _)| *queue_id).collect();
        // A queue that never held a message has no folder: 0 is its start and its end.
        let behind_zero = |(queue_id, offset): (&u32, &QueueOffset)| (offset.get() > 0).then_some(*queue_id);
        let mut named = options.starts.iter().chain(&options.ends).filter_map(behind_zero);
        if let Some(queue_id) = named.find(|queue_id| !known.contains(queue_id)) {
            return Err(ReadError::UnknownQueue { topic: topic.into(), queue_id });
        }
        let mut log = self.open_log()?;
        if options.missing == Missing::Fail {
            self.check_queues(&mut log)?;
        }
        let is_wanted =
            |queue_id: &u32| options.queues.as_ref().is_none_or(|wanted| wanted.contains(queue_id));
        let mut ranges = Vec::new();
        for queue_id in known.into_iter().filter(is_wanted) {
            let mut queue = self.open_queue(topic, queue_id, &mut log)?;
            let (start, end) = wanted_part(&mut queue, options, &mut log)?;
            if start < end {
                let estimated_bytes = estimated_bytes(&mut queue, start, end)?;
                ranges.push(QueueRange { topic: topic.to_owned(), queue_id, start, end, estimated_bytes });
            }
        }
        Ok(ranges)
    }

    /// Cuts ranges into slices that can be read in parallel. A slice has the part of each range that is in one
    /// stretch of the log, so that only one slice reads each byte of the log.
    ///
    /// # Errors
    /// When a file operation fails.
    pub fn slices(
        &self,
        ranges: &[QueueRange],
        options: SliceOptions,
    ) -> Result<Vec<Vec<QueueRange>>, ReadError> {
        // The caller may pass any ranges and sizes.
        let sizes = ranges.iter().map(|range| range.estimated_bytes);
        let total = sizes.fold(0, u64::saturating_add);
        let for_size = total.div_ceil(options.target_bytes.max(1));
        let for_number = options.min_slices.min(total / SMALLEST_SLICE_BYTES);
        let count = for_size.max(for_number);
        if count <= 1 {
            return Ok(if ranges.is_empty() { Vec::new() } else { vec![ranges.to_vec()] });
        }
        let mut log = self.open_log()?;
        let mut queues = Vec::with_capacity(ranges.len());
        for range in ranges {
            queues.push(self.open_queue(&range.topic, range.queue_id, &mut log)?);
        }
        let cuts = find_cuts(&mut queues, ranges, total, count)?;
        cut(&mut queues, ranges, &cuts)
    }
}

/// Start and end of what is wanted of a queue.
fn wanted_part<D: Disk>(
    queue: &mut QueueFiles<D>,
    options: &RangeOptions,
    log: &mut LogFiles<D>,
) -> Result<(QueueOffset, QueueOffset), ReadError> {
    let (bounds, queue_id) = (queue.bounds, queue.queue_id);
    let mut start = bounds.min;
    let mut end = bounds.max;
    if let Some(from_ms) = options.stored_from_ms {
        start = queue.at_time(from_ms, log)?;
    }
    if let Some(before_ms) = options.stored_before_ms {
        end = queue.at_time(before_ms, log)?;
    }
    let asked_start = options.starts.get(&queue_id).copied().unwrap_or(start);
    let asked_end = options.ends.get(&queue_id).copied().unwrap_or(end);
    if asked_start > asked_end && (asked_start != start || asked_end != end) {
        let topic = Arc::clone(&queue.topic);
        return Err(ReadError::InvertedRange { topic, queue_id, start: asked_start, end: asked_end });
    }
    check_inside(queue, asked_start, bounds.min.min(asked_end), options.missing, "removed by retention")?;
    check_inside(
        queue,
        bounds.max.max(asked_start),
        asked_end,
        options.missing,
        "past the end of the queue",
    )?;
    Ok((asked_start.max(bounds.min), asked_end.min(bounds.max)))
}

/// Refuses `start..end`, which is outside the queue, unless it is empty or to be skipped.
fn check_inside<D: Disk>(
    queue: &QueueFiles<D>,
    start: QueueOffset,
    end: QueueOffset,
    missing: Missing,
    reason: &str,
) -> Result<(), ReadError> {
    if start >= end || missing == Missing::Skip {
        return Ok(());
    }
    let (topic, queue_id) = (Arc::clone(&queue.topic), queue.queue_id);
    Err(ReadError::Missing { range: MissingRange { topic, queue_id, start, end, reason: reason.to_owned() } })
}

/// Estimates the length of the records of a part of a queue by a few of its entries.
///
/// # Errors
/// When a file operation fails.
pub fn estimated_bytes<D: Disk>(
    queue: &mut QueueFiles<D>,
    start: QueueOffset,
    end: QueueOffset,
) -> Result<u64, ReadError> {
    let count = end - start;
    let (mut seen, mut bytes) = (0, 0_u64);
    for offset in spread(start, count, SIZE_SAMPLES) {
        if let Some(entry) = queue.entry(offset)?.filter(|entry| !entry.is_filler()) {
            seen += 1;
            bytes += u64::from(entry.size_bytes);
        }
    }
    Ok(bytes.checked_div(seen).unwrap_or(0).saturating_mul(count))
}

/// At most `samples` numbers, spread evenly over `start..start + count`.
fn spread(start: QueueOffset, count: u64, samples: u64) -> impl Iterator<Item = QueueOffset> {
    let samples = samples.min(count);
    (0..samples)
        .map(move |sample| start + (u128::from(count) * u128::from(sample) / u128::from(samples)) as u64)
}

/// Places of the log, in order, that split the ranges into about `count` pieces of the same length.
fn find_cuts<D: Disk>(
    queues: &mut [QueueFiles<D>],
    ranges: &[QueueRange],
    total: u64,
    count: u64,
) -> Result<Vec<PhysicalOffset>, ReadError> {
    let samples = count.saturating_mul(CUT_SAMPLES).div_ceil(ranges.len() as u64).max(CUT_SAMPLES);
    let mut places = Vec::new();
    for (queue, range) in queues.iter_mut().zip(ranges) {
        let (start, end) = inside(queue, range.start, range.end);
        let entries = end - start;
        let weight = range.estimated_bytes as f64 / samples.min(entries).max(1) as f64;
        for offset in spread(start, entries, samples) {
            if let Some(entry) = queue.entry(offset)?.filter(|entry| !entry.is_filler()) {
                places.push((entry.physical_offset, weight));
            }
        }
    }
    places.sort_by_key(|(place, _)| *place);
    let piece = total as f64 / count as f64;
    let (mut covered, mut next) = (0.0, piece);
    let mut cuts: Vec<PhysicalOffset> = Vec::new();
    for (place, weight) in places {
        if covered >= next && cuts.last().is_none_or(|&last| place > last) {
            cuts.push(place);
            next = (covered / piece).floor().mul_add(piece, piece);
        }
        covered += weight;
    }
    Ok(cuts)
}

/// The part of `start..end` that the queue holds. If it holds none: an empty range at the nearer end of the queue.
fn inside<D: Disk>(
    queue: &QueueFiles<D>,
    start: QueueOffset,
    end: QueueOffset,
) -> (QueueOffset, QueueOffset) {
    let bounds = queue.bounds;
    let from = start.clamp(bounds.min, bounds.max);
    (from, end.clamp(from, bounds.max))
}

/// Cuts each range at the given places of the log.
fn cut<D: Disk>(
    queues: &mut [QueueFiles<D>],
    ranges: &[QueueRange],
    cuts: &[PhysicalOffset],
) -> Result<Vec<Vec<QueueRange>>, ReadError> {
    let mut slices = vec![Vec::new(); cuts.len() + 1];
    for (queue, range) in queues.iter_mut().zip(ranges) {
        let mut start = range.start;
        for (index, slice) in slices.iter_mut().enumerate() {
            let end = match cuts.get(index) {
                Some(&place) => {
                    let (from, to) = inside(queue, start, range.end);
                    queue.at_place(place, from, to)?
                }
                None => range.end,
            };
            if start < end {
                let estimated_bytes = estimated_bytes(queue, start, end)?;
                slice.push(QueueRange { start, end, estimated_bytes, ..range.clone() });
            }
            start = end;
        }
    }
    slices.retain(|slice| !slice.is_empty());
    Ok(slices)
}
