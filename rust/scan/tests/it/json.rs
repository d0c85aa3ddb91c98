use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, BinaryArray, StringArray, StructArray};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use rocketpy_scan::decode_json;

fn nullable(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

fn of(fields: Vec<Field>, bodies: &[&str]) -> (StructArray, StringArray) {
    let bodies = BinaryArray::from_iter_values(bodies.iter().map(|body| body.as_bytes()));
    decode_json(&bodies, &Fields::from(fields)).unwrap()
}

fn map_of(value: DataType) -> DataType {
    let entries = vec![Field::new("key", DataType::Utf8, false), nullable("value", value)];
    DataType::Map(Arc::new(Field::new_struct("entries", entries, false)), false)
}

/// What is wrong with a value for a column `a` of the type.
fn wrong(data_type: &DataType, value: &str) -> Option<String> {
    let body = format!(r#"{{"a": {value}}}"#);
    let (objects, errors) = of(vec![nullable("a", data_type.clone())], &[&body]);
    assert_eq!(objects.is_null(0), errors.is_valid(0), "either an object or an error: {value}");
    errors.is_valid(0).then(|| errors.value(0).to_owned())
}

#[test]
fn fields_are_taken_by_name_in_any_order_and_others_are_skipped() {
    let fields = vec![nullable("a", DataType::Int32), nullable("b", DataType::Utf8)];
    let bodies = [
        r#"{"a": 1, "b": "x"}"#,
        r#" {"c": [1, {"a": 9}], "b": "gr\u00fcn", "a": -2} "#,
        "{}",
        "null",
        r#"{"\u0061": 3, "b": null}"#,
    ];
    let (objects, errors) = of(fields, &bodies);
    assert_eq!(errors.null_count(), bodies.len());
    let numbers: Vec<_> = objects.column(0).as_primitive::<Int32Type>().iter().collect();
    let texts: Vec<_> = objects.column(1).as_string::<i32>().iter().collect();
    assert_eq!(numbers, [Some(1), Some(-2), None, None, Some(3)]);
    assert_eq!(texts, [Some("x"), Some("grün"), None, None, None]);
    assert_eq!(
        objects.nulls().map(|nulls| nulls.iter().collect()),
        Some(vec![true, true, true, false, true])
    );
}

#[test]
fn a_body_that_fails_half_way_leaves_its_neighbours_alone() {
    let item =
        Field::new_struct("item", vec![nullable("n", DataType::Int64), nullable("t", DataType::Utf8)], true);
    let fields = vec![
        nullable("first", DataType::Utf8),
        Field::new_list("items", item, true),
        Field::new_struct(
            "inner",
            vec![nullable("x", DataType::Float64), nullable("y", DataType::Boolean)],
            true,
        ),
    ];
    let good = |n: i64| {
        format!(
            r#"{{"first": "{n}", "items": [{{"n": {n}, "t": "t{n}"}}, null, {{}}], "inner": {{"x": {n}.5, "y": true}}}}"#
        )
    };
    let bad = [
        r#"{"first": "no", "items": [{"n": 1, "t": "a"}, {"n": 2, "t": 3}]}"#,
        r#"{"first": "no", "inner": {"x": 1, "y": 0}, "items": []}"#,
        r#"{"first": "no", "items": [{"n": 1"#,
        r#"{"inner": {"x": 1}} x"#,
        "",
    ];
    let expected: Vec<String> = (0..10).map(good).collect();
    let (alone, errors) = of(fields.clone(), &expected.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(errors.null_count(), 10);
    let mixed: Vec<&str> = (0..10).flat_map(|row| [bad[row % 5], expected[row].as_str()]).collect();
    let (objects, errors) = of(fields, &mixed);
    for row in 0..10 {
        assert!(objects.is_null(2 * row) && errors.is_valid(2 * row), "{}", mixed[2 * row]);
        assert_eq!(objects.slice(2 * row + 1, 1), alone.slice(row, 1));
    }
    assert_eq!(errors.value(0), "items.t: expected string, found a number");
    assert_eq!(errors.value(2), "inner.y: expected boolean, found a number");
    assert_eq!(errors.value(4), "items: not JSON: EOF while parsing an object, at byte 33");
    assert_eq!(errors.value(6), "not JSON: trailing characters, at byte 20");
    assert_eq!(errors.value(8), "not JSON: EOF while parsing a value, at byte 0");
}

#[test]
fn a_value_of_another_kind_or_out_of_range_is_named() {
    let decimal = DataType::Decimal128(5, 2);
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let time_ntz = DataType::Timestamp(TimeUnit::Microsecond, None);
    let list = DataType::new_list(DataType::Int32, true);
    let item =
        DataType::Struct(vec![nullable("n", DataType::Int16), nullable("raw", DataType::Binary)].into());
    for (data_type, value, reason) in [
        (DataType::Int8, "128", "not of type tinyint: 128"),
        (DataType::Int32, "-2147483649", "not of type int: -2147483649"),
        (DataType::Int64, "9223372036854775808", "not of type bigint: 9223372036854775808"),
        (DataType::Int32, "1.0", "not of type int: 1.0"),
        (DataType::Int32, "1e2", "not of type int: 1e2"),
        (DataType::Int32, r#""1""#, "expected int, found a text"),
        (DataType::Int32, "true", "expected int, found a boolean"),
        (DataType::Int32, "NaN", "not of type int: NaN"),
        (DataType::Float64, "1e309", "not of type double: 1e309"),
        (DataType::Float64, r#""1""#, "expected double, found a text"),
        (DataType::Boolean, "1", "expected boolean, found a number"),
        (DataType::Utf8, "[]", "expected string, found a list"),
        (DataType::Utf8, r#"{"b": 1}"#, "expected string, found an object"),
        (decimal.clone(), "1.255", "not of type decimal(5,2): 1.255"),
        (decimal, r#""x""#, "not of type decimal(5,2): x"),
        (DataType::Date32, r#""2024-02-30""#, "not of type date: 2024-02-30"),
        (time.clone(), "1", "expected timestamp, found a number"),
        (list.clone(), "{}", "expected array<int>, found an object"),
        (list, "[1, 2.5]", "not of type int: 2.5"),
        (DataType::Null, "1", "expected void, found a number"),
        (DataType::Date32, r#""0000-12-31""#, "not of type date: 0000-12-31"),
        (DataType::Date32, "2932897", "not of type date: 2932897"),
        (time, r#""10000-01-01""#, "not of type timestamp: 10000-01-01"),
        (map_of(time_ntz), "[]", "expected map<string,timestamp_ntz>, found a list"),
        (item, "1", "expected struct<n:smallint,raw:binary>, found a number"),
    ] {
        assert_eq!(wrong(&data_type, value), Some(format!("a: {reason}")), "{value}");
        assert_eq!(wrong(&data_type, "null"), None);
    }
    let long = wrong(&DataType::Date32, &format!(r#""{}""#, "é".repeat(500))).unwrap();
    assert_eq!(long, format!("a: not of type date: {}...", "é".repeat(80)));
}

#[test]
fn an_object_is_a_map_too() {
    let item = DataType::Struct(vec![nullable("n", DataType::Int32)].into());
    let fields = vec![nullable("m", map_of(item.clone())), nullable("t", DataType::Utf8)];
    let bodies = [
        r#"{"m": {"b": {"n": 1}, "gr\u00fcn": null, "": {}}, "t": "x"}"#,
        r#"{"m": {"a": {"n": 1}, "b": {"n": "no"}}}"#,
        r#"{"m": {"a": {"n": 1}, "a": {"n": 1}}}"#,
        r#"{"m": {"a": {"n": 1}, "b"#,
        r#"{"m": {}, "t": null}"#,
        r#"{"m": {"z": {"n": 26}}, "t": 1}"#,
        r#"{"m": {"c": {"n": 3}}}"#,
        "{}",
    ];
    let (objects, errors) = of(fields, &bodies);
    let reasons: Vec<_> = errors.iter().flatten().collect();
    assert_eq!(reasons[..2], ["m.b.n: expected int, found a text", "m.a: there twice"]);
    assert!(reasons[2].starts_with("m: not JSON: EOF"), "{reasons:?}");
    assert_eq!(reasons[3..], ["t: expected string, found a number"]);
    let maps = objects.column(0).as_map();
    let sizes: Vec<_> = maps.iter().map(|map| map.map(|entries| entries.len())).collect();
    assert_eq!(sizes, [Some(3), None, None, None, Some(0), None, Some(1), None]);
    let keys: Vec<_> = maps.keys().as_string::<i32>().iter().flatten().collect();
    assert_eq!(keys, ["b", "grün", "", "c"]);
    let values = maps.values().as_struct();
    assert_eq!((values.is_null(1), values.is_valid(2)), (true, true));
    let numbers: Vec<_> = values.column(0).as_primitive::<Int32Type>().iter().collect();
    assert_eq!(numbers, [Some(1), None, None, Some(3)]);

    let long = format!(r#"{{"{}": 1}}"#, "k".repeat(500));
    let reason = format!("a.{}...: expected struct<n:int>, found a number", "k".repeat(80));
    assert_eq!(wrong(&map_of(item), &long), Some(reason));
}

#[test]
fn numbers_and_times_come_exactly() {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let fields = vec![
        nullable("i", DataType::Int64),
        nullable("d", DataType::Decimal128(38, 10)),
        nullable("f", DataType::Float32),
        nullable("day", DataType::Date32),
        nullable("at", time.clone()),
        nullable("raw", DataType::Binary),
    ];
    let body = r#"{"i": -9223372036854775808, "d": 1234567890123456789012345678.0123456789, "f": 16777217,
                   "day": "1970-01-02", "at": "1970-01-01T01:00:00.000001+01:00", "raw": "\u00ff"}"#;
    let (objects, errors) = of(fields, &[body]);
    assert_eq!(errors.null_count(), 1, "{errors:?}");
    assert_eq!(objects.column(0).as_primitive::<Int64Type>().value(0), i64::MIN);
    let decimals = objects.column(1).as_primitive::<Decimal128Type>();
    assert_eq!(decimals.value_as_string(0), "1234567890123456789012345678.0123456789");
    assert_eq!(objects.column(2).as_primitive::<arrow_array::types::Float32Type>().value(0), 16_777_216.0);
    assert_eq!(objects.column(3).as_primitive::<Date32Type>().value(0), 1);
    assert_eq!(objects.column(4).as_primitive::<TimestampMicrosecondType>().value(0), 1);
    assert_eq!(objects.column(4).data_type(), &time);
    assert_eq!(objects.column(5).as_binary::<i32>().value(0), "ÿ".as_bytes());
}

#[test]
fn a_name_twice_is_an_error_of_a_field_and_nothing_elsewhere() {
    assert_eq!(wrong(&DataType::Int32, r#"1, "a": 2"#), Some("a: there twice".to_owned()));
    assert_eq!(wrong(&DataType::Int32, r#"null, "a": 2"#), Some("a: there twice".to_owned()));
    assert_eq!(wrong(&DataType::Int32, r#"1, "b": 2, "b": "x""#), None);
}

#[test]
fn a_required_field_must_be_there_and_not_null() {
    let inner = Field::new_struct("s", vec![Field::new("r", DataType::Int32, false)], true);
    let fields = vec![inner, Field::new("r", DataType::Int32, false)];
    let bodies =
        [r#"{"r": 1}"#, r#"{"s": {}, "r": 1}"#, "{}", r#"{"r": null}"#, r#"{"r": 2, "s": {"r": 3}}"#, "null"];
    let (objects, errors) = of(fields, &bodies);
    let errors: Vec<_> = errors.iter().collect();
    let required = |name| format!("{name}: required, but null or missing");
    assert_eq!(
        errors,
        [None, Some(&*required("s.r")), Some(&*required("r")), Some(&*required("r")), None, None]
    );
    assert_eq!(objects.null_count(), 4);
}

#[test]
fn text_that_is_taken_must_be_utf8_and_what_is_skipped_need_not_be() {
    let bodies = BinaryArray::from_iter([
        Some(&b"{\"a\": \"\xff\"}"[..]),
        Some(b"{\"b\": \"\xff\", \"a\": \"x\"}"),
        Some(b"\xef\xbb\xbf{}"),
        Some(b"\xff"),
        Some(br#"{"a": "\ud800"}"#),
        None,
    ]);
    let fields = Fields::from(vec![nullable("a", DataType::Utf8)]);
    let (objects, errors) = decode_json(&bodies, &fields).unwrap();
    let is_wrong: Vec<bool> = errors.iter().map(|error| error.is_some()).collect();
    assert_eq!(is_wrong, [true, false, true, true, true, false]);
    assert_eq!(objects.column(0).as_string::<i32>().value(1), "x");
    assert!(objects.is_null(5));
    assert_eq!(errors.value(0), "a: not JSON: invalid unicode code point, at byte 7");
}

#[test]
fn nesting_without_end_is_an_error_and_no_crash() {
    for value in ["[".repeat(1_000_000), "{\"b\":".repeat(1_000_000)] {
        let reason = wrong(&DataType::Int32, &format!("1, \"b\": {value}")).unwrap();
        assert!(reason.contains("recursion limit"), "{reason}");
    }
}

#[test]
fn no_bodies_and_no_fields_are_fine() {
    let (objects, errors) = of(vec![nullable("a", DataType::Int32)], &[]);
    assert_eq!((objects.len(), errors.len(), objects.num_columns()), (0, 0, 1));
    let (objects, errors) = of(Vec::new(), &["{}", "[]", r#"{"a": 1}"#]);
    assert_eq!((objects.len(), objects.is_null(1), errors.null_count()), (3, true, 2));
}

#[test]
fn a_type_that_no_json_becomes_is_refused_with_its_field() {
    let keys = Field::new("key", DataType::Int32, false);
    let entries = Field::new_struct("entries", vec![keys, nullable("value", DataType::Utf8)], false);
    let map = DataType::Map(Arc::new(entries), false);
    for (refused, name) in [(DataType::Duration(TimeUnit::Second), "Duration(s)"), (map, "map<int,string>")] {
        let inner = Field::new_struct("s", vec![nullable("d", refused)], true);
        let error =
            decode_json(&BinaryArray::from_iter_values([b"{}"]), &vec![Arc::new(inner)].into()).unwrap_err();
        assert_eq!(error.to_string(), format!("field d has a type that JSON bodies do not support: {name}"));
        assert!(error.hint().is_some() && !error.retryable());
    }
}
