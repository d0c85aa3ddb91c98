//! Reading a range of a queue outside any group.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rocketpy_client::{Admin, ClientError, RangeReader};
use rocketpy_model::QueueOffset;
use rocketpy_protocol::code::{request, response};

use crate::consume::{pull_header, queue, records};
use crate::peer::{Act, client, pull_answer, single};

#[tokio::test]
async fn a_range_is_read_without_a_group_and_cut_at_its_bounds() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::PULL_MESSAGE => {
            let header = pull_header(command);
            assert_eq!((header.sys_flag, header.consumer_group), (6, "TOOLS_CONSUMER"));
            assert_eq!(header.suspend_timeout_millis, 500);
            let from = header.queue_offset as u64;
            Act::Answer(pull_answer(response::SUCCESS, from as i64 + 10, 100, records(from..from + 10)))
        }
        _ => Act::Default,
    });
    let client = client(&[&peer]);
    let mut reader = RangeReader::new(&client, queue(), QueueOffset(5), QueueOffset(28), "*").await.unwrap();
    let mut offsets = Vec::new();
    while let Some(part) = reader.next().await.unwrap() {
        assert!(!part.is_empty());
        offsets.extend(part.spans().iter().map(|span| span.queue_offset.get()));
    }
    assert_eq!(offsets, (5..28).collect::<Vec<_>>());
    assert!(peer.seen(request::HEART_BEAT).is_empty());
}

#[tokio::test]
async fn a_range_that_the_queue_does_not_hold_is_an_error() {
    for answer in [
        pull_answer(response::PULL_OFFSET_MOVED, 50, 60, Vec::new()),
        pull_answer(response::PULL_NOT_FOUND, 5, 5, Vec::new()),
    ] {
        let peer = single(1);
        peer.script(move |command| match command.code {
            request::PULL_MESSAGE => Act::Answer(answer.clone()),
            _ => Act::Default,
        });
        let client = client(&[&peer]);
        let mut reader =
            RangeReader::new(&client, queue(), QueueOffset(5), QueueOffset(28), "*").await.unwrap();
        let error = reader.next().await.unwrap_err();
        assert!(matches!(error, ClientError::OffsetOutOfRange { offset: QueueOffset(5), .. }), "{error:?}");
    }
}

#[tokio::test]
async fn waiting_read_repeats_empty_pulls() {
    let (peer, pulls) = (single(1), AtomicUsize::new(0));
    peer.script(move |command| match command.code {
        request::PULL_MESSAGE => {
            let header = pull_header(command);
            assert_eq!(header.consumer_group, "TOOLS_CONSUMER");
            let is_first = pulls.fetch_add(1, Ordering::Relaxed) == 0;
            assert!(!is_first || header.suspend_timeout_millis > 29_000, "{header:?}");
            Act::Answer(match is_first {
                true => pull_answer(response::PULL_NOT_FOUND, 5, 5, Vec::new()),
                false => pull_answer(response::SUCCESS, 9, 9, records(5..9)),
            })
        }
        _ => Act::Default,
    });
    let client = client(&[&peer]);
    let wait = Duration::from_secs(30);
    let read = Admin::new(&client).read_within(queue(), QueueOffset(5), QueueOffset(8), wait).await.unwrap();
    let (part, _) = read.expect("messages came");
    assert_eq!(part.spans().iter().map(|span| span.queue_offset.get()).collect::<Vec<_>>(), [5, 6, 7]);
    assert!(peer.seen(request::HEART_BEAT).is_empty());
}

#[tokio::test]
async fn a_read_that_waits_ends_without_messages() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::PULL_MESSAGE => Act::Answer(pull_answer(response::PULL_NOT_FOUND, 5, 5, Vec::new())),
        _ => Act::Default,
    });
    let admin = Admin::new(&client(&[&peer]));
    let wait = Duration::from_millis(120);
    let read = admin.read_within(queue(), QueueOffset(5), QueueOffset(8), wait).await.unwrap();
    assert!(read.is_none(), "{read:?}");
}
