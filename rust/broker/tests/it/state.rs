use std::sync::Arc;

use rocketpy_broker::{BrokerConfig, ConfigChange, ConfigText, Endpoint, SettingError};
use rocketpy_protocol::body::KvTable;
use rocketpy_protocol::code::request;
use rocketpy_protocol::{Command, json};

use crate::support::{Fixture, Pull, Send, wait_until};

async fn runtime(fixture: &Fixture) -> KvTable {
    let answer = fixture.call(Command::bare_request(request::GET_BROKER_RUNTIME_INFO)).await;
    json::from_slice(&answer.body).unwrap()
}

pub(crate) async fn runtime_value(fixture: &Fixture, key: &str) -> String {
    runtime(fixture).await.table.remove(key).unwrap()
}

/// Keys of Apache's 5.5.0, but for those of single disks and delay levels.
const APACHE_KEYS: &[&str] = &[
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
    "ackThreadPoolQueueCapacity",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueSize",
    "bootTimestamp",
    "brokerActive",
    "brokerVersionDesc",
    "commitLogDirCapacity",
    "commitLogDiskRatio",
    "commitLogMaxOffset",
    "commitLogMinOffset",
    "consumeQueueDiskRatio",
    "dispatchBehindBytes",
    "dispatchMaxBuffer",
    "earliestMessageTimeStamp",
    "getFoundTps",
    "getMessageEntireTimeMax",
    "getMissTps",
    "getTotalTps",
    "getTransferredTps",
    "litePullThreadPoolQueueCapacity",
    "litePullThreadPoolQueueHeadWaitTimeMills",
    "litePullThreadPoolQueueSize",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgPutTotalYesterdayMorning",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "putLatency99",
    "putLatency999",
    "putMessageAverageSize",
    "putMessageDistributeTime",
    "putMessageEntireTimeMax",
    "putMessageFailedTimes",
    "putMessageSizeTotal",
    "putMessageTimesTotal",
    "putTps",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "remainHowManyDataToCommit",
    "remainHowManyDataToFlush",
    "remainTransientStoreBufferNumbs",
    "runtime",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
    "startAcceptSendRequestTimeStamp",
    "timerCongestNum",
    "timerDequeueTps",
    "timerEnqueueTps",
    "timerOffsetBehind",
    "timerReadBehind",
];

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_wait_are_counted_by_their_kind() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    for properties in [
        "DELAY\u{1}18\u{2}",
        "DELAY\u{1}18\u{2}",
        "TIMER_DELAY_SEC\u{1}7000\u{2}",
        "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}payers\u{2}",
    ] {
        let answer = fixture.send(Send { properties, ..Send::new("orders", "x") }).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
    }
    wait_until("all of them wait", async || {
        let table = runtime(&fixture).await.table;
        [
            ("scheduleMessageOffset_18", "0,2"),
            ("delayedWaiting", "2"),
            ("halfMessagesWaiting", "1"),
            ("timersWaiting", "1"),
        ]
        .iter()
        .all(|(key, value)| table[*key] == *value)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runtime_information_has_what_the_tools_read() {
    let fixture = Fixture::start().await;
    fixture.put("orders", 0, "x").await;
    fixture.wait_for_end("orders", 0, 1).await;
    fixture.pull(Pull::new("orders", 0)).await;
    let table = runtime(&fixture).await.table;
    for key in ["putTps", "getTransferedTps", "getTransferredTps", "getFoundTps", "getMissTps", "getTotalTps"]
    {
        assert_eq!(table[key].split(' ').filter(|rate| rate.parse::<f64>().is_ok()).count(), 3, "{key}");
    }
    for key in [
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize",
        "pageCacheLockTimeMills",
        "msgPutTotalTodayMorning",
        "msgPutTotalYesterdayMorning",
        "msgGetTotalTodayMorning",
        "msgGetTotalYesterdayMorning",
        "commitLogMinOffset",
    ] {
        assert!(table[key].parse::<i64>().is_ok(), "{key}");
    }
    for key in APACHE_KEYS {
        assert!(table.contains_key(*key), "{key}");
    }
    for (key, value) in [
        ("scheduleMessageOffset_1", "0,0"),
        ("scheduleMessageOffset_18", "0,0"),
        ("delayedWaiting", "0"),
        ("halfMessagesWaiting", "0"),
        ("timersWaiting", "0"),
        ("rocketpyVersion", env!("CARGO_PKG_VERSION")),
    ] {
        assert_eq!(table[key], value, "{key}");
    }
    let spans = table["putMessageDistributeTime"].split(' ').filter_map(|span| span.split_once(':'));
    assert_eq!(spans.map(|(_, count)| count.parse::<u64>().unwrap()).sum::<u64>(), 1, "one send");
    assert!(table["putLatency99"].parse::<f64>().is_ok());
    assert_eq!(table["brokerActive"], "true");
    assert_eq!(table["msgPutTotalTodayNow"], "1");
    assert_eq!(table["msgGetTotalTodayNow"], "1");
    assert!(table["earliestMessageTimeStamp"].parse::<i64>().unwrap() > 1_700_000_000_000);
    assert!(table["commitLogMaxOffset"].parse::<u64>().unwrap() > 90);
    assert!((0.0..=1.0).contains(&table["commitLogDiskRatio"].parse::<f64>().unwrap()));
    assert!(table["runtime"].starts_with("[ 0 days"));
}

/// Two keys, one of which may change.
#[derive(Debug)]
struct TwoKeys;

impl ConfigText for TwoKeys {
    fn lines(&self, config: &BrokerConfig, endpoint: &Endpoint<'_>) -> Vec<(&'static str, String)> {
        let Endpoint { listen_ip, port, advertised_host, broker_id } = endpoint;
        vec![
            ("brokerId", broker_id.to_string()),
            ("listenPort", port.to_string()),
            ("brokerIP1", format!("{advertised_host} {listen_ip}")),
            ("maxMessageSize", config.max_message_size.to_string()),
        ]
    }

    fn changed(&self, config: &BrokerConfig, change: &ConfigChange) -> Result<BrokerConfig, SettingError> {
        let Some(value) = change.text.strip_prefix("maxMessageSize=") else {
            return Err(SettingError::Fixed(change.text.clone()));
        };
        let max_message_size = value.parse().map_err(|_| SettingError::Value(value.to_owned()))?;
        Ok(BrokerConfig { max_message_size, ..config.clone() })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_told_and_changed_by_its_reader() {
    let fixture = Fixture::start_with(|config| {
        (config.text, config.max_message_size) = (Arc::new(TwoKeys), 9);
    })
    .await;
    let answer = fixture.call(Command::bare_request(request::GET_BROKER_CONFIG)).await;
    assert_eq!(answer.code, 0);
    assert!(answer.ext.get("version").unwrap().contains("counter"));
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let port = fixture.broker.local_addr().port();
    let expected =
        format!("brokerId=0\nlistenPort={port}\nbrokerIP1=127.0.0.1 127.0.0.1\nmaxMessageSize=9\n");
    assert_eq!(text, expected);

    let update = |text: &'static [u8]| {
        fixture.call(Command::bare_request(request::UPDATE_BROKER_CONFIG).with_body(text))
    };
    for (text, code) in [(b"listenPort=1".as_slice(), 16), (b"maxMessageSize=x", 29), (b"\xff", 29)] {
        assert_eq!(update(text).await.code, code, "{text:?}");
    }
    assert_eq!(fixture.send(Send::new("orders", "ten bytes!")).await.code, 13);
    assert_eq!(update(b"maxMessageSize=10").await.code, 0);
    assert_eq!(fixture.send(Send::new("orders", "ten bytes!")).await.code, 0);
}
