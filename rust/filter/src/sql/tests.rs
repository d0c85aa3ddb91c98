//! What expressions mean, against a table; what is refused; and bounds.

use proptest::prelude::*;

use super::{SqlError, SqlFilter};

const PROPERTIES: [(&str, &str); 9] = [
    ("a", "3"),
    ("d", "3.5"),
    ("n", "-2"),
    ("s", "abc"),
    ("t", "true"),
    ("f", "no"),
    ("e", ""),
    ("q", "it's"),
    ("big", "9223372036854775807"),
];

fn property(name: &str) -> Option<&'static str> {
    PROPERTIES.iter().find(|(it, _)| *it == name).map(|(_, value)| *value)
}

fn evaluated(text: &str) -> Option<bool> {
    SqlFilter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).evaluate(property)
}

/// Each line: expression, then its truth. Apache's filter gives the same, but for the lines marked `!`.
const TABLE: &str = include_str!("table.txt");

#[test]
fn expressions_have_the_truth_of_the_table() {
    let mut count = 0;
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (text, expected) = line.rsplit_once("=>").unwrap();
        let expected = match expected.trim().trim_end_matches('!').trim() {
            "true" => Some(true),
            "false" => Some(false),
            "null" => None,
            other => panic!("{other}"),
        };
        assert_eq!(evaluated(text), expected, "{text}");
        count += 1;
    }
    assert!(count > 60, "{count}");
}

#[test]
fn what_is_not_in_the_grammar_is_refused_with_its_position() {
    for (text, at, says) in [
        ("", 1, "the end"),
        ("a >", 4, "the end"),
        ("a > 1 b", 7, "b at"),
        ("a == 1", 4, "\"=\""),
        ("(a > 1", 7, "\")\""),
        ("a IN (1)", 7, "single quotes"),
        ("a IN ()", 7, "single quotes"),
        ("'x' IN ('x')", 1, "name of a property"),
        ("a NOT 1", 7, "BETWEEN"),
        ("a LIKE 'x'", 3, "LIKE at character 3 of the SQL92 expression is not supported; write CONTAINS"),
        ("a NOT like 'x'", 7, "LIKE at character 7 of the SQL92 expression is not supported"),
        ("a IS 1", 6, "NULL"),
        ("a + 1 > 2", 3, "\"+\""),
        ("a CONTAINS b", 12, "single quotes"),
        ("a > 1 AND", 10, "the end"),
        ("a = #", 5, "'#'"),
        ("s = '\u{e9}' #", 9, "'#'"),
        ("s = 'abc", 5, "text"),
        ("a /* b", 3, "comment"),
        ("a > 007", 5, "number"),
        ("a > 1e", 5, "number"),
        ("a > 1e999", 5, "number"),
        ("a > 1x", 5, "number"),
        ("1", 1, "condition"),
        ("a > 1 AND 'x'", 11, "condition"),
        ("NOT 1", 5, "condition"),
        ("a > 'x'", 5, "order"),
        ("a < TRUE", 5, "order"),
        ("NULL >= a", 1, "order"),
        ("(a = 1) > 2", 1, "order"),
        ("a = NULL", 5, "IS NULL"),
        ("NULL <> a", 1, "IS NULL"),
        ("a BETWEEN 5 AND 1", 11, "lower bound"),
        ("a BETWEEN '1' AND '5'", 11, "order"),
    ] {
        let error = SqlFilter::parse(text).expect_err(text).to_string();
        assert!(error.contains(&format!("character {at}")) && error.contains(says), "{text}: {error}");
    }
}

#[test]
fn like_may_name_a_property() {
    assert!(SqlFilter::parse("like = 1 AND a = LIKE").is_ok());
}

#[test]
fn length_and_depth_are_bounded_and_a_long_expression_is_not_a_deep_one() {
    let deep = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert!(SqlFilter::parse(&deep(SqlFilter::MAX_DEPTH - 1)).is_ok());
    for text in [deep(SqlFilter::MAX_DEPTH), "(".repeat(60_000), "NOT ".repeat(16_000), "+".repeat(60_000)] {
        assert!(matches!(SqlFilter::parse(&text), Err(SqlError::TooDeep { .. })));
    }
    for chained in ["a", "a IS NULL"] {
        let text = format!("{chained}{}", " = a".repeat(1000));
        assert!(matches!(SqlFilter::parse(&text), Err(SqlError::TooDeep { .. })));
    }
    let long = format!("a = 1{}", " OR a = 3".repeat(5000));
    assert_eq!(evaluated(&long), Some(true));
    let names = |count: usize| {
        (0..count).map(|number| format!("n{number} IS NULL")).collect::<Vec<_>>().join(" AND ")
    };
    assert_eq!(evaluated(&names(SqlFilter::MAX_NAMES)), Some(true));
    let one_more = SqlFilter::parse(&names(SqlFilter::MAX_NAMES + 1));
    assert!(matches!(one_more, Err(SqlError::TooManyNames { limit: 64, .. })), "{one_more:?}");
    let too_long = format!("a = '{}'", "x".repeat(SqlFilter::MAX_BYTES));
    assert!(matches!(SqlFilter::parse(&too_long), Err(SqlError::TooLong { .. })));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,64}") {
        let _ = SqlFilter::parse(&text).map(|filter| filter.evaluate(property));
    }

    #[test]
    fn no_row_of_tokens_makes_the_parser_panic(tokens in proptest::collection::vec(proptest::sample::select(&[
        "a", "d", "missing", "'x'", "1", "2.5", "TRUE", "NULL", "AND", "OR", "NOT", "IS", "IN", "BETWEEN", "CONTAINS", "(", ")",
        ",", "=", "<>", "<", ">=", "-", "+", "--", "/*", "9223372036854775808",
    ][..]), 0..24)) {
        let _ = SqlFilter::parse(&tokens.join(" ")).map(|filter| filter.evaluate(property));
    }
}

#[test]
fn the_work_of_an_evaluation_grows_with_each_use_of_a_name() {
    let work = |text: &str| SqlFilter::parse(text).unwrap().work(1000) - text.len();
    assert_eq!(work("a > 0"), 2000, "the name is looked for, and its value is read");
    assert_eq!(work("a > 0 OR a < 0 OR a = b"), 2000 + 4000);
}

#[test]
fn a_text_that_is_longer_than_any_number_is_none() {
    let number = |digits: usize| "9".repeat(digits);
    for (digits, truth) in [(300, Some(true)), (400, None), (401, None)] {
        let value = number(digits);
        let filter = SqlFilter::parse("a > 0").unwrap();
        assert_eq!(filter.evaluate(|_| Some(value.as_str())), truth, "{digits}");
    }
    let zeros = format!("{}1", "0".repeat(400));
    assert_eq!(SqlFilter::parse("a > 0").unwrap().evaluate(|_| Some(zeros.as_str())), None);
}
