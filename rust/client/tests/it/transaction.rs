//! Transactions: against RocketPy's broker, and against a peer that says what the test wants.

use rocketpy_client::{ClientError, Producer, ProducerConfig, SendOptions, TransactionEnd};
use rocketpy_model::Message;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{EndTransactionRequestHeader, Header};

use crate::cluster::Cluster;
use crate::peer::{Act, PATIENCE, client, header_of, sent, single, status};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_comes_and_what_is_rolled_back_does_not() {
    let cluster = Cluster::start().await;
    cluster.admin().create_topic(&rocketpy_client::TopicSpec::new("t", 1)).await.unwrap();
    let producer = cluster.producer().await;
    for (body, end) in
        [("a", TransactionEnd::Commit), ("b", TransactionEnd::Rollback), ("c", TransactionEnd::Commit)]
    {
        let half = producer.prepare(&Message::new("t", body), SendOptions::default()).await.unwrap();
        producer.end_transaction(&half, end).await.unwrap();
        producer.end_transaction(&half, end).await.unwrap();
    }
    let consumer = cluster.consumer("g", "*").await;
    let mut bodies = Vec::new();
    while bodies.len() < 2 {
        let came = consumer.poll(10, PATIENCE).await.unwrap();
        bodies.extend(came.iter().map(|message| message.record().body.to_vec()));
    }
    assert_eq!(bodies, [b"a", b"c"]);
}

#[tokio::test]
async fn a_half_message_whose_flush_is_in_doubt_is_rolled_back() {
    let peer = single(1);
    peer.script(|asked| match asked.code {
        request::SEND_MESSAGE_V2 => {
            Act::Answer(Command { code: response::FLUSH_DISK_TIMEOUT, ..sent(asked, 7) })
        }
        request::END_TRANSACTION => Act::Answer(status(response::SUCCESS, "")),
        _ => Act::Default,
    });
    let producer = Producer::new(&client(&[&peer]), "payers", ProducerConfig::default()).await.unwrap();
    let error = producer.prepare(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err();
    assert!(matches!(&*error, ClientError::HalfInDoubt { .. }), "{error:?}");
    let half = peer.seen(request::SEND_MESSAGE_V2).remove(0);
    let header = header_of(&half);
    assert!(header.properties.unwrap().contains("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}payers"));
    assert_eq!(header.sys_flag & 0xC, 0x4);
    let ends = peer.seen(request::END_TRANSACTION);
    let end = EndTransactionRequestHeader::read(&ends[0].ext).unwrap();
    assert_eq!((ends.len(), end.commit_or_rollback, end.producer_group), (1, 12, "payers"));
    assert_eq!((end.tran_state_table_offset, end.commit_log_offset), (7, 7));
}

#[tokio::test]
async fn a_half_message_that_may_be_stored_is_not_sent_again() {
    let peer = single(1);
    peer.script(|asked| if asked.code == request::SEND_MESSAGE_V2 { Act::Hold } else { Act::Default });
    let producer = Producer::new(&client(&[&peer]), "payers", ProducerConfig::default()).await.unwrap();
    let message = Message::new("t", "x");
    let (error, _answer) = tokio::join!(producer.prepare(&message, SendOptions::default()), async {
        let held = peer.held(request::SEND_MESSAGE_V2).await;
        peer.cut();
        held
    });
    assert!(error.unwrap_err().may_have_been_applied());
    assert_eq!(
        peer.seen(request::SEND_MESSAGE_V2).len(),
        1,
        "the broker asks for it, a second one would come too"
    );
}
