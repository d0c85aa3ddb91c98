//! Tests of [`super::pack`].

use std::net::Ipv4Addr;

use rocketpy_model::{CompressionType, Message};
use rocketpy_protocol::batch::{self, BatchItem};
use rocketpy_protocol::compression::{DecompressLimits, decompress};
use rocketpy_protocol::message_id::UniqueKey;
use rocketpy_protocol::properties_text;

use super::pack::{Given, Packed, Packer, single};
use super::validate::check_content;
use crate::config::ProducerConfig;
use crate::identity::UniqueIds;

fn ids() -> UniqueIds {
    UniqueIds::new(Ipv4Addr::new(10, 0, 0, 1).into())
}

fn message(body: &str) -> Message {
    let mut message = Message::new("t", body.to_owned());
    message.set_tag("a").unwrap();
    message
}

fn items(body: &[u8]) -> Vec<BatchItem<'_>> {
    batch::items(body).collect::<Result<_, _>>().unwrap()
}

#[test]
fn the_longest_properties_that_pass_the_check_fit_a_batch() {
    let (ids, mut packer) = (ids(), Packer::new(&ProducerConfig::default()));
    let most = (30_000..properties_text::MAX_BYTES).rev().find_map(|bytes| {
        let mut message = Message::new("t", "body");
        message.properties.set("long", "x".repeat(bytes)).unwrap();
        check_content(&message, Given::default(), 1 << 20).is_ok().then_some(message)
    });
    let longest = most.expect("a shorter text passes");
    assert_eq!(packer.push(&longest, Given::default(), &ids, ids.moment()), Packed::Added);
    let outgoing = packer.finish("t", &ids, ids.moment());
    assert_eq!(items(&outgoing.body)[0].properties.len(), properties_text::MAX_BYTES);
}

#[test]
fn a_batch_reads_back_item_by_item_with_its_keys() {
    let (ids, mut packer) = (ids(), Packer::new(&ProducerConfig::default()));
    let moment = ids.moment();
    let messages = [message("one"), message("two"), message("three")];
    for message in &messages {
        assert_eq!(
            packer.push(message, Given { order_key: Some("k"), ..Given::default() }, &ids, moment),
            Packed::Added
        );
    }
    let outgoing = packer.finish("t", &ids, moment);
    let items = items(&outgoing.body);
    assert_eq!((items.len(), outgoing.keys.len()), (3, 3));
    for (index, (item, message)) in items.iter().zip(&messages).enumerate() {
        assert_eq!(item.body, message.body);
        let key = properties_text::get(item.properties, "UNIQ_KEY").unwrap();
        assert_eq!(key, outgoing.keys.get(index));
        assert!(key.parse::<UniqueKey>().is_ok(), "{key}");
        assert_eq!(properties_text::get(item.properties, "__SHARDINGKEY"), Some("k"));
        assert_eq!(properties_text::get(item.properties, "TAGS"), Some("a"));
    }
    assert_eq!(properties_text::get(outgoing.properties.as_bytes(), "WAIT"), Some("true"));
    assert_eq!(packer.len(), 0, "the next batch starts empty");
}

#[test]
fn a_batch_is_full_at_its_bounds_and_loses_nothing() {
    let config = ProducerConfig { batch_messages: 3, ..ProducerConfig::default() };
    let (ids, mut packer) = (ids(), Packer::new(&config));
    let moment = ids.moment();
    let added = (0..5)
        .filter(|_| packer.push(&message("x"), Given::default(), &ids, moment) == Packed::Added)
        .count();
    assert_eq!(added, 3);

    let config = ProducerConfig { batch_bytes: 400, ..ProducerConfig::default() };
    let mut packer = Packer::new(&config);
    let added = (0..9)
        .take_while(|_| packer.push(&message("0123456789"), Given::default(), &ids, moment) == Packed::Added)
        .count();
    let outgoing = packer.finish("t", &ids, moment);
    assert!(added > 1 && outgoing.body.len() <= 400, "{added} messages, {} bytes", outgoing.body.len());
    assert_eq!((items(&outgoing.body).len(), outgoing.keys.len()), (added, added));
}

#[test]
fn the_first_message_finds_room_however_large() {
    let config = ProducerConfig { batch_bytes: 10, ..ProducerConfig::default() };
    let (ids, mut packer) = (ids(), Packer::new(&config));
    let moment = ids.moment();
    assert_eq!(packer.push(&message(&"x".repeat(1000)), Given::default(), &ids, moment), Packed::Added);
    assert_eq!(packer.push(&message("x"), Given::default(), &ids, moment), Packed::Full);
    assert_eq!(packer.len(), 1);
}

#[test]
fn messages_that_do_not_wait_go_apart() {
    let (ids, mut packer) = (ids(), Packer::new(&ProducerConfig::default()));
    let moment = ids.moment();
    let mut hasty = message("x");
    hasty.properties.set("WAIT", "false").unwrap();
    assert_eq!(packer.push(&hasty, Given::default(), &ids, moment), Packed::Added);
    assert_eq!(packer.push(&message("x"), Given::default(), &ids, moment), Packed::Full);
    let outgoing = packer.finish("t", &ids, moment);
    assert_eq!(properties_text::get(outgoing.properties.as_bytes(), "WAIT"), Some("false"));
    assert_eq!(packer.push(&message("x"), Given::default(), &ids, moment), Packed::Added);
}

#[test]
fn a_given_unique_key_is_kept() {
    let (ids, mut mine) = (ids(), message("x"));
    mine.properties.set("UNIQ_KEY", "mine").unwrap();
    let outgoing = single(&mine, Given::default(), &ProducerConfig::default(), &ids, ids.moment());
    assert_eq!(outgoing.keys.get(0), "mine");
    assert_eq!(outgoing.properties.matches("UNIQ_KEY").count(), 1);
    assert_eq!(properties_text::get(outgoing.properties.as_bytes(), "WAIT"), Some("true"));
}

#[test]
fn large_bodies_are_compressed_when_that_makes_them_smaller() {
    let ids = ids();
    let send = |body: Vec<u8>, compression| {
        let config = ProducerConfig { compression, ..ProducerConfig::default() };
        single(&Message::new("t", body), Given::default(), &config, &ids, ids.moment())
    };
    let small = send(vec![7; 4095], Some(CompressionType::Zlib));
    assert_eq!((small.sys_flag, small.body.len()), (0, 4095));
    for (kind, flag) in
        [(CompressionType::Zlib, 0x301), (CompressionType::Lz4, 0x101), (CompressionType::Zstd, 0x201)]
    {
        let large = send(vec![7; 4096], Some(kind));
        assert_eq!(large.sys_flag, flag);
        let plain = decompress(kind, &large.body, &DecompressLimits::default()).unwrap();
        assert_eq!(plain, vec![7; 4096]);
    }
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let noise: Vec<u8> = (0..4096).map(|_| next()).collect();
    assert_eq!(send(noise, Some(CompressionType::Lz4)).sys_flag, 0, "it would have grown");
    assert_eq!(send(vec![7; 4096], None).sys_flag, 0);
}
