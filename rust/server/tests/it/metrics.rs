//! Metrics and health over HTTP, as a scraper and an orchestrator read them; and the pages that name the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use rocketpy_broker::{Declared, Kind, metrics_table};
use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    ConsumerSendMsgBackRequestHeader, EndTransactionRequestHeader, Header, SendMessageResponseHeader,
};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_server::config::ExporterType;
use rocketpy_server::{Process, Role, ServerConfig};
use tonic::codec::CompressionEncoding;

use crate::support::{Caller, TIMEOUT, config, pull_as, send_with, wait_until};

/// A server with metrics, on a free port.
pub(crate) fn start(store: &Path, change: impl FnOnce(&mut ServerConfig)) -> Process {
    let mut config = config(store);
    config.exporter.kind = ExporterType::Prometheus;
    config.exporter.port = 0;
    change(&mut config);
    Process::start(Role::Standalone, config).unwrap()
}

pub(crate) fn address(server: &Process) -> String {
    server.addresses().metrics.clone().expect("metrics are served")
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Status and body of a GET.
fn get(address: &str, path: &str) -> (u16, String) {
    get_with(address, path, "")
}

fn get_with(address: &str, path: &str, headers: &str) -> (u16, String) {
    let mut stream = connect(address);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: metrics\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// A series: its labels and value.
pub(crate) type Series = (BTreeMap<String, String>, f64);

/// Series by name.
pub(crate) fn scrape(address: &str) -> BTreeMap<String, Vec<Series>> {
    let (status, text) = get(address, "/metrics");
    assert_eq!(status, 200, "{text}");
    let mut all: BTreeMap<String, Vec<Series>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels =
            labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty()).map(|label| {
                let (name, value) = label.split_once("=\"").unwrap();
                (name.to_owned(), value.trim_end_matches('"').to_owned())
            });
        all.entry(name.to_owned()).or_default().push((labels.collect(), value.parse().unwrap()));
    }
    all
}

/// Sum of the series that have these labels.
fn value(all: &BTreeMap<String, Vec<Series>>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |found: &BTreeMap<String, String>| {
        labels.iter().all(|(name, value)| found.get(*name).is_some_and(|found| found == value))
    };
    let series = all.get(name).unwrap_or_else(|| panic!("no {name}"));
    series.iter().filter(|(found, _)| has(found)).map(|(_, value)| value).sum()
}

fn kind_of(declared: &Declared) -> &'static str {
    match declared.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    }
}

const TABLE: &str = "<!-- table -->\n";

#[test]
fn page_of_metrics_lists_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let found = String::from_utf8(RealDisk.read(&path, 1 << 20).unwrap()).unwrap();
    let (head, _) = found.split_once(TABLE).expect("a table");
    let mut page = format!("{head}{TABLE}\n| metric | kind | labels | value |\n|---|---|---|---|\n");
    for metric in metrics_table() {
        let labels = if metric.labels.is_empty() { "—".to_owned() } else { metric.labels.join(", ") };
        let _ = writeln!(page, "| `{}` | {} | {labels} | {} |", metric.name, kind_of(&metric), metric.help);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        RealDisk.replace(&path, page.as_bytes()).unwrap();
    }
    let found = String::from_utf8(RealDisk.read(&path, 1 << 20).unwrap()).unwrap();
    assert!(
        found == page,
        "write docs/metrics.md with\nUPDATE_DOCS=1 cargo test -p rocketpy-server --test it metrics"
    );
}

#[test]
fn metrics_of_apache_have_its_names_kinds_and_labels() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join("metrics.md");
    let page = String::from_utf8(RealDisk.read(&path, 1 << 20).unwrap()).unwrap();
    let mut facts = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| `rocketmq_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        facts.insert((cells[1].trim_matches('`').to_owned(), cells[2].to_owned(), cells[3].to_owned()));
    }
    assert_eq!(facts.len(), 37, "the page has all instruments");
    let of_apache = |metric: &Declared| metric.name.starts_with("rocketmq_");
    let ours: BTreeSet<_> = metrics_table()
        .filter(of_apache)
        .map(|metric| {
            let labels = if metric.labels.is_empty() { "—".to_owned() } else { metric.labels.join(", ") };
            (metric.name.to_owned(), kind_of(&metric).to_owned(), labels)
        })
        .collect();
    assert_eq!(ours, facts);
}

/// Sends messages of every kind, reads some and gives one back.
fn traffic(caller: &Caller, broker: &str) {
    caller.create_topic(broker, "orders");
    for properties in [
        "",
        "__SHARDINGKEY\u{1}a\u{2}",
        "DELAY\u{1}1\u{2}",
        "TIMER_DELAY_SEC\u{1}7000\u{2}",
        "TIMER_DELAY_MS\u{1}1\u{2}",
    ] {
        let answer = caller.call(broker, send_with("orders", "hello", Some(properties)));
        assert_eq!(answer.code, 0, "{answer:?}");
    }
    transactions(caller, broker);
    group(caller, broker);
}

