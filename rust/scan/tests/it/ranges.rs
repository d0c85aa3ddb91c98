use rocketpy_model::QueueOffset;
use rocketpy_scan::{PlanOptions, ScanError, StoreScan, StoreScanOptions, plan};
use rocketpy_store::reader::{ReadError, StoreReader};

use crate::folder::{
    FIRST_STORED_AT_MS, Folder, Sent, TOPIC, bodies, collect, everything, ranges, rows, scan_all,
};

/// 300 messages over three queues, in several log files and queue files, with another topic between.
fn three_queues() -> (Folder, StoreReader) {
    let mut folder = Folder::new();
    for number in 0..300 {
        let body = format!("message {number}");
        folder.push(&Sent { queue_id: number % 3, body: body.as_bytes(), ..Sent::default() });
        folder.push_to("other", &Sent { body: &[0; 50], ..Sent::default() });
    }
    let reader = folder.write(0, 0);
    (folder, reader)
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| format!("message {number}")).collect()
}

fn planned(reader: &StoreReader, options: &PlanOptions) -> Result<Vec<String>, ScanError> {
    let slices = plan(reader, TOPIC, options)?;
    let scan = StoreScan::new(reader, ranges(slices), StoreScanOptions::default())?;
    Ok(bodies(&collect(scan)?.0))
}

#[test]
fn interleaved_queues_come_back_whole_in_the_order_of_the_log() {
    let (_folder, reader) = three_queues();
    let batches = scan_all(&reader, StoreScanOptions::default()).unwrap();
    assert_eq!(bodies(&batches), numbers(0..300));
    for queue in 0..3 {
        let offsets: Vec<i64> = rows(&batches).iter().filter(|row| row.0 == queue).map(|row| row.1).collect();
        assert_eq!(offsets, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn slices_cover_every_message_once_whatever_their_number() {
    let (_folder, reader) = three_queues();
    for slice_bytes in [1, 500, 3_000, 20_000, 1 << 20] {
        let slices = plan(&reader, TOPIC, &PlanOptions { slice_bytes, ..everything() }).unwrap();
        let mut all = Vec::new();
        for slice in &slices {
            let scan = StoreScan::new(&reader, slice.ranges.clone(), StoreScanOptions::default()).unwrap();
            let (batches, lost) = collect(scan).unwrap();
            assert_eq!(lost, 0);
            all.extend(bodies(&batches));
        }
        assert_eq!(all, numbers(0..300), "slices follow each other in the log");
        let total: u64 = slices.iter().map(rocketpy_scan::Slice::estimated_bytes).sum();
        let wanted = total.div_ceil(slice_bytes);
        let at_most = wanted.min(300);
        assert!(
            slices.len() as u64 <= at_most && slices.len() as u64 * 3 >= at_most,
            "{} of {wanted}",
            slices.len()
        );
    }
}

#[test]
fn times_bound_what_is_read_start_inclusive_and_end_exclusive() {
    let (_folder, reader) = three_queues();
    let at = |number: i64| Some(FIRST_STORED_AT_MS + number * 20); // the other topic's messages lie between
    let window = |from, before| {
        planned(&reader, &PlanOptions { stored_from_ms: from, stored_before_ms: before, ..everything() })
    };
    assert_eq!(window(at(100), at(200)).unwrap(), numbers(100..200));
    assert_eq!(window(at(100).map(|ms| ms + 1), None).unwrap(), numbers(101..300));
    assert_eq!(window(None, at(100).map(|ms| ms + 1)).unwrap(), numbers(0..101));
    assert_eq!(window(at(-5), at(1_000)).unwrap(), numbers(0..300));
    assert_eq!(window(at(300), None).unwrap(), Vec::<String>::new());
    assert_eq!(window(None, at(0)).unwrap(), Vec::<String>::new());
}

#[test]
fn offsets_bound_what_is_read_queue_by_queue() {
    let (_folder, reader) = three_queues();
    let options = PlanOptions {
        queues: Some(vec![0, 2]),
        starts: vec![(0, QueueOffset(98))],
        ends: vec![(2, QueueOffset(1))],
        ..everything()
    };
    assert_eq!(planned(&reader, &options).unwrap(), ["message 2", "message 294", "message 297"]);
}

#[test]
fn offsets_that_make_no_range_are_refused_by_name() {
    let (_folder, reader) = three_queues();
    let refused = |starts: Vec<(u32, QueueOffset)>, ends: Vec<(u32, QueueOffset)>| {
        plan(&reader, TOPIC, &PlanOptions { starts, ends, ..everything() }).unwrap_err()
    };
    let unknown = refused(vec![(3, QueueOffset(1))], vec![]);
    assert!(matches!(unknown, ScanError::Store(ReadError::UnknownQueue { queue_id: 3, .. })), "{unknown}");
    let inverted = refused(vec![(0, QueueOffset(9))], vec![(0, QueueOffset(8))]);
    assert!(matches!(inverted, ScanError::Store(ReadError::InvertedRange { .. })), "{inverted}");
    let behind = refused(vec![(0, QueueOffset(101))], vec![]);
    assert!(matches!(behind, ScanError::Store(ReadError::InvertedRange { .. })), "{behind}");
    let too_far = refused(vec![], vec![(1, QueueOffset(150))]);
    assert!(too_far.to_string().contains("messages 100 to 150 of flights-1 are missing"), "{too_far}");
}

#[test]
fn an_end_behind_the_queue_is_cut_when_loss_is_allowed() {
    let (_folder, reader) = three_queues();
    let options = PlanOptions {
        queues: Some(vec![1]),
        ends: vec![(1, QueueOffset(150))],
        fail_on_data_loss: false,
        ..everything()
    };
    assert_eq!(planned(&reader, &options).unwrap().len(), 100);
}

#[test]
fn a_topic_name_is_never_a_path() {
    let (_folder, reader) = three_queues();
    for name in ["", ".", "..", "../consumequeue/flights", "flights/0", "nowhere", "/etc"] {
        let error = plan(&reader, name, &everything()).unwrap_err();
        assert!(matches!(error, ScanError::Store(ReadError::UnknownTopic { .. })), "{name}: {error}");
    }
}

#[test]
fn a_folder_without_a_log_is_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let error = StoreReader::open(folder.path()).unwrap_err();
    assert!(matches!(error, ReadError::NotAStore { .. }), "{error}");
}

#[test]
fn topics_are_listed_with_the_bounds_of_their_queues() {
    let (_folder, reader) = three_queues();
    let topics = reader.topics().unwrap();
    let names: Vec<_> = topics.iter().map(|topic| &*topic.topic).collect();
    assert_eq!(names, ["flights", "other"]);
    let bounds: Vec<_> =
        topics[0].queues.iter().map(|(id, bounds)| (*id, bounds.min.get(), bounds.max.get())).collect();
    assert_eq!(bounds, [(0, 0, 100), (1, 0, 100), (2, 0, 100)]);
}
