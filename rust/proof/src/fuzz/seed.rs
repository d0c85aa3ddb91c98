//! Seeds of the targets: the vectors of tests/golden, and one of each body.

use rocketpy_protocol::batch::BatchItem;

use super::Seed;

/// The bytes of a vector file: lines of hex, comments behind `#`.
fn bytes_of(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digits: Vec<u8> = lines.flat_map(|line| line.bytes().filter(u8::is_ascii_hexdigit)).collect();
    let byte = |pair: &[u8]| str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    digits.chunks(2).filter_map(byte).collect()
}

macro_rules! vectors {
    ($($name:literal),* $(,)?) => {
        vec![$((
            $name.to_owned(),
            bytes_of(include_str!(concat!("../../../../tests/golden/", $name, ".hex"))),
        )),*]
    };
}

pub(super) fn frames() -> Vec<Seed> {
    vectors![
        "remoting-10.01-json-request",
        "remoting-10.02-binary-request",
        "remoting-10.03-json-response",
        "remoting-10.04-binary-response-fields",
        "remoting-10.04-binary-response-remark",
        "remoting-10.05-send-request",
        "remoting-10.09-pull-response",
    ]
}

pub(super) fn headers() -> Vec<Seed> {
    let all = "consumerGroup=g\ntopic=t\nqueueId=3\nqueueOffset=12\nmaxMsgNums=32\nsysFlag=2\ncommitOffset=-1\n\
               suspendTimeoutMillis=15000\nsubscription=*\nsubVersion=17\nexpressionType=TAG\nbname=b\ncommitted=true\n";
    let send = "producerGroup=p\ntopic=t\ndefaultTopic=TBW102\ndefaultTopicQueueNums=4\nqueueId=0\nsysFlag=0\n\
                bornTimestamp=1700000000000\nflag=0\nproperties=KEYS\u{1}k\u{2}\nreconsumeTimes=0\nbatch=false\n";
    let short = "a=p\nb=t\nc=TBW102\nd=4\ne=0\nf=0\ng=1700000000000\nh=0\ni=KEYS\u{1}k\u{2}\nj=0\nm=true\n";
    let broker = "brokerName=b\nbrokerAddr=h:1\nclusterName=c\nhaServerAddr=h:2\nbrokerId=0\nbodyCrc32=5\ncompressed=true\n";
    let named = [("pull", all), ("send", send), ("send-v2", short), ("register", broker)];
    named.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into()
}

pub(super) fn json() -> Vec<Seed> {
    let named = [
        (
            "route",
            r#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.2:10911","1":"h:1"},"brokerName":"b","cluster":"c1"}],
            "queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}"#,
        ),
        (
            "offsets",
            r#"{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:6}}"#,
        ),
        (
            "stats",
            r#"{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}":{"consumerOffset":"5"}},"consumeTps":0.5}"#,
        ),
        (
            "heartbeat",
            r#"{"clientID":"10.0.0.1@x","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY",
            "messageModel":1,"subscriptionDataSet":[{"topic":"t","subString":"A || B","tagsSet":["A","B"],"codeSet":["65",66],
            "subVersion":"17"}]}]}"#,
        ),
        (
            "register",
            r#"{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1},"topicConfigTable":{"T":{"topicName":"T",
            "perm":6,"attributes":{"+a":"\u0041\ud83d\ude00\n"},"topicFilterType":"MULTI_TAG"}}},"filterServerList":[null,"x"]}"#,
        ),
        (
            "lock",
            r#"{"mqSet":[{"topic":"t","brokerName":"b","queueId":7}],"clientId":"c","nested":[[[[{"a":[1,2.5e3,true,null]}]]]]}"#,
        ),
        ("group-offsets", r#"{"offsetTable":{"T@g":{0:5,"1":6}}}"#),
        (
            "groups",
            r#"{"subscriptionGroupTable":{"g":{"groupName":"g","retryQueueNums":1}},"dataVersion":{"counter":1}}"#,
        ),
        ("tags", "A || B"),
    ];
    let mut seeds: Vec<Seed> = named.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into();
    seeds.extend(vectors![
        "remoting-10.11-register-deflated",
        "remoting-10.11-register-inflated",
        "remoting-10.12-zlib"
    ]);
    seeds
}

pub(super) fn records() -> Vec<Seed> {
    vectors![
        "remoting-10.06-record-v1",
        "remoting-10.07-record-v2-ipv6",
        "remoting-10.08-record-compressed",
        "store-15.5-blank-100",
        "store-15.5-record-r1",
        "store-15.5-record-r2-crc",
        "store-15.5-record-r3-v2",
    ]
}

pub(super) fn batches() -> Vec<Seed> {
    let mut body = Vec::new();
    for text in ["one", "two"] {
        let item = BatchItem { flag: 0, body: text.as_bytes(), properties: b"TAGS\x01a\x02" };
        item.encode(&mut body).expect("a small item");
    }
    let mut seeds = vectors!["remoting-10.10-batch"];
    seeds.push(("two".to_owned(), body));
    seeds
}

pub(super) fn imports() -> Vec<Seed> {
    let batch = batches().pop().map_or_else(Vec::new, |seed| seed.1);
    let record = [b"orders\nTAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02\n".as_slice(), b"hello"].concat();
    let of_batch = [b"orders\n\n".as_slice(), &batch].concat();
    vec![("record".to_owned(), record), ("batch".to_owned(), of_batch)]
}
