//! Bodies that cannot be read: damaged, or too large when decompressed.

use rocketpy_client::{ClientError, ConsumerConfig, Position, PullConsumer, PulledBatch, Start};
use rocketpy_model::{PhysicalOffset, QueueOffset, sys_flag};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::compression::{CompressionType, compress};
use rocketpy_protocol::record::body_crc;

use crate::consume::{consumer, join, poll_offsets, pull_header, queue, record, records, stored};
use crate::peer::{Act, PATIENCE, client, ok, pull_answer, single, with};

#[tokio::test]
async fn a_broken_record_is_an_error_and_nothing_of_its_answer_is_handed_out() {
    let peer = single(1);
    let consumer = consumer(&peer).await;
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    let mut body = records(0..3);
    let last = body.len() - 10;
    body.truncate(last);
    reply.send(pull_answer(response::SUCCESS, 3, 3, body));
    let error = consumer.poll(10, PATIENCE).await.unwrap_err();
    assert!(matches!(error, ClientError::BadAnswer { .. }), "{error:?}");
    assert_eq!(consumer.positions(), [(queue(), QueueOffset(0))]);
}

#[tokio::test]
async fn a_damaged_body_is_an_error_after_the_messages_before_it_and_a_seek_skips_it() {
    let peer = single(1);
    let damaged = |from: u64| {
        let mut body = records(from..6);
        let start = records(from..2).len();
        body[start + 88] ^= 1; // the body of message 2
        body
    };
    peer.script(|command| match command.code {
        request::GET_MAX_OFFSET => Act::Answer(with(ok(), "offset", "6")),
        _ => Act::Default,
    });
    let consumer = consumer(&peer).await;
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 6, 6, damaged(0)));
    assert_eq!(poll_offsets(&consumer, 10).await, [0, 1]);
    let (pull, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    assert_eq!(pull_header(&pull).queue_offset, 2);
    reply.send(pull_answer(response::SUCCESS, 6, 6, damaged(2)));
    let error = consumer.poll(10, PATIENCE).await.unwrap_err();
    let ClientError::DamagedMessage { queue: of, queue_offset, physical_offset, reason } = &error else {
        panic!("{error:?}")
    };
    assert_eq!((of, *queue_offset, *physical_offset), (&queue(), QueueOffset(2), PhysicalOffset(2000)));
    let (stored, computed) = (body_crc(b"2"), body_crc(b"3"));
    assert_eq!(*reason, format!("body checksum mismatch: stored {stored:#010x}, computed {computed:#010x}"));
    assert!(!error.retryable());
    assert_eq!(consumer.positions(), [(queue(), QueueOffset(2))]);
    consumer.seek(&queue(), Position::Offset(QueueOffset(3))).await.unwrap();
    let reply = loop {
        let (pull, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
        if pull_header(&pull).queue_offset == 3 {
            break reply; // The pull of message 2 may have been repeated before.
        }
    };
    reply.send(pull_answer(response::SUCCESS, 6, 6, records(3..6)));
    assert_eq!(poll_offsets(&consumer, 10).await, [3, 4, 5]);
}

/// Messages 0 to 4 with checksums of their own. One byte of message 2 is another one.
fn with_changed(at: usize) -> Vec<u8> {
    let mut body: Vec<u8> = (0..2).flat_map(checked).collect();
    let start = body.len();
    body.extend((2..5).flat_map(checked));
    body[start + at] ^= 1;
    body
}

fn checked(offset: u64) -> Vec<u8> {
    crate::consume::stored_with_check(offset, offset.to_string().as_bytes(), "a", 0)
}

#[tokio::test]
async fn a_changed_byte_anywhere_in_a_message_is_an_error_after_the_messages_before_it() {
    for at in [4, 12, 16, 26, 35, 39, 47, 52, 60, 70, 75, 87, 90, 93, 97] {
        let peer = single(1);
        let consumer = consumer(&peer).await;
        let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
        reply.send(pull_answer(response::SUCCESS, 5, 5, with_changed(at)));
        if at == 4 {
            // The magic number: it is no record, and nobody knows what follows.
            let error = consumer.poll(10, PATIENCE).await.unwrap_err();
            assert!(matches!(error, ClientError::BadAnswer { .. }), "{error:?}");
            continue;
        }
        assert_eq!(poll_offsets(&consumer, 10).await, [0, 1], "byte {at}");
        assert_eq!(consumer.positions(), [(queue(), QueueOffset(2))], "byte {at}");
        let (pull, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
        assert_eq!(pull_header(&pull).queue_offset, 2, "byte {at}");
        let from_two = with_changed(at).split_off(checked(0).len() + checked(1).len());
        reply.send(pull_answer(response::SUCCESS, 5, 5, from_two));
        let error = consumer.poll(10, PATIENCE).await.unwrap_err();
        assert!(
            matches!(&error, ClientError::DamagedMessage { queue_offset: QueueOffset(2), .. }),
            "byte {at}: {error:?}"
        );
        assert!(error.hint().unwrap().contains("seek to 3"));
    }
}

/// Records `[from, 5)`; the body of message 2 has `size` bytes and is compressed.
fn with_compressed(from: u64, size: usize) -> Vec<u8> {
    let packed = compress(CompressionType::Zlib, 5, &vec![b'x'; size]).unwrap();
    (from..5)
        .flat_map(|offset| match offset {
            2 => stored(2, &packed, "a", sys_flag::COMPRESSED),
            _ => record(offset, &offset.to_string(), "a"),
        })
        .collect()
}

async fn poll_bodies(consumer: &PullConsumer) -> Result<PulledBatch, ClientError> {
    consumer.read_bodies(consumer.poll(10, PATIENCE).await?)
}

async fn offsets_of_bodies(consumer: &PullConsumer) -> Vec<u64> {
    let batch = poll_bodies(consumer).await.unwrap();
    batch.iter().map(|message| message.queue_offset().get()).collect()
}

#[tokio::test]
async fn a_body_that_does_not_decompress_is_an_error_until_a_seek_skips_it() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::GET_MAX_OFFSET => Act::Answer(with(ok(), "offset", "5")),
        request::LITE_PULL_MESSAGE => match pull_header(command).queue_offset {
            5 => Act::Hold,
            from => Act::Answer(pull_answer(response::SUCCESS, 5, 5, with_compressed(from as u64, 20 << 20))),
        },
        _ => Act::Default,
    });
    let consumer = consumer(&peer).await;
    assert_eq!(offsets_of_bodies(&consumer).await, [0, 1]);
    for _ in 0..3 {
        let error = poll_bodies(&consumer).await.unwrap_err();
        assert!(
            matches!(&error, ClientError::UnreadableBody { queue_offset: QueueOffset(2), limit_bytes, .. }
                if *limit_bytes == Some(16 << 20)),
            "{error:?}"
        );
        let hint = error.hint().unwrap();
        assert!(hint.contains("max_body_bytes") && hint.contains("16777216") && hint.contains("seek to 3"));
        assert_eq!(consumer.positions(), [(queue(), QueueOffset(2))]);
    }
    consumer.commit().await.unwrap();
    assert_eq!(consumer.committed(&queue()).await.unwrap(), Some(QueueOffset(2)));
    consumer.seek(&queue(), Position::Offset(QueueOffset(3))).await.unwrap();
    assert_eq!(offsets_of_bodies(&consumer).await, [3, 4]);
}

#[tokio::test]
async fn a_body_of_more_than_4_mib_is_read_and_one_past_the_limit_when_that_is_raised() {
    for (size, max_body_bytes) in [(5_000_000, None), (20 << 20, Some(20 << 20))] {
        let peer = single(1);
        peer.script(move |command| match command.code {
            request::LITE_PULL_MESSAGE => match pull_header(command).queue_offset {
                5 => Act::Hold,
                from => Act::Answer(pull_answer(response::SUCCESS, 5, 5, with_compressed(from as u64, size))),
            },
            _ => Act::Default,
        });
        let config = ConsumerConfig { start: Start::Earliest, max_body_bytes, ..ConsumerConfig::default() };
        let consumer = join(&client(&[&peer]), config).await.unwrap();
        let batch = poll_bodies(&consumer).await.unwrap();
        assert_eq!(batch.len(), 5);
        let part = &batch.parts()[0];
        assert!(batch.has_compressed() && part.decompressed(1).is_none(), "only what was compressed is kept");
        assert_eq!(part.decompressed(2).unwrap().len(), size);
    }
}
