//! The JSON header is read in two ways, a straight scan and the lenient reader behind it. Both must see what a strict parser sees.

use bytes::Bytes;
use proptest::prelude::*;
use rocketpy_protocol::{Command, Frame, FrameError, Language, SerializeType};
use serde_json::{Map, Value, json};

fn decode(header: &str) -> Result<Command, FrameError> {
    let header = Bytes::copy_from_slice(header.as_bytes());
    Command::decode(Frame { header, body: Bytes::new(), serialize: SerializeType::Json })
}

/// What the header means, by the table of docs/reference/protocol.md 1.3.1, read with serde_json.
fn by_strict_parser(header: &str) -> Command {
    let header: Value = serde_json::from_str(header).unwrap();
    let number = |name: &str| match &header[name] {
        Value::String(text) => text.parse().unwrap(),
        value => value.as_i64().unwrap_or(0) as i32,
    };
    let mut command = Command::bare_request(number("code"));
    command.language = Language::from_name(header["language"].as_str().unwrap_or_default());
    command.version = number("version");
    command.opaque = number("opaque");
    command.flag = number("flag");
    command.remark = header["remark"].as_str().filter(|remark| !remark.is_empty()).map(str::to_owned);
    for (name, value) in header["extFields"].as_object().unwrap_or(&Map::new()) {
        match value {
            Value::Null => {}
            Value::String(text) => command.ext.push(name, text),
            other => command.ext.push(name, &other.to_string()),
        }
    }
    command
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => any::<String>().prop_map(Value::String),
        2 => "[ -~]{0,40}".prop_map(Value::String),
        1 => "[\u{0}-\u{20}\"\\\\/\u{7f}-\u{ff}\u{1f600}]{0,12}".prop_map(Value::String),
        1 => any::<i64>().prop_map(|number| json!(number)),
        1 => any::<bool>().prop_map(|truth| json!(truth)),
        1 => Just(Value::Null),
    ]
}

fn header() -> impl Strategy<Value = Value> {
    let ext = prop::collection::hash_map("[a-zA-Z_]{1,20}|[\"\\\\\u{1}é]{1,3}", value(), 0..20);
    let remark =
        prop_oneof![Just(Value::Null), value().prop_filter("a text or null", |value| value.is_string())];
    let language = prop::sample::select(vec!["JAVA", "GO", "CPP", "RUST", "KLINGON"]);
    (any::<i32>(), any::<i32>(), any::<i16>(), 0..4, language, remark, ext).prop_map(
        |(code, opaque, version, flag, language, remark, ext)| {
            json!({
                "code": code, "opaque": opaque, "version": version, "flag": flag, "language": language,
                "remark": remark, "extFields": ext.into_iter().collect::<Map<_, _>>(),
                "serializeTypeCurrentRPC": "JSON",
            })
        },
    )
}

proptest! {
    #[test]
    fn scan_and_lenient_reader_agree_with_a_strict_parser(header in header()) {
        let compact = serde_json::to_string(&header).unwrap();
        let expected = by_strict_parser(&compact);
        prop_assert_eq!(decode(&compact), Ok(expected.clone()), "compact: {}", compact);
        let spaced = serde_json::to_string_pretty(&header).unwrap();
        prop_assert_eq!(decode(&spaced), Ok(expected.clone()), "spaced: {}", spaced);
        let unknown = compact.replacen('{', "{\"unknown\":[{\"a\":null}],", 1);
        prop_assert_eq!(decode(&unknown), Ok(expected), "with an unknown member: {}", unknown);
    }
}

#[test]
fn tolerated_forms_are_read() {
    let fields = |header: &str| {
        let command = decode(header).unwrap_or_else(|error| panic!("{header}: {error}"));
        command.ext.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        fields(r#"{"code":310,"extFields":{"d":4,"j":"0","m":false,"e":-1}}"#),
        "d=4 j=0 m=false e=-1"
    );
    assert_eq!(fields(r#"{"code":310,"extFields":{"a":null,"b":"x"}}"#), "b=x");
    assert_eq!(fields(r#"{"code":34,"extFields":null}"#), "");
    assert_eq!(fields(r#"{"code":34,"extFields":{}}"#), "");
    assert_eq!(fields(r#"{"code":34}"#), "");
    assert_eq!(fields(r#"{"extFields":{"a":"1","a":"2"}}"#), "a=2");
    assert_eq!(
        fields("{\"code\":105,\"extFields\":{\"a\":\"1\"}}\n"),
        "a=1",
        "the C++ client ends in a new line"
    );

    let command =
        decode(r#"{"code":"105","version":"317","language":"Klingon","remark":"","opaque":7}"#).unwrap();
    assert_eq!(
        (command.code, command.version, command.language, command.opaque),
        (105, 317, Language::Other, 7)
    );
    assert_eq!(command.remark, None);
    assert_eq!(decode(r#"{"remark":null}"#).unwrap().remark, None);
    assert_eq!(decode(r#"{"code":1,"code":2}"#).unwrap().code, 2);
    assert_eq!(
        decode(r#"{"remark":"\ud83d\ude00 \ud83d x\u0000"}"#).unwrap().remark.unwrap(),
        "\u{1f600} \u{fffd} x\0"
    );
}

#[test]
fn what_is_no_header_is_refused() {
    for header in [
        "",
        "{",
        "null",
        "[]",
        "hello",
        "{\"code\":1",
        "{\"code\":1}}",
        "{\"code\":1}x",
        "{\"code\":}",
        "{\"code\":1,}",
        "{\"code\":\"x\"}",
        "{\"code\":4294967296}",
        "{\"extFields\":[]}",
        "{\"extFields\":{\"a\":{}}}",
        "{\"extFields\":{\"a\":\"}}",
        "{\"remark\":\"\\x\"}",
        "{\"remark\":\"\\u12\"}",
    ] {
        assert!(matches!(decode(header), Err(FrameError::Json { .. })), "{header:?}: {:?}", decode(header));
    }
    let broken = Frame {
        header: Bytes::from_static(b"{\"code\":\xff}"),
        body: Bytes::new(),
        serialize: SerializeType::Json,
    };
    assert_eq!(Command::decode(broken), Err(FrameError::Utf8 { at: 8 }));
}