/// A commit, a rollback, and a half message that stays open.
fn transactions(caller: &Caller, broker: &str) {
    for (commit_or_rollback, half) in [(8, 0), (12, 1), (0, 2)] {
        let properties = "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}payers\u{2}";
        let answer = caller.call(broker, send_with("orders", "half", Some(properties)));
        let stored = SendMessageResponseHeader::read(&answer.ext).unwrap();
        let id: OffsetMessageId = stored.msg_id.parse().unwrap();
        if commit_or_rollback != 0 {
            let header = EndTransactionRequestHeader {
                topic: Some("orders"),
                producer_group: "payers",
                tran_state_table_offset: half,
                commit_log_offset: id.physical_offset.to_wire(),
                commit_or_rollback,
                from_transaction_check: None,
                msg_id: "",
                transaction_id: None,
                broker_name: None,
            };
            let answer = caller.call(broker, Command::request(request::END_TRANSACTION, &header));
            assert_eq!(answer.code, 0, "{answer:?}");
        }
    }
    assert_eq!(caller.call(broker, send_with("no|such/topic", "x", None)).code, 29);
}

/// A group with a member that reads and gives a message back, and one without members.
fn group(caller: &Caller, broker: &str) {
    let group = Command::bare_request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        .with_body(br#"{"groupName":"workers"}"#.to_vec());
    assert_eq!(caller.call(broker, group).code, 0);
    let heartbeat = r#"{"clientID":"c","producerDataSet":[{"groupName":"payers"}],"consumerDataSet":[{"groupName":"workers",
        "consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet":[{"topic":"orders","subString":"*","subVersion":1}]}]}"#;
    let answer = caller
        .call(broker, Command::bare_request(request::HEART_BEAT).with_body(heartbeat.as_bytes().to_vec()));
    assert_eq!(answer.code, 0, "{answer:?}");
    wait_until("messages are given out", || {
        caller.call(broker, pull_as("workers", "orders", 0, 0)).code == 0
    });
    caller.commit(broker, "workers", "orders", 1);
    caller.call(broker, pull_as("gone", "orders", 0, 0)); // which makes the group
    caller.commit(broker, "gone", "orders", 1);
    let header = ConsumerSendMsgBackRequestHeader {
        offset: 0,
        group: "workers",
        delay_level: -1,
        origin_msg_id: None,
        origin_topic: Some("orders"),
        unit_mode: None,
        max_reconsume_times: None,
        broker_name: None,
    };
    let answer = caller.call(broker, Command::request(request::CONSUMER_SEND_MSG_BACK, &header));
    assert_eq!(answer.code, 0, "{answer:?}");
}

/// A metric has its series, each with its labels and those of all.
fn check_labels(all: &BTreeMap<String, Vec<Series>>, metric: &Declared) {
    let names = match metric.kind {
        Kind::Histogram(_) => {
            ["_bucket", "_sum", "_count"].map(|part| format!("{}{part}", metric.name)).to_vec()
        }
        Kind::Counter | Kind::Gauge => vec![metric.name.to_owned()],
    };
    for name in names {
        let series = all.get(&name).unwrap_or_else(|| panic!("no {name}"));
        let mut expected: BTreeSet<&str> = metric.labels.iter().copied().collect();
        expected.extend(["node_type", "cluster", "node_id", "otel_scope_name", "region"]);
        if metric.group == Some(rocketpy_broker::Group::MessageStore) {
            expected.extend(["storage_type", "storage_medium"]);
        }
        if name.ends_with("_bucket") {
            expected.insert("le");
        }
        for (labels, _) in series {
            assert_eq!(labels.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected, "{name}");
        }
    }
}

