use rocketpy_broker::{Describe, Endpoint};
use rocketpy_protocol::body::KvTable;
use rocketpy_protocol::code::request;
use rocketpy_protocol::{Command, json};

use crate::support::{Fixture, Pull};

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

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_told_as_its_reader_describes_it() {
    let fixture = Fixture::start_with(|config| {
        config.describe = Describe::new(|endpoint| {
            let Endpoint { listen_ip, port, advertised_host, broker_id } = endpoint;
            let id = ("brokerId", broker_id.to_string());
            vec![
                id,
                ("listenPort", port.to_string()),
                ("brokerIP1", format!("{advertised_host} {listen_ip}")),
            ]
        });
    })
    .await;
    let answer = fixture.call(Command::bare_request(request::GET_BROKER_CONFIG)).await;
    assert_eq!(answer.code, 0);
    assert!(answer.ext.get("version").unwrap().contains("counter"));
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let port = fixture.broker.local_addr().port();
    assert_eq!(text, format!("brokerId=0\nlistenPort={port}\nbrokerIP1=127.0.0.1 127.0.0.1\n"));
}
