//! Metrics of many groups in one reading, and metrics in the log.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;

use crate::binary::server;
use crate::metrics::{address, scrape, start};
use crate::support::{Caller, wait_until};

const GROUPS: usize = 2000;

#[test]
fn reading_of_many_groups_has_every_series_and_blocks_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let process = start(folder.path(), |_| {});
    let (caller, broker) = (Caller::new(), process.addresses().broker.clone().unwrap());
    caller.create_topic(&broker, "orders");
    caller.send(&broker, "orders", "x");
    let groups: Vec<String> = (0..GROUPS).map(|group| format!("group-{group}")).collect();
    for group in &groups {
        let body = format!(r#"{{"groupName":"{group}"}}"#).into_bytes();
        let group = Command::bare_request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(body);
        assert_eq!(caller.call(&broker, group).code, 0);
    }
    groups.iter().for_each(|group| caller.commit(&broker, group, "orders", 0));
    let (metrics, is_over) = (address(&process), AtomicBool::new(false));
    let mut readings = 0;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut readings = 0;
                    while readings == 0 || !is_over.load(Ordering::Acquire) {
                        let all = scrape(&metrics);
                        for name in
                            ["rocketmq_consumer_lag_messages", "rocketpy_broker_consumer_group_members"]
                        {
                            let found: BTreeSet<_> =
                                all[name].iter().map(|(labels, _)| &labels["consumer_group"]).collect();
                            assert!(
                                groups.iter().all(|group| found.contains(group)),
                                "{name}: {}",
                                found.len()
                            );
                        }
                        readings += 1;
                    }
                    readings
                })
            })
            .collect();
        // Each request is answered while one reading follows another.
        for _ in 0..200 {
            assert_eq!(caller.send(&broker, "orders", "x").code, 0);
        }
        is_over.store(true, Ordering::Release);
        readings = readers.into_iter().map(|reader| reader.join().unwrap()).sum::<usize>();
    });
    assert!(readings >= 3, "{readings}");
}

/// The metrics of a line of the log, as JSON.
fn metrics_of(line: &str) -> Option<serde_json::Value> {
    let (_, metrics) = line.split_once("metrics=")?;
    let text: String = serde_json::Deserializer::from_str(metrics).into_iter().next()?.unwrap();
    Some(serde_json::from_str(&text).unwrap())
}

/// The metric of this name, in metrics as OTLP JSON.
fn metric<'a>(metrics: &'a serde_json::Value, name: &str) -> Option<&'a serde_json::Value> {
    let scope = &metrics["resourceMetrics"][0]["scopeMetrics"][0];
    assert_eq!(scope["scope"]["name"], "broker-meter");
    scope["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == name)
}

#[test]
fn exporter_log_writes_metrics_as_otlp_json() {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let mut command = server(&folder.path().join("store"));
    command.arg("--ready-file").arg(&ready).stderr(Stdio::piped());
    command.args(["--set", "metricsExporterType=LOG", "--set", "metricLoggingExporterIntervalInMills=100"]);
    let mut child = command.spawn().unwrap();
    wait_until("the server is ready", || RealDisk.read(&ready, 1000).is_ok());
    let ready: serde_json::Value = serde_json::from_slice(&RealDisk.read(&ready, 1000).unwrap()).unwrap();
    Caller::new().send(ready["broker"].as_str().unwrap(), "orders", "x");
    let log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let sent =
        log.filter_map(|line| metric(&metrics_of(&line)?, "rocketmq_messages_in_total").cloned()).next();
    child.kill().unwrap();
    child.wait().unwrap();
    let point = &sent.expect("the metric is in the log")["sum"]["dataPoints"][0];
    let labels = point["attributes"].as_array().unwrap();
    let topic = labels.iter().find(|label| label["key"] == "topic").unwrap();
    assert_eq!(topic["value"]["stringValue"], "orders");
}