/// Values after [`traffic`].
fn check_values(all: &BTreeMap<String, Vec<Series>>) {
    let of_type =
        |kind| value(all, "rocketmq_messages_in_total", &[("topic", "orders"), ("message_type", kind)]);
    assert_eq!(["normal", "fifo", "delay", "transaction"].map(of_type), [1.0, 1.0, 3.0, 3.0]);
    let group = |name, group| value(all, name, &[("consumer_group", group), ("topic", "orders")]);
    for name in ["workers", "gone"] {
        assert!(group("rocketmq_consumer_lag_messages", name) >= 1.0, "{name}");
    }
    assert_eq!(value(all, "rocketpy_broker_consumer_group_members", &[("consumer_group", "workers")]), 1.0);
    assert_eq!(value(all, "rocketpy_broker_consumer_group_members", &[("consumer_group", "gone")]), 0.0);
    assert_eq!(group("rocketmq_send_to_dlq_messages_total", "workers"), 1.0);
    assert_eq!(value(all, "rocketmq_commit_messages_total", &[("topic", "orders")]), 1.0);
    assert_eq!(value(all, "rocketmq_rollback_messages_total", &[("topic", "orders")]), 1.0);
    assert_eq!(value(all, "rocketmq_half_messages", &[("topic", "orders")]), 1.0);
    assert_eq!(value(all, "rocketmq_timing_messages", &[("topic", "orders")]), 1.0);
    assert_eq!(value(all, "rocketmq_timer_message_snapshot", &[("timer_bound_s", "14400")]), 1.0);
    let sends = [("request_code", "send_message_v2"), ("response_code", "success"), ("result", "success")];
    assert_eq!(value(all, "rocketmq_rpc_latency_milliseconds_count", &sends), 8.0);
    assert_eq!(
        value(all, "rocketpy_broker_rejected_requests_total", &[("reason", "invalid_parameter")]),
        1.0
    );
}

#[test]
fn every_metric_is_scraped_with_its_labels() {
    let folder = tempfile::tempdir().unwrap();
    let with_labels_and_a_certificate = |config: &mut ServerConfig| {
        config.broker.metrics.labels = vec![("region".to_owned(), "north".to_owned())];
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tls");
        config.tls.server.cert = Some(files.join("server.pem"));
        config.tls.server.key = Some(files.join("server.key"));
    };
    let server = start(folder.path(), with_labels_and_a_certificate);
    let (caller, broker) = (Caller::new(), server.addresses().broker.clone().unwrap());
    traffic(&caller, &broker);
    let metrics = address(&server);
    // Those that only a cluster or a failure has.
    let absent = [
        "rocketpy_broker_replica_lag_bytes",
        "rocketpy_broker_metrics_cut_series",
        "rocketpy_broker_consumer_retry_lag_messages",
    ];
    let mut all = BTreeMap::new();
    wait_until("timers and flushes have come", || {
        all = scrape(&metrics);
        all.contains_key("rocketmq_timer_dequeue_total")
            && all.contains_key("rocketpy_broker_flush_latency_milliseconds_count")
    });
    for metric in metrics_table().filter(|metric| !absent.contains(&metric.name)) {
        check_labels(&all, &metric);
    }
    assert_eq!(all.get("target_info").map(Vec::len), Some(1));
    check_values(&all);
    let open_metrics = "Accept: application/openmetrics-text\r\n";
    assert!(get_with(&metrics, "/", open_metrics).1.ends_with("# EOF\n"));
}

#[test]
fn series_beyond_the_limit_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), |config| config.broker.metrics.series_limit = 2);
    let (caller, broker) = (Caller::new(), server.addresses().broker.clone().unwrap());
    for topic in ["a", "b", "c", "d"] {
        caller.send(&broker, topic, "x");
    }
    let all = scrape(&address(&server));
    assert_eq!(all["rocketmq_messages_in_total"].len(), 2);
    let cut = [("metric", "rocketmq_messages_in_total")];
    assert_eq!(value(&all, "rocketpy_broker_metrics_cut_series", &cut), 2.0);
    let items = [("metric", "QUEUE_PUT_NUMS")];
    assert_eq!(value(&all, "rocketpy_broker_metrics_cut_series", &items), 2.0);
}

#[test]
fn metrics_that_are_turned_off_are_absent() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), |config| {
        config.set("enableLagAndDlqMetrics", "false").unwrap();
        config.set("enableRemotingMetrics", "false").unwrap();
        config.set("enableStatsMetrics", "false").unwrap();
    });
    let (caller, broker) = (Caller::new(), server.addresses().broker.clone().unwrap());
    caller.send(&broker, "orders", "x");
    caller.call(&broker, pull_as("g", "orders", 0, 0)); // which makes the group
    caller.commit(&broker, "g", "orders", 0);
    let all = scrape(&address(&server));
    for prefix in ["rocketmq_consumer_lag", "rocketmq_rpc", "rocketmq_topic_number"] {
        assert!(!all.keys().any(|name| name.starts_with(prefix)), "{prefix}");
    }
    assert!(all.contains_key("rocketmq_messages_in_total"));
}

