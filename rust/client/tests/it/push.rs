//! The push consumer against a scripted broker: what it says of itself, and what becomes of messages that handlers do not finish.

use std::time::Duration;

use rocketpy_client::{
    Fate, PushConfig, PushConsumer, PushTopic, Reason, Start, Subscription, Verdict, Work,
};
use rocketpy_model::MessageQueue;
use rocketpy_protocol::body::{
    ConsumeFromWhere, ConsumeMessageDirectlyResult, ConsumeResult, ConsumeType, ConsumerRunningInfo,
    HeartbeatData, LockBatchRequestBody, MessageModel, ResetOffsetBody, running_property,
};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    ConsumeMessageDirectlyResultRequestHeader, ConsumerSendMsgBackRequestHeader,
    GetConsumerRunningInfoRequestHeader, key,
};
use rocketpy_protocol::{Command, Header, json, properties_text};
use rocketpy_remoting::Reply;

use crate::consume::{consumer as pull_consumer, queue, records, stored_in};
use crate::handover::{locks, script_locks};
use crate::peer::{Act, PATIENCE, Peer, begun, client, header_of, pull_answer, single, status, with};

const RETRY_TOPIC: &str = "%RETRY%report";
/// Longer than the answers of a scripted broker take.
const SHORTLY: Duration = Duration::from_millis(30);

async fn start(peer: &Peer, config: PushConfig) -> PushConsumer {
    peer.route(RETRY_TOPIC, &[("b", peer, 1)]);
    let subscription = Subscription::new("t", "*");
    let topics = vec![PushTopic { subscription, lane: 0, batch: 1 }];
    PushConsumer::new(&client(&[peer]), "report", topics, config).await.unwrap()
}

