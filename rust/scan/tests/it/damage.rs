use rocketpy_model::{QueueOffset, sys_flag};
use rocketpy_protocol::disk::ConsumeQueueEntry;
use rocketpy_scan::{
    BatchLimits, Columns, PlanOptions, ScanError, SelectedScan, Step, StoreScan, StoreScanOptions, plan,
};
use rocketpy_store::reader::{QueueRange, ReadError, StoreReader};
use rocketpy_tools::{Selected, Selection};

use crate::folder::{Folder, Sent, TOPIC, bodies, collect, everything, ranges, scan_all};

fn one_queue(messages: usize) -> Folder {
    let mut folder = Folder::new();
    for number in 0..messages {
        folder.push(&Sent {
            body: format!("message {number} {}", "x".repeat(300)).as_bytes(),
            ..Sent::default()
        });
    }
    folder
}

fn lenient() -> StoreScanOptions {
    StoreScanOptions { fail_on_data_loss: false, ..StoreScanOptions::default() }
}

fn whole_queue(end: u64) -> Vec<QueueRange> {
    let topic = TOPIC.to_owned();
    vec![QueueRange { topic, queue_id: 0, start: QueueOffset(0), end: QueueOffset(end), estimated_bytes: 0 }]
}

/// Numbers of the messages that a lenient scan gives, and how many it counts as lost.
fn what_is_left(reader: &StoreReader, end: u64) -> (Vec<usize>, u64) {
    let scan = StoreScan::new(reader, whole_queue(end), lenient()).unwrap();
    let (batches, lost) = collect(scan).unwrap();
    let number = |body: &String| body.split(' ').nth(1).unwrap().parse().unwrap();
    (bodies(&batches).iter().map(number).collect(), lost)
}

#[test]
fn messages_removed_by_retention_are_outside_the_bounds_and_counted_when_asked_for() {
    let folder = one_queue(100);
    let reader = folder.write(2, 0);
    let first = folder.queues[&(TOPIC.to_owned(), 0)]
        .iter()
        .position(|entry| entry.physical_offset.get() >= 2 * crate::folder::LOG_FILE_BYTES)
        .unwrap();
    let planned = ranges(plan(&reader, TOPIC, &everything()).unwrap());
    assert_eq!((planned[0].start.get(), planned[0].end.get()), (first as u64, 100));

    assert_eq!(what_is_left(&reader, 100), ((first..100).collect(), first as u64));
    let error = StoreScan::new(&reader, whole_queue(100), StoreScanOptions::default()).err().unwrap();
    assert!(
        error.to_string().contains(&format!("messages 0 to {first} of flights-0 are missing")),
        "{error}"
    );

    let explicit = PlanOptions { starts: vec![(0, QueueOffset(0))], ..everything() };
    let error = plan(&reader, TOPIC, &explicit).unwrap_err();
    assert!(matches!(error, ScanError::Store(ReadError::Missing { .. })), "{error}");
}

#[test]
fn files_that_disappear_between_plan_and_read_are_loss_not_a_fault() {
    let folder = one_queue(100);
    let reader = folder.write(0, 0);
    let planned = ranges(plan(&reader, TOPIC, &everything()).unwrap());
    let first_log_file = folder.path().join("commitlog").join(format!("{:020}", 0));
    rocketpy_env::Disk::remove_file(&rocketpy_env::RealDisk, &first_log_file).unwrap();
    let error = StoreScan::new(&reader, planned, StoreScanOptions::default()).err().unwrap();
    assert!(matches!(error, ScanError::Store(ReadError::Missing { .. })), "{error}");
    let (left, lost) = what_is_left(&reader, 100);
    assert_eq!(left.len() as u64 + lost, 100);
    assert!(lost > 0);
}

#[test]
fn entries_whose_records_never_reached_the_log_are_not_there() {
    let mut folder = one_queue(20);
    let end = folder.place(0, 17);
    folder.log.truncate(end); // a crash kept the queue's pages and lost the log's
    let reader = folder.write(0, 0);
    let planned = ranges(plan(&reader, TOPIC, &everything()).unwrap());
    assert_eq!((planned[0].start.get(), planned[0].end.get()), (0, 17));
    assert_eq!(scan_all(&reader, StoreScanOptions::default()).unwrap()[0].num_rows(), 17);
    assert_eq!(what_is_left(&reader, 20), ((0..17).collect(), 3));
}

#[test]
fn a_damaged_record_ends_the_scan_by_name_or_is_left_out_and_counted() {
    let mut folder = one_queue(20);
    let place = folder.place(0, 5);
    folder.log[place + 5] ^= 0xff; // the magic
    let reader = folder.write(0, 0);
    let error = scan_all(&reader, StoreScanOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains(&format!("entry 5 of flights-0 points to a broken record at {place}")),
        "{error}"
    );
    let left: Vec<usize> = (0..20).filter(|number| *number != 5).collect();
    assert_eq!(what_is_left(&reader, 20), (left, 1));
}

#[test]
fn nothing_comes_behind_an_error() {
    let mut folder = one_queue(900);
    let place = folder.place(0, 890);
    assert!(place > 300_000, "the first block has rows, and they make no batch");
    folder.log[place + 88 + 50] ^= 1;
    let reader = folder.write(0, 0);
    let mut scan = StoreScan::new(&reader, whole_queue(900), StoreScanOptions::default()).unwrap();
    assert!(scan.next_batch().is_err());
    assert!(scan.next_batch().unwrap().is_none());
    assert!(scan.next().is_none());
}