#[test]
fn readiness_names_the_failing_check() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), |_| {});
    let (caller, broker) = (Caller::new(), server.addresses().broker.clone().unwrap());
    let metrics = address(&server);
    wait_until("the broker is registered", || get(&metrics, "/readyz") == (200, "ready\n".to_owned()));
    assert_eq!(get(&metrics, "/livez"), (200, "alive\n".to_owned()));
    let set = |text: &str| {
        let update = Command::bare_request(request::UPDATE_BROKER_CONFIG).with_body(text.as_bytes().to_vec());
        assert_eq!(caller.call(&broker, update).code, 0);
    };
    set("brokerPermission=4");
    let (status, body) = get(&metrics, "/readyz");
    assert!(status == 503 && body.starts_with("draining: ") && body.lines().count() == 1, "{status} {body}");
    assert_eq!(value(&scrape(&metrics), "rocketpy_broker_ready", &[]), 0.0);
    set("brokerPermission=6");
    assert_eq!(get(&metrics, "/readyz").0, 200);
    server.stop(TIMEOUT).unwrap();
    let (status, body) = get(&metrics, "/readyz");
    assert!(status == 503 && body.starts_with("store: "), "{status} {body}");
    assert_eq!(get(&metrics, "/metrics").0, 503);
    drop(server);
    assert!(TcpStream::connect(&metrics).is_err(), "the port is free again");
}

#[test]
fn broker_without_a_name_server_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.set("metricsExporterType", "PROM").unwrap();
    config.set("metricsPromExporterPort", "0").unwrap();
    config.broker.name_servers = vec!["127.0.0.1:1".to_owned()];
    let server = Process::start(Role::Broker, config).unwrap();
    let (status, body) = get(&address(&server), "/readyz");
    assert!(status == 503 && body.starts_with("name servers: "), "{status} {body}");
    assert_eq!(get(&address(&server), "/livez").0, 200);
}

#[test]
fn hostile_requests_are_answered_or_cut_off_and_hold_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), |_| {});
    let metrics = address(&server);
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".to_owned(), "405"),
        ("GET /etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "404"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(20_000)), "431"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(100)), "431"),
        ("\0\u{1}\u{2} nonsense\r\n\r\n".to_owned(), "400"),
    ] {
        let mut stream = connect(&metrics);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(std::str::from_utf8(&answer[9..]).unwrap(), status);
    }
    // As many as are served at a time, each with a head that never ends.
    let mut slow: Vec<TcpStream> = (0..40).map(|_| connect(&metrics)).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
    }
    assert_eq!(get(&metrics, "/livez").0, 200, "they lose their places");
    assert_eq!(slow[0].read(&mut [0; 1]).unwrap(), 0, "the connection is closed");
}

/// Keeps what a broker sends.
struct Collector(std::sync::mpsc::Sender<(Option<String>, ExportMetricsServiceRequest)>);

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, tonic::Status> {
        let key = request.metadata().get("api-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
        self.0
            .send((key, request.into_inner()))
            .map_err(|_| tonic::Status::unavailable("the test is over"))?;
        Ok(tonic::Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[test]
fn metrics_are_sent_to_a_collector() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (sender, received) = std::sync::mpsc::channel();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    let service = MetricsServiceServer::new(Collector(sender)).accept_compressed(CompressionEncoding::Gzip);
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    runtime.spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    let mut config = config(folder.path());
    for (key, value) in [
        ("metricsExporterType", "OTLP_GRPC"),
        ("metricsGrpcExporterTarget", &target),
        ("metricsGrpcExporterHeader", "api-key:secret"),
        ("metricGrpcExporterIntervalInMills", "100"),
        ("metricsExportBatchMaxDataPoints", "20"),
    ] {
        config.set(key, value).unwrap();
    }
    let server = Process::start(Role::Standalone, config).unwrap();
    let caller = Caller::new();
    caller.send(server.addresses().broker.as_ref().unwrap(), "orders", "x");
    let (mut points, mut sizes) = (0, BTreeSet::new());
    while points == 0 {
        let (key, request) = received.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(key.as_deref(), Some("secret"));
        let scope = &request.resource_metrics[0].scope_metrics[0];
        assert_eq!(scope.scope.as_ref().unwrap().name, "broker-meter");
        let mut size = 0;
        for metric in &scope.metrics {
            let found = match metric.data.as_ref().unwrap() {
                Data::Sum(sum) => sum.data_points.len(),
                Data::Gauge(gauge) => gauge.data_points.len(),
                Data::Histogram(histogram) => histogram.data_points.len(),
                other => panic!("{other:?}"),
            };
            size += found;
            if metric.name == "rocketmq_messages_in_total" {
                points += found;
            }
        }
        sizes.insert(size);
    }
    assert_eq!(sizes.last(), Some(&20), "messages are divided");
}

#[test]
fn exporter_without_a_collector_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.set("metricsExporterType", "OTLP_GRPC").unwrap();
    let error = Process::start(Role::Standalone, config).unwrap_err();
    assert!(error.to_string().contains("metricsGrpcExporterTarget"), "{error}");
}
