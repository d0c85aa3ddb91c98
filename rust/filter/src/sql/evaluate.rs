//! Evaluates the tree of an expression.

use std::cmp::Ordering;

/// A part of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Constant(Constant),
    /// Number of its name.
    Property(usize),
    Negative(Box<Self>),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
    IsNull(Box<Self>),
    Compare(Operator, Box<[Self; 2]>),
    /// Value, lower and upper bound.
    Between(Box<[Self; 3]>),
    /// The texts are sorted.
    In {
        name: usize,
        texts: Box<[Box<str>]>,
    },
    Search {
        search: Search,
        operand: Box<Self>,
        text: Box<str>,
        not: bool,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Constant {
    Null,
    Bool(bool),
    Long(i64),
    Double(f64),
    Text(Box<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Where a text is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    Anywhere,
    Start,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Value<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(&'a str),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Long(i64),
    Double(f64),
}

impl Node {
    /// The node with a minus before it.
    pub(super) fn negative(self) -> Self {
        match self {
            // The lowest number has no counterpart, and its literal is one above the highest: it was read as a double.
            Self::Constant(Constant::Long(number)) => Self::Constant(Constant::Long(number.wrapping_neg())),
            Self::Constant(Constant::Double(number)) => Self::Constant(Constant::Double(-number)),
            node => Self::Negative(Box::new(node)),
        }
    }
}

impl Constant {
    const fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Long(number) => Value::Number(Number::Long(*number)),
            Self::Double(number) => Value::Number(Number::Double(*number)),
            Self::Text(text) => Value::Text(text),
        }
    }
}

/// Whether no number lies between two constants.
pub(super) fn is_empty_range(low: &Constant, high: &Constant) -> bool {
    order(low.value(), high.value()) == Some(Ordering::Greater)
}

/// A longer text is no number. The greatest one has 309 digits.
const MAX_NUMBER_BYTES: usize = 400;

/// The truth of a condition; `None` is unknown. `property` gives the value of a name by its number.
pub(super) fn truth<'n, 'a: 'n>(
    node: &'n Node,
    property: &impl Fn(usize) -> Option<&'a str>,
) -> Option<bool> {
    match node {
        Node::Not(inner) => truth(inner, property).map(|truth| !truth),
        Node::All(nodes) => joined(nodes, false, property),
        Node::Any(nodes) => joined(nodes, true, property),
        Node::IsNull(inner) => Some(value(inner, property) == Value::Null),
        Node::Compare(operator, operands) => {
            let [left, right] = operands.each_ref().map(|node| value(node, property));
            compare(*operator, left, right)
        }
        Node::Between(operands) => {
            let [value, low, high] = operands.each_ref().map(|node| value(node, property));
            let from = compare(Operator::GreaterOrEqual, value, low);
            let to = compare(Operator::LessOrEqual, value, high);
            if from == Some(false) || to == Some(false) { Some(false) } else { from.and(to) }
        }
        Node::In { name, texts } => {
            property(*name).map(|text| texts.binary_search_by(|it| (**it).cmp(text)).is_ok())
        }
        Node::Search { search, operand, text, not } => Some(match value(operand, property) {
            // Neither a missing text nor an empty one contains or lacks anything.
            Value::Text(within) if !within.is_empty() && !text.is_empty() => {
                let found = match search {
                    Search::Anywhere => within.contains(&**text),
                    Search::Start => within.starts_with(&**text),
                    Search::End => within.ends_with(&**text),
                };
                found != *not
            }
            _ => false,
        }),
        Node::Constant(_) | Node::Property(_) | Node::Negative(_) => match value(node, property) {
            Value::Bool(truth) => Some(truth),
            Value::Text(text) => Some(bool_of(text)),
            Value::Number(_) => Some(false),
            Value::Null => None,
        },
    }
}

/// `decisive` when a node is; unknown when one is unknown.
fn joined<'n, 'a: 'n>(
    nodes: &'n [Node],
    decisive: bool,
    property: &impl Fn(usize) -> Option<&'a str>,
) -> Option<bool> {
    let mut known = Some(!decisive);
    for node in nodes {
        match truth(node, property) {
            Some(truth) if truth == decisive => return Some(decisive),
            Some(_) => {}
            None => known = None,
        }
    }
    known
}

fn value<'n, 'a: 'n>(node: &'n Node, property: &impl Fn(usize) -> Option<&'a str>) -> Value<'n> {
    match node {
        Node::Constant(constant) => constant.value(),
        Node::Property(name) => property(*name).map_or(Value::Null, Value::Text),
        Node::Negative(inner) => match number_of(value(inner, property)) {
            Some(Number::Long(number)) => {
                number.checked_neg().map_or(Value::Number(Number::Double(-(number as f64))), |number| {
                    Value::Number(Number::Long(number))
                })
            }
            Some(Number::Double(number)) => Value::Number(Number::Double(-number)),
            None => Value::Null,
        },
        condition => truth(condition, property).map_or(Value::Null, Value::Bool),
    }
}

/// `None` is unknown: an operand is, or a text should be a number and is none.
fn compare(operator: Operator, left: Value<'_>, right: Value<'_>) -> Option<bool> {
    let of = |ordering: Ordering| match operator {
        Operator::Equal => ordering.is_eq(),
        Operator::Less => ordering.is_lt(),
        Operator::LessOrEqual => ordering.is_le(),
        Operator::Greater => ordering.is_gt(),
        Operator::GreaterOrEqual => ordering.is_ge(),
    };
    if operator != Operator::Equal {
        return order(left, right).map(of);
    }
    match (left, right) {
        (Value::Null, Value::Null) => Some(true),
        (Value::Null, _) => None,
        (_, Value::Null) => Some(false),
        (Value::Text(left), Value::Text(right)) => Some(left == right),
        (Value::Bool(left), Value::Bool(right)) => Some(left == right),
        (Value::Bool(truth), Value::Text(text)) | (Value::Text(text), Value::Bool(truth)) => {
            Some(truth == bool_of(text))
        }
        (Value::Bool(_), Value::Number(_)) | (Value::Number(_), Value::Bool(_)) => Some(false),
        _ => order(left, right).map(of),
    }
}

fn order(left: Value<'_>, right: Value<'_>) -> Option<Ordering> {
    match (number_of(left)?, number_of(right)?) {
        (Number::Long(left), Number::Long(right)) => Some(left.cmp(&right)),
        (left, right) => left.double().partial_cmp(&right.double()),
    }
}

impl Number {
    const fn double(self) -> f64 {
        match self {
            Self::Long(number) => number as f64,
            Self::Double(number) => number,
        }
    }
}

fn number_of(value: Value<'_>) -> Option<Number> {
    let text = match value {
        Value::Number(number) => return Some(number),
        Value::Text(text) => text,
        Value::Null | Value::Bool(_) => return None,
    };
    if text.len() > MAX_NUMBER_BYTES {
        return None; // else each comparison would read through it
    }
    if let Ok(number) = text.parse() {
        return Some(Number::Long(number));
    }
    // "inf" and "nan" are texts here.
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    Some(Number::Double(number))
}

/// Java's `Boolean.valueOf`.
fn bool_of(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}