#[test]
fn a_damaged_body_is_an_error_that_names_file_offset_and_checksums_unless_told_not_to_look() {
    let mut folder = one_queue(40);
    let place = folder.place(0, 25);
    let stated = u32::from_be_bytes(folder.log[place + 8..place + 12].try_into().unwrap());
    folder.log[place + 88 + 50] ^= 1;
    let reader = folder.write(0, 0);
    let error = scan_all(&reader, StoreScanOptions::default()).unwrap_err();
    assert!(matches!(error, ScanError::Store(ReadError::BrokenRecord { .. })), "{error}");
    let file = place as u64 / crate::folder::LOG_FILE_BYTES * crate::folder::LOG_FILE_BYTES;
    assert!(file > 0, "a file that has another name than the first");
    for fact in [
        "entry 25 of flights-0",
        &format!("at {place} "),
        &format!("commitlog/{file:020}"),
        &format!("body checksum mismatch: stored {stated:#010x}, computed 0x"),
    ] {
        assert!(error.to_string().contains(fact), "{fact} in {error}");
    }
    let left: Vec<usize> = (0..40).filter(|number| *number != 25).collect();
    assert_eq!(what_is_left(&reader, 40), (left, 1));
    let unchecked = StoreScanOptions { verify: false, ..StoreScanOptions::default() };
    assert_eq!(scan_all(&reader, unchecked).unwrap()[0].num_rows(), 40);
}

#[test]
fn an_entry_with_a_lying_size_costs_one_message_and_no_memory() {
    for size_bytes in [1, 91, 8191, 1 << 20, i32::MAX as u32 - 1] {
        let mut folder = one_queue(20);
        folder.queues.get_mut(&(TOPIC.to_owned(), 0)).unwrap()[5].size_bytes = size_bytes;
        let reader = folder.write(0, 0);
        assert!(scan_all(&reader, StoreScanOptions::default()).is_err());
        let (left, lost) = what_is_left(&reader, 20);
        assert_eq!((left.len(), lost), (19, 1), "size {size_bytes}");
    }
}

#[test]
fn an_entry_that_leads_to_another_message_is_not_believed() {
    let mut folder = one_queue(20);
    let entries = folder.queues.get_mut(&(TOPIC.to_owned(), 0)).unwrap();
    entries[5] = entries[6];
    let reader = folder.write(0, 0);
    let error = scan_all(&reader, StoreScanOptions::default()).unwrap_err();
    assert!(error.to_string().contains("its queue offset is 6, expected: 5"), "{error}");
}

#[test]
fn a_queue_that_does_not_begin_at_zero_has_fillers_that_are_no_messages() {
    let mut folder = one_queue(40);
    let entries = folder.queues.get_mut(&(TOPIC.to_owned(), 0)).unwrap();
    entries[..20].fill(ConsumeQueueEntry::PRE_BLANK); // file 0 is left out, the rest lie in file 1
    let reader = folder.write(0, 1);
    let planned = ranges(plan(&reader, TOPIC, &everything()).unwrap());
    assert_eq!((planned[0].start.get(), planned[0].end.get()), (20, 40));
    assert_eq!(scan_all(&reader, StoreScanOptions::default()).unwrap()[0].num_rows(), 20);
}

#[test]
fn a_hole_in_the_queue_is_counted_message_by_message() {
    let mut folder = one_queue(60);
    let zero = ConsumeQueueEntry { physical_offset: 0u64.into(), size_bytes: 0, tags_code: 0 };
    folder.queues.get_mut(&(TOPIC.to_owned(), 0)).unwrap()[3..5].fill(zero);
    let reader = folder.write(0, 0);
    let second_file = folder.path().join("consumequeue/flights/0").join(format!("{:020}", 320));
    rocketpy_env::Disk::remove_file(&rocketpy_env::RealDisk, &second_file).unwrap();
    let left: Vec<usize> =
        (0..60).filter(|number| !(3..5).contains(number) && !(16..32).contains(number)).collect();
    assert_eq!(what_is_left(&reader, 60), (left, 18));
}

/// Bodies of the selected records, and how many were left out.
fn select(reader: &StoreReader, selection: Selection) -> Result<(Vec<String>, u64), ScanError> {
    let selected = Selected::new(reader, selection).unwrap();
    let mut scan = SelectedScan::new(selected, Columns::default(), BatchLimits::default(), None);
    let mut batches = Vec::new();
    loop {
        match scan.step()? {
            Step::Batch(batch) => batches.push(batch),
            Step::More => {}
            Step::End => return Ok((bodies(&batches), scan.left_out())),
        }
    }
}

#[test]
fn selected_bodies_that_do_not_decompress_are_errors_or_skipped_with_damage() {
    let mut folder = Folder::new();
    folder.push(&Sent { body: b"first", ..Sent::default() });
    folder.push(&Sent { body: b"not zlib", sys_flag: sys_flag::COMPRESSED, ..Sent::default() });
    folder.push(&Sent { body: b"last", ..Sent::default() });
    let reader = folder.write(0, 0);
    for topics in [vec![TOPIC.to_owned()], vec![]] {
        let strict = Selection { topics, ..Selection::default() };
        let error = select(&reader, strict.clone()).unwrap_err();
        assert!(
            error.to_string().starts_with("cannot decompress the body of message 1 of flights-0 ("),
            "{error}"
        );
        let (left, left_out) = select(&reader, Selection { skips_damage: true, ..strict }).unwrap();
        assert_eq!((left, left_out), (vec!["first".to_owned(), "last".to_owned()], 1));
    }
}
