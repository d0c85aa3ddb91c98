use std::sync::Arc;

use rocketpy_broker::{BrokerConfig, ConfigChange, ConfigText, Endpoint, SettingError};
use rocketpy_protocol::body::KvTable;
use rocketpy_protocol::code::request;
use rocketpy_protocol::{Command, json};

use crate::support::{Fixture, Pull, Send};

async fn runtime(fixture: &Fixture) -> KvTable {
    let answer = fixture.call(Command::bare_request(request::GET_BROKER_RUNTIME_INFO)).await;
    json::from_slice(&answer.body).unwrap()
}

pub(crate) async fn runtime_value(fixture: &Fixture, key: &str) -> String {
    runtime(fixture).await.table.remove(key).unwrap()
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