/// Waits for a pull of a topic at this offset.
async fn next_pull(peer: &Peer, topic: &str, offset: &str) -> Reply {
    loop {
        let (pull, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
        if pull.ext.get("topic") == Some(topic) && pull.ext.get("queueOffset") == Some(offset) {
            return reply;
        }
        std::mem::forget(reply); // what is dropped is answered
    }
}

/// A consumer with messages 0 to 3, which a handler has.
async fn with_messages(peer: &Peer, config: PushConfig) -> (PushConsumer, Work) {
    let consumer = start(peer, config).await;
    next_pull(peer, "t", "0").await.send(pull_answer(response::SUCCESS, 4, 4, records(0..4)));
    let work = consumer.take(0, PATIENCE).await.unwrap().unwrap();
    (consumer, work)
}

fn offsets(peer: &Peer) -> Vec<String> {
    let commits = peer.seen(request::UPDATE_CONSUMER_OFFSET).into_iter();
    let of_topic = commits.filter(|commit| commit.ext.get("topic") == Some("t"));
    of_topic.map(|commit| commit.ext.get("commitOffset").unwrap().to_owned()).collect()
}

/// Finishes so many messages.
async fn finish(consumer: &PushConsumer, mut count: usize) {
    while count > 0 {
        let work = consumer.take(0, PATIENCE).await.unwrap().unwrap();
        while work.next().is_some() {
            count -= 1;
        }
    }
}

#[tokio::test]
async fn the_heartbeat_says_that_it_is_a_push_consumer() {
    let peer = begun(1);
    let mut config = PushConfig::default();
    config.consumer.start = Start::Earliest;
    let _consumer = start(&peer, config).await;
    let heartbeat: HeartbeatData = json::from_slice(&peer.seen(request::HEART_BEAT)[0].body).unwrap();
    let said = &heartbeat.consumer_data_set[0];
    assert_eq!(
        (&said.consume_type, &said.message_model, &said.consume_from_where),
        (
            &ConsumeType::ConsumePassively,
            &MessageModel::Clustering,
            &ConsumeFromWhere::ConsumeFromFirstOffset
        )
    );
    let topics: Vec<_> = said.subscription_data_set.iter().map(|one| one.topic.as_str()).collect();
    assert_eq!(topics, ["t", RETRY_TOPIC]);
}

#[tokio::test]
async fn what_a_handler_does_not_finish_is_sent_back_and_committed_after_the_answer() {
    let peer = begun(1);
    peer.script(|command| match command.code {
        request::CONSUMER_SEND_MSG_BACK => Act::Hold,
        _ => Act::Default,
    });
    let (consumer, work) = with_messages(&peer, PushConfig { max_retries: 5, ..PushConfig::default() }).await;
    assert!(work.next().is_some());
    let reason = Reason::Raised("ValueError: no such\norder");
    assert_eq!(work.fail(Verdict::Retry, Some(reason)), Some(Fate::ComesAgain));
    assert_eq!(work.fail(Verdict::Reject, None), None, "it is sent back already");
    drop(work);
    finish(&consumer, 3).await;
    let (sent_back, reply) = peer.held(request::CONSUMER_SEND_MSG_BACK).await;
    let header = ConsumerSendMsgBackRequestHeader::read(&sent_back.ext).unwrap();
    assert_eq!((header.offset, header.group, header.delay_level), (0, "report", 0));
    assert_eq!((header.origin_topic, header.max_reconsume_times), (Some("t"), Some(5)));
    assert_eq!(sent_back.ext.get(key::SEND_BACK_ERROR), Some(r"ValueError: no such\norder"));
    assert_eq!(offsets(&peer), [] as [&str; 0], "not finished");
    reply.send(Command::bare_request(response::SUCCESS));
    consumer.stop(PATIENCE).await.unwrap();
    assert_eq!(offsets(&peer).last().unwrap(), "4");
    let counts = consumer.stats();
    assert_eq!((counts.consumed, counts.failed, counts.sent_back, counts.unfinished), (3, 1, 1, 0));
}

/// A handler has message 0 when its queue is read from its beginning again, as messages 0 to 3 that came later.
async fn waits_for_the_handler(peer: &Peer, consumer: &PushConsumer, work: &Work) {
    next_pull(peer, "t", "0").await.send(pull_answer(response::SUCCESS, 4, 4, records(0..4)));
    let _at_the_end = next_pull(peer, "t", "4").await; // they have arrived
    assert!(consumer.take(0, Duration::ZERO).await.unwrap().is_none(), "a handler runs");
    let (next, ()) = tokio::join!(consumer.take(0, PATIENCE), async {
        assert!(work.next().is_none());
    });
    assert!(next.unwrap().unwrap().next().is_some());
}

#[tokio::test]
async fn in_order_a_queue_that_is_read_again_waits_for_the_handler_that_runs() {
    for is_reset in [false, true] {
        let peer = begun(1);
        script_locks(&peer, true);
        let config = PushConfig { ordered: true, ..PushConfig::default() };
        let (consumer, work) = with_messages(&peer, config).await;
        assert!(work.next().is_some());
        let at_the_end = next_pull(&peer, "t", "4").await;
        if is_reset {
            let body = ResetOffsetBody { offset_table: [(queue(), 0)].into() };
            let order = Command::bare_request(request::RESET_CONSUMER_CLIENT_OFFSET);
            peer.push(&with(order, "group", "report").with_body(json::to_vec(&body)));
        } else {
            at_the_end.send(pull_answer(response::PULL_OFFSET_MOVED, 0, 0, Vec::new()));
        }
        waits_for_the_handler(&peer, &consumer, &work).await;
    }
}

async fn share(peer: &Peer, consumer: &PushConsumer, members: &[&str], queues: usize) {
    peer.set_members("report", members);
    peer.push(&with(Command::bare_request(request::NOTIFY_CONSUMER_IDS_CHANGED), "consumerGroup", "report"));
    let share = async {
        while consumer.state().assigned.len() != queues {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, share).await.unwrap();
}

#[tokio::test]
async fn in_order_a_queue_that_comes_back_while_its_handler_runs_keeps_its_lock() {
    let peer = begun(1);
    script_locks(&peer, true);
    let mut config = PushConfig { ordered: true, ..PushConfig::default() };
    (config.consumer.handover_timeout, config.consumer.rebalance_min_gap) = (PATIENCE, Duration::ZERO);
    let (consumer, work) = with_messages(&peer, config).await;
    assert!(work.next().is_some());
    let heartbeat: HeartbeatData = json::from_slice(&peer.seen(request::HEART_BEAT)[0].body).unwrap();
    let me = heartbeat.client_id;
    let locks = peer.seen(request::LOCK_BATCH_MQ).len();
    share(&peer, &consumer, &["0.0.0.0@before", &me], 0).await;
    peer.wait_for(request::LOCK_BATCH_MQ, locks + 1).await; // the handover has begun
    share(&peer, &consumer, &[&me], 2).await;
    let unlocked = unlocked(&peer).await;
    assert_eq!(unlocked, ["%HANDOVER%report"], "the handover is over, and the group keeps its lock");
}

/// Groups that gave back their locks of the queue, once there is one.
async fn unlocked(peer: &Peer) -> Vec<String> {
    let of_queue = |command: &Command| {
        let body: LockBatchRequestBody = json::from_slice(&command.body).unwrap();
        body.mq_set.contains(&queue()).then_some(body.consumer_group)
    };
    loop {
        let seen = peer.seen(request::UNLOCK_BATCH_MQ);
        let groups: Vec<_> = seen.iter().filter_map(of_queue).collect();
        if !groups.is_empty() {
            return groups;
        }
        peer.wait_for(request::UNLOCK_BATCH_MQ, seen.len() + 1).await;
    }
}

#[tokio::test]
async fn in_order_a_queue_is_kept_until_its_handler_returns_although_no_handover_lock_is_given() {
    let peer = begun(1);
    script_locks(&peer, true);
    let mut config = PushConfig { ordered: true, ..PushConfig::default() };
    (config.consumer.handover_timeout, config.consumer.rebalance_min_gap) = (SHORTLY, Duration::ZERO);
    let (consumer, work) = with_messages(&peer, config).await;
    assert!(work.next().is_some());
    let is_refused = |command: &Command| {
        let body: LockBatchRequestBody = json::from_slice(&command.body).unwrap();
        body.consumer_group.starts_with("%HANDOVER%")
    };
    peer.script(move |command| match command.code {
        request::LOCK_BATCH_MQ if is_refused(command) => Act::Answer(status(response::SYSTEM_ERROR, "no")),
        request::LOCK_BATCH_MQ => locks(command, true),
        _ => Act::Default,
    });
    let heartbeat: HeartbeatData = json::from_slice(&peer.seen(request::HEART_BEAT)[0].body).unwrap();
    let asked = peer.seen(request::LOCK_BATCH_MQ).len();
    share(&peer, &consumer, &["0.0.0.0@before", &heartbeat.client_id], 0).await;
    peer.wait_for(request::LOCK_BATCH_MQ, asked + 1).await; // the handover has begun
    let (groups, ()) = tokio::join!(unlocked(&peer), async {
        assert!(tokio::time::timeout(10 * SHORTLY, unlocked(&peer)).await.is_err(), "its handler runs");
        while work.next().is_some() {}
    });
    assert!(groups.contains(&"report".to_owned()), "{groups:?}");
}

#[tokio::test]
async fn in_order_retries_are_handled_one_after_the_other() {
    let peer = begun(1);
    script_locks(&peer, true);
    let consumer = start(&peer, PushConfig { ordered: true, ..PushConfig::default() }).await;
    let retries = [stored_in("t", 0), stored_in("elsewhere", 1), stored_in("t", 2)].concat();
    next_pull(&peer, RETRY_TOPIC, "0").await.send(pull_answer(response::SUCCESS, 3, 3, retries));
    let _at_the_end = next_pull(&peer, RETRY_TOPIC, "3").await; // they have arrived
    let work = consumer.take(0, PATIENCE).await.unwrap().unwrap();
    assert!(work.next().is_some());
    assert!(consumer.take(0, Duration::ZERO).await.unwrap().is_none(), "a handler runs");
    assert!(work.next().is_none());
    assert!(consumer.take(0, PATIENCE).await.unwrap().unwrap().next().is_some());
}

fn properties(copy: &Command) -> Vec<(String, String)> {
    let header = header_of(copy);
    let text = header.properties.unwrap().as_bytes();
    properties_text::iter(text).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[tokio::test]
async fn where_the_broker_does_not_take_a_message_back_it_gets_a_copy() {
    let peer = begun(1);
    peer.script(|command| match command.code {
        request::CONSUMER_SEND_MSG_BACK => Act::Answer(status(response::SYSTEM_ERROR, "no such message")),
        _ => Act::Default,
    });
    let (consumer, work) = with_messages(&peer, PushConfig::default()).await;
    assert!(work.next().is_some() && work.fail(Verdict::RetryAfter(Duration::from_secs(4)), None).is_some());
    drop(work);
    let copy = &peer.wait_for(request::SEND_MESSAGE_V2, 1).await[0];
    let header = header_of(copy);
    assert_eq!((header.topic, header.producer_group), (RETRY_TOPIC, "CLIENT_INNER_PRODUCER"));
    assert_eq!((header.reconsume_times, header.max_reconsume_times), (Some(1), Some(16)));
    assert_eq!((&copy.body[..], header.flag), (&b"0"[..], 0));
    let said = properties(copy);
    for (name, value) in [("TAGS", "a"), ("RETRY_TOPIC", "t"), ("DELAY", "2")] {
        assert!(said.contains(&(name.to_owned(), value.to_owned())), "{name}: {said:?}");
    }
    let work = consumer.take(0, PATIENCE).await.unwrap().unwrap();
    let reason = Some(Reason::Raised("Reject: no such order"));
    assert!(work.next().is_some() && work.fail(Verdict::Reject, reason).is_some());
    drop(work);
    let dead = &peer.wait_for(request::SEND_MESSAGE_V2, 2).await[1];
    let header = header_of(dead);
    assert!(header.reconsume_times > header.max_reconsume_times, "brokers take it for dead: {header:?}");
    assert!(!properties(dead).iter().any(|(name, _)| name == "DELAY"));
    assert!(properties(dead).contains(&("DLQ_ERROR".to_owned(), "Reject: no such order".to_owned())));
    assert!(!properties(copy).iter().any(|(name, _)| name == "DLQ_ERROR"), "a retry carries no error");
    finish(&consumer, 2).await;
    consumer.stop(PATIENCE).await.unwrap();
    assert_eq!(offsets(&peer).last().unwrap(), "4");
}

#[tokio::test]
async fn what_no_broker_takes_is_not_committed_and_a_stop_does_not_wait_for_it_for_ever() {
    let peer = begun(1);
    peer.script(|command| match command.code {
        request::CONSUMER_SEND_MSG_BACK | request::SEND_MESSAGE_V2 => {
            Act::Answer(status(response::NO_PERMISSION, "no"))
        }
        _ => Act::Default,
    });
    let (consumer, work) = with_messages(&peer, PushConfig::default()).await;
    assert!(work.next().is_some() && work.fail(Verdict::Retry, None).is_some());
    drop(work);
    finish(&consumer, 3).await;
    peer.wait_for(request::SEND_MESSAGE_V2, 1).await;
    consumer.stop(Duration::from_millis(200)).await.unwrap();
    assert!(offsets(&peer).iter().all(|offset| offset == "0"), "{:?}", offsets(&peer));
    assert_eq!(consumer.stats().sent_back, 0);
}

#[tokio::test]
async fn what_was_not_begun_before_a_stop_is_not_committed() {
    let peer = begun(1);
    let (consumer, work) = with_messages(&peer, PushConfig::default()).await;
    assert!(work.next().is_some());
    let (stopped, ()) = tokio::join!(consumer.stop(PATIENCE), async {
        assert!(work.next().is_none(), "nothing begins after the stop");
    });
    stopped.unwrap();
    assert_eq!(offsets(&peer).last().unwrap(), "1");
    assert!(consumer.take(0, PATIENCE).await.is_err());
}

/// A message that was sent back before the queue was known here is not passed over.
#[tokio::test]
async fn the_retry_topic_begins_with_its_oldest_message_wherever_the_group_begins() {
    let peer = single(1);
    let mut config = PushConfig::default();
    config.consumer.start = Start::Latest;
    let _consumer = start(&peer, config).await;
    let asked = |code| -> Vec<String> {
        peer.seen(code).iter().map(|one| one.ext.get("topic").unwrap().to_owned()).collect()
    };
    assert_eq!(asked(request::GET_MAX_OFFSET), ["t"]);
    assert_eq!(asked(request::GET_MIN_OFFSET), [RETRY_TOPIC]);
}

#[tokio::test]
async fn a_topic_without_a_route_at_the_start_begins_with_its_oldest_message() {
    let peer = Peer::start();
    let mut config = PushConfig::default();
    config.consumer.start = Start::Latest;
    config.consumer.rebalance_interval = Duration::from_millis(10);
    config.consumer.allow_missing_topic = true;
    let _consumer = start(&peer, config).await;
    peer.route("t", &[("b", &peer, 1)]);
    let asked = peer.wait_for(request::GET_MIN_OFFSET, 2).await; // that of the retry topic is the other one
    assert!(asked.iter().any(|asked| asked.ext.get("topic") == Some("t")));
    assert!(peer.seen(request::GET_MAX_OFFSET).is_empty());
}

fn running_info(group: &str) -> Command {
    let header = GetConsumerRunningInfoRequestHeader {
        consumer_group: group,
        client_id: "",
        jstack_enable: Some(true),
    };
    Command::request(request::GET_CONSUMER_RUNNING_INFO, &header)
}

#[tokio::test]
async fn a_member_tells_an_administrator_what_it_does() {
    let peer = begun(1);
    let (consumer, work) = with_messages(&peer, PushConfig::default()).await;
    let answer = peer.ask(running_info("report")).await;
    assert_eq!(answer.code, response::SUCCESS);
    let info: ConsumerRunningInfo = json::from_slice(&answer.body).unwrap();
    let property = |name: &str| info.properties[name].as_str();
    assert_eq!(property(running_property::CONSUME_TYPE), "CONSUME_PASSIVELY");
    assert_eq!(property(running_property::CONSUME_ORDERLY), "false");
    assert_eq!(property(running_property::NAMESERVER_ADDR), format!("{};", peer.address));
    let topics: Vec<_> = info.subscription_set.iter().map(|one| one.topic.as_str()).collect();
    assert_eq!(topics, ["t", RETRY_TOPIC]);
    let queue = &info.mq_table[&MessageQueue::new("t", "b", 0)];
    assert_eq!((queue.cached_msg_count, queue.cached_msg_min_offset, queue.cached_msg_max_offset), (4, 0, 3));
    assert!(queue.last_pulled_at_ms > 0 && queue.last_consumed_at_ms == 0, "{queue:?}");
    assert_eq!(info.status_table["t"].consume_ok_tps, 0.0);
    drop(work);
    finish(&consumer, 4).await;
    let info: ConsumerRunningInfo = json::from_slice(&peer.ask(running_info("report")).await.body).unwrap();
    let queue = &info.mq_table[&MessageQueue::new("t", "b", 0)];
    assert_eq!((queue.cached_msg_count, queue.commit_offset), (0, 4));
    assert!(queue.last_consumed_at_ms > 0, "{queue:?}");
    assert!(info.status_table["t"].consume_ok_tps > 0.0, "{:?}", info.status_table);
    assert_eq!(peer.ask(running_info("other")).await.code, response::SYSTEM_ERROR);
}

fn consume_directly(offset: u64) -> Command {
    let header = ConsumeMessageDirectlyResultRequestHeader {
        consumer_group: "report",
        client_id: None,
        msg_id: None,
        broker_name: Some("b"),
        topic: Some("t"),
        topic_sys_flag: None,
        group_sys_flag: None,
    };
    Command::request(request::CONSUME_MESSAGE_DIRECTLY, &header).with_body(records(offset..offset + 1))
}

#[tokio::test]
async fn a_handler_consumes_a_message_that_an_administrator_chose_and_nothing_else_becomes_of_it() {
    let peer = begun(1);
    let (consumer, work) = with_messages(&peer, PushConfig::default()).await;
    let mut works = vec![work];
    while works.len() < 4 {
        works.push(consumer.take(0, PATIENCE).await.unwrap().unwrap());
    }
    assert!(works.iter().all(|work| work.next().is_some()), "nothing else is left to take");
    for (offset, verdict) in [
        (2, None),
        (0, Some((Verdict::Retry, Some(Reason::Chosen("later"))))),
        (9, Some((Verdict::Reject, Some(Reason::Raised("no such order"))))),
    ] {
        let (answer, _) = tokio::join!(peer.ask(consume_directly(offset)), async {
            let work = consumer.take(0, PATIENCE).await.unwrap().unwrap();
            assert_eq!((work.queue().queue_id, work.next().is_some()), (0, true));
            if let Some((verdict, reason)) = verdict {
                assert_eq!(work.fail(verdict, reason), Some(Fate::Unchanged));
            }
            assert!(work.next().is_none());
        });
        let result: ConsumeMessageDirectlyResult = json::from_slice(&answer.body).unwrap();
        let expected = match verdict {
            None => (ConsumeResult::Success, None),
            Some((_, None)) => unreachable!("each failure has a reason"),
            Some((_, Some(Reason::Chosen(_)))) => (ConsumeResult::Later, None),
            Some((_, Some(Reason::Raised(text)))) => (ConsumeResult::Threw, Some(text.to_owned())),
        };
        assert_eq!(
            (result.consume_result, result.remark, result.is_ordered),
            (expected.0, expected.1, false)
        );
    }
    assert_eq!(peer.seen(request::CONSUMER_SEND_MSG_BACK).len(), 0);
    assert_eq!(consumer.stats().unfinished, 4, "what was asked for is not among the messages of the queue");
    drop(works); // as if no handler had got them
    finish(&consumer, 4).await;
    consumer.stop(PATIENCE).await.unwrap();
    assert_eq!(offsets(&peer).last().unwrap(), "4");
}

#[tokio::test]
async fn what_no_handler_can_consume_is_refused_with_the_reason() {
    let peer = begun(1);
    let consumer = start(&peer, PushConfig::default()).await;
    for (body, said) in [
        (records(0..2), "more than one record"),
        (Vec::new(), "ill-formed"),
        (stored_in("elsewhere", 0), "no handler for topic elsewhere"),
    ] {
        let answer = peer.ask(consume_directly(0).with_body(body)).await;
        assert_eq!(answer.code, response::SYSTEM_ERROR);
        assert!(answer.remark.as_deref().unwrap().contains(said), "{answer:?}");
    }
    let (answer, ()) = tokio::join!(peer.ask(consume_directly(0)), async {
        peer.wait_for(request::LITE_PULL_MESSAGE, 1).await;
        consumer.stop(Duration::ZERO).await.unwrap();
    });
    assert_ne!(answer.code, response::SUCCESS, "it stopped before a handler took the message");
    let peer = begun(1);
    let _polled = pull_consumer(&peer).await;
    let answer = peer.ask(consume_directly(0)).await;
    assert!(answer.remark.unwrap().contains("that polls has no handler"));
    let info: ConsumerRunningInfo = json::from_slice(&peer.ask(running_info("report")).await.body).unwrap();
    assert_eq!(info.properties[running_property::CONSUME_TYPE], "CONSUME_ACTIVELY");
    assert!(info.status_table.is_empty());
}
