//! Kinds of values: how each is read from text, printed and bounded.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rocketpy_broker::{DelayLevels, DeleteHours};
use rocketpy_model::NameError;
use rocketpy_model::printable::is_control;

use super::auth::MASK;

/// What is wrong with a value, as the second half of a sentence: "`key` must be ...".
pub(super) type Wanted = String;

/// A value of a key, typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `true` or `false`.
    Switch(bool),
    /// A number, in the unit that [`Shape::unit`] names.
    Number(i64),
    Text(String),
    /// Texts, and what parts them in a file.
    List(Vec<String>, char),
    /// Not set.
    Nothing,
}

impl fmt::Display for Value {
    /// Writes the value as a file would.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::List(texts, separator) => f.write_str(&texts.join(&separator.to_string())),
            Self::Nothing => Ok(()),
        }
    }
}

/// Which values a key takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The type in a word or two: `number`, `time`, `switch`, `host` ...
    pub kind: &'static str,
    /// The unit of a number.
    pub unit: Option<&'static str>,
    /// The smallest and the largest number.
    pub bounds: Option<(i64, i64)>,
    /// All values, when they are few.
    pub choices: Vec<&'static str>,
    /// Whether values are never shown.
    pub is_secret: bool,
}

impl Shape {
    pub(super) fn of(kind: &'static str) -> Self {
        Self { kind, unit: None, bounds: None, choices: Vec::new(), is_secret: false }
    }
}

/// A kind of values.
pub(super) trait Kind {
    /// Which values it takes.
    fn shape(&self) -> Shape;
}

/// A kind of values that a field of type `T` holds.
pub(super) trait Holds<T>: Kind {
    /// Reads a value and checks its bounds.
    fn parse(&self, text: &str) -> Result<T, Wanted>;
    /// The value of a field.
    fn value(&self, held: &T) -> Value;
}

fn integer(text: &str, least: i64, most: i64) -> Result<i64, Wanted> {
    text.parse::<i64>()
        .ok()
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| format!("a whole number from {least} to {most}"))
}

/// Units of sizes, in bytes: `k`, `kb` and `kib` are one.
const SIZES: &[(&str, i64)] = &[
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1 << 30),
    ("gib", 1 << 30),
    ("t", 1 << 40),
    ("tb", 1 << 40),
    ("tib", 1 << 40),
];
/// Units of times, in milliseconds.
const TIMES: &[(&str, i64)] =
    &[("ms", 1), ("s", 1000), ("m", 60_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Replaces a number with a unit (`64 MiB`, `5s`) by the number of the key's own units; other texts stay as they are.
fn in_units<'a>(text: &'a str, units: &[(&str, i64)], own: i64) -> Cow<'a, str> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    let unit = units.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name));
    let Some((number, (_, unit))) = number.parse::<i64>().ok().zip(unit) else { return Cow::Borrowed(text) };
    match number.checked_mul(*unit).filter(|total| total % own == 0) {
        Some(total) => Cow::Owned((total / own).to_string()),
        None => Cow::Borrowed(text),
    }
}

/// `true` or `false`, in any case.
pub(super) struct Switch;

impl Kind for Switch {
    fn shape(&self) -> Shape {
        Shape { choices: vec!["true", "false"], ..Shape::of("switch") }
    }
}

impl Holds<bool> for Switch {
    fn parse(&self, text: &str) -> Result<bool, Wanted> {
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("true or false".to_owned()),
        }
    }

    fn value(&self, held: &bool) -> Value {
        Value::Switch(*held)
    }
}

/// Unit of the keys that are sizes.
pub(super) const BYTES: &str = "bytes";

/// A whole number: smallest, largest, unit.
pub(super) struct Whole(pub(super) i64, pub(super) i64, pub(super) &'static str);

impl Kind for Whole {
    fn shape(&self) -> Shape {
        Shape { unit: Some(self.2), bounds: Some((self.0, self.1)), ..Shape::of("number") }
    }
}

impl<T: TryFrom<i64> + TryInto<i64> + Copy> Holds<T> for Whole {
    fn parse(&self, text: &str) -> Result<T, Wanted> {
        let is_size = self.2 == BYTES;
        let text = if is_size { in_units(text, SIZES, 1) } else { Cow::Borrowed(text) };
        let units = if is_size { ", or a size such as 64k, 4MiB or 1g" } else { "" };
        let value = integer(&text, self.0, self.1).map_err(|wanted| format!("{wanted}{units}"))?;
        T::try_from(value).map_err(|_| "a number within the range of this machine".to_owned())
    }

    fn value(&self, held: &T) -> Value {
        Value::Number((*held).try_into().unwrap_or(i64::MAX))
    }
}

/// A time in the unit that the key has at Apache's.
pub(super) struct Time {
    unit: &'static str,
    unit_ms: u64,
    least: i64,
    most: i64,
}

/// A time in milliseconds.
pub(super) const fn millis(least: i64, most: i64) -> Time {
    Time { unit: "milliseconds", unit_ms: 1, least, most }
}

pub(super) const fn seconds(least: i64, most: i64) -> Time {
    Time { unit: "seconds", unit_ms: 1000, least, most }
}

pub(super) const fn hours(least: i64, most: i64) -> Time {
    Time { unit: "hours", unit_ms: 3_600_000, least, most }
}

impl Kind for Time {
    fn shape(&self) -> Shape {
        Shape { unit: Some(self.unit), bounds: Some((self.least, self.most)), ..Shape::of("time") }
    }
}

impl Holds<Duration> for Time {
    fn parse(&self, text: &str) -> Result<Duration, Wanted> {
        let text = in_units(text, TIMES, i64::try_from(self.unit_ms).unwrap_or(i64::MAX));
        let value = integer(&text, self.least, self.most).map_err(|wanted| {
            format!("{wanted} ({}), or a time such as 500ms, 30s, 10m, 2h or 1d", self.unit)
        })?;
        Ok(Duration::from_millis(value.unsigned_abs() * self.unit_ms))
    }

    fn value(&self, held: &Duration) -> Value {
        let units = held.as_millis() / u128::from(self.unit_ms);
        Value::Number(i64::try_from(units).unwrap_or(i64::MAX))
    }
}

/// A port; 0 selects a free one.
pub(super) struct Port;

impl Kind for Port {
    fn shape(&self) -> Shape {
        Shape { bounds: Some((0, 65_535)), ..Shape::of("port") }
    }
}

impl Holds<u16> for Port {
    fn parse(&self, text: &str) -> Result<u16, Wanted> {
        text.parse().map_err(|_| "a port from 0 to 65535 (0 selects a free one)".to_owned())
    }

    fn value(&self, held: &u16) -> Value {
        Value::Number((*held).into())
    }
}

/// Delay levels.
pub(super) struct Levels;

impl Kind for Levels {
    fn shape(&self) -> Shape {
        Shape::of("times")
    }
}

impl Holds<DelayLevels> for Levels {
    fn parse(&self, text: &str) -> Result<DelayLevels, Wanted> {
        text.parse().map_err(|reason| format!("times such as `1s 5s 10m 2h` ({reason})"))
    }

    fn value(&self, held: &DelayLevels) -> Value {
        Value::Text(held.to_string())
    }
}

/// A name that passes its check.
pub(super) struct Name(pub(super) fn(&str) -> Result<(), NameError>);

impl Kind for Name {
    fn shape(&self) -> Shape {
        Shape::of("name")
    }
}

impl Holds<String> for Name {
    fn parse(&self, text: &str) -> Result<String, Wanted> {
        match (self.0)(text) {
            Ok(()) => Ok(text.to_owned()),
            Err(error) => Err(format!("a name ({error})")),
        }
    }

    fn value(&self, held: &String) -> Value {
        Value::Text(held.clone())
    }
}

/// A text without control characters.
pub(super) struct Plain;

impl Kind for Plain {
    fn shape(&self) -> Shape {
        Shape::of("text")
    }
}

impl Holds<String> for Plain {
    fn parse(&self, text: &str) -> Result<String, Wanted> {
        if text.is_empty() || text.chars().any(is_control) {
            return Err("a text without control characters".to_owned());
        }
        Ok(text.to_owned())
    }

    fn value(&self, held: &String) -> Value {
        Value::Text(held.clone())
    }
}

/// A text that is never shown.
pub(super) struct Secret;

impl Kind for Secret {
    fn shape(&self) -> Shape {
        Shape { is_secret: true, ..Shape::of("text") }
    }
}

impl Holds<String> for Secret {
    fn parse(&self, text: &str) -> Result<String, Wanted> {
        Ok(text.to_owned())
    }

    fn value(&self, _held: &String) -> Value {
        Value::Text(MASK.to_owned())
    }
}

/// A host name or an address, without a port.
pub(super) struct Host;

impl Kind for Host {
    fn shape(&self) -> Shape {
        Shape::of("host")
    }
}

impl Holds<String> for Host {
    fn parse(&self, text: &str) -> Result<String, Wanted> {
        let text = text.trim();
        let text = in_brackets(text).unwrap_or(text);
        let is_good = !text.is_empty()
            && !text.chars().any(|c| {
                c.is_whitespace() || is_control(c) || matches!(c, '/' | ',' | ';' | '@' | '[' | ']')
            })
            && (text.parse::<std::net::Ipv6Addr>().is_ok() || !text.contains(':'));
        if is_good {
            Ok(text.to_owned())
        } else {
            Err("a host name or an address, without a port".to_owned())
        }
    }

    fn value(&self, held: &String) -> Value {
        Value::Text(held.clone())
    }
}

/// The IPv6 address of `[address]`, as URLs have it.
fn in_brackets(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    inner.parse::<std::net::Ipv6Addr>().is_ok().then_some(inner)
}

/// `host:port;host:port`, also with commas.
pub(super) struct Addresses;

impl Kind for Addresses {
    fn shape(&self) -> Shape {
        Shape::of("host:port;...")
    }
}

impl Holds<Vec<String>> for Addresses {
    fn parse(&self, text: &str) -> Result<Vec<String>, Wanted> {
        let parts = text.split([';', ',']).map(str::trim).filter(|part| !part.is_empty());
        let parts: Vec<String> = parts.map(str::to_owned).collect();
        match parts.iter().any(|part| !is_address(part)) {
            true => Err("host:port, several of them separated by a semicolon".to_owned()),
            false => Ok(parts),
        }
    }

    fn value(&self, held: &Vec<String>) -> Value {
        Value::List(held.clone(), ';')
    }
}

/// One address with its port.
pub(super) struct Address;

impl Kind for Address {
    fn shape(&self) -> Shape {
        Shape::of("host:port")
    }
}

impl Holds<String> for Address {
    fn parse(&self, text: &str) -> Result<String, Wanted> {
        if is_address(text) { Ok(text.to_owned()) } else { Err("host:port".to_owned()) }
    }

    fn value(&self, held: &String) -> Value {
        Value::Text(held.clone())
    }
}

/// Addresses without ports, with semicolons or commas between them.
pub(super) struct Ips;

impl Kind for Ips {
    fn shape(&self) -> Shape {
        Shape::of("address;...")
    }
}

impl Holds<Vec<IpAddr>> for Ips {
    fn parse(&self, text: &str) -> Result<Vec<IpAddr>, Wanted> {
        let parts = text.split([';', ',']).map(str::trim).filter(|part| !part.is_empty());
        let parts: Result<_, _> = parts.map(|part| in_brackets(part).unwrap_or(part).parse()).collect();
        parts.map_err(|_| "addresses such as 10.0.0.2, separated by semicolons".to_owned())
    }

    fn value(&self, held: &Vec<IpAddr>) -> Value {
        Value::List(held.iter().map(IpAddr::to_string).collect(), ';')
    }
}

pub(super) fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = in_brackets(host).is_some();
    let host_is_good = !host.is_empty()
        && (bracketed || !host.contains([':', '[', ']']))
        && !host.chars().any(|c| c.is_whitespace() || is_control(c) || c == '/' || c == '@');
    host_is_good && port.parse::<u16>().is_ok_and(|port| port != 0)
}

/// The path of a file.
pub(super) struct File;

impl Kind for File {
    fn shape(&self) -> Shape {
        Shape::of("file")
    }
}

impl Holds<PathBuf> for File {
    fn parse(&self, text: &str) -> Result<PathBuf, Wanted> {
        Ok(PathBuf::from(text))
    }

    fn value(&self, held: &PathBuf) -> Value {
        Value::Text(text_of(held))
    }
}

/// The path of one folder.
pub(super) struct Folder;

impl Kind for Folder {
    fn shape(&self) -> Shape {
        Shape::of("folder")
    }
}

impl Holds<PathBuf> for Folder {
    fn parse(&self, text: &str) -> Result<PathBuf, Wanted> {
        if text.trim().is_empty() {
            return Err("the path of a folder".to_owned());
        }
        if text.contains(',') {
            return Err("the path of one folder".to_owned());
        }
        Ok(PathBuf::from(text))
    }

    fn value(&self, held: &PathBuf) -> Value {
        Value::Text(text_of(held))
    }
}

/// Folders separated by commas; at least this many.
pub(super) struct Folders {
    /// The fewest that may be named.
    pub(super) least: usize,
}

impl Kind for Folders {
    fn shape(&self) -> Shape {
        Shape::of("folder,...")
    }
}

impl Holds<Vec<PathBuf>> for Folders {
    fn parse(&self, text: &str) -> Result<Vec<PathBuf>, Wanted> {
        let paths = text.split([',', ';']).map(str::trim).filter(|path| !path.is_empty());
        let paths: Vec<_> = paths.map(PathBuf::from).collect();
        // A text of commas alone is a mistake; nothing at all may be meant.
        if paths.len() < self.least || paths.is_empty() && !text.is_empty() {
            return Err("the path of a folder, or several separated by commas".to_owned());
        }
        Ok(paths)
    }

    fn value(&self, held: &Vec<PathBuf>) -> Value {
        Value::List(held.iter().map(|path| text_of(path)).collect(), ',')
    }
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

/// One of a few words.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T> Kind for Choice<T> {
    fn shape(&self) -> Shape {
        Shape { choices: self.0.iter().map(|(word, _)| *word).collect(), ..Shape::of("choice") }
    }
}

impl<T: Copy + PartialEq> Holds<T> for Choice<T> {
    fn parse(&self, text: &str) -> Result<T, Wanted> {
        let found = self.0.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)).map(|(_, value)| *value);
        found.ok_or_else(|| self.shape().choices.join(" or "))
    }

    fn value(&self, held: &T) -> Value {
        let word = self.0.iter().find(|(_, value)| value == held).map_or("", |(word, _)| word);
        Value::Text(word.to_owned())
    }
}

/// The permission bits of a broker.
pub(super) struct Permissions;

impl Kind for Permissions {
    fn shape(&self) -> Shape {
        Shape { choices: vec!["0", "2", "4", "6"], ..Shape::of("number") }
    }
}

impl Holds<i32> for Permissions {
    fn parse(&self, text: &str) -> Result<i32, Wanted> {
        match i32::try_from(integer(text, 0, 6)?) {
            Ok(value @ (0 | 2 | 4 | 6)) => Ok(value),
            _ => Err("0, 2 (write), 4 (read) or 6 (both)".to_owned()),
        }
    }

    fn value(&self, held: &i32) -> Value {
        Value::Number((*held).into())
    }
}

/// Hours of the day, as `04;16`.
pub(super) struct DayHours;

impl Kind for DayHours {
    fn shape(&self) -> Shape {
        Shape::of("hours of the day")
    }
}

impl Holds<DeleteHours> for DayHours {
    fn parse(&self, text: &str) -> Result<DeleteHours, Wanted> {
        text.parse().map_err(|wanted: rocketpy_broker::BadHours| wanted.to_string())
    }

    fn value(&self, held: &DeleteHours) -> Value {
        Value::Text(held.to_string())
    }
}

/// A value that may be left out.
pub(super) struct Maybe<K>(pub(super) K);

impl<K: Kind> Kind for Maybe<K> {
    fn shape(&self) -> Shape {
        self.0.shape()
    }
}

impl<T, K: Holds<T>> Holds<Option<T>> for Maybe<K> {
    fn parse(&self, text: &str) -> Result<Option<T>, Wanted> {
        self.0.parse(text).map(Some)
    }

    fn value(&self, held: &Option<T>) -> Value {
        held.as_ref().map_or(Value::Nothing, |held| self.0.value(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split_and_checked() {
        assert_eq!(Addresses.parse("a:1;b:2, [::1]:3 ;").unwrap(), ["a:1", "b:2", "[::1]:3"]);
        for bad in ["a", "[a]:1", "[]:1", "a:", "a:0", "a:70000", ":1", "http://a:1", "::1:9876", "a b:1"] {
            assert!(Addresses.parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_ipv6_address_may_have_brackets() {
        for text in ["::1", "[::1]", " [::1] "] {
            assert_eq!(Host.parse(text).unwrap(), "::1");
        }
        assert_eq!(Ips.parse("[::1]; 10.0.0.2").unwrap().len(), 2);
        for bad in ["[::1", "::1]", "[::1]:9876", "[localhost]", "[]"] {
            assert!(Host.parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_and_times_may_have_units() {
        let size = Whole(0, 1 << 40, BYTES);
        for (text, bytes) in
            [("64k", 65_536), ("10MB", 10 << 20), ("4 MiB", 4 << 20), ("1G", 1 << 30), ("9b", 9)]
        {
            assert_eq!(Holds::<u64>::parse(&size, text), Ok(bytes), "{text}");
        }
        for bad in ["k", "1.5k", "2t", "9223372036854775807k", "1 k b", "-1k", "1e3"] {
            assert!(Holds::<u64>::parse(&size, bad).unwrap_err().contains("4MiB"), "{bad}");
        }
        let pages = Whole(0, 9, "pages");
        assert_eq!(Holds::<u64>::parse(&pages, "5k"), Err("a whole number from 0 to 9".to_owned()));
        for (text, ms) in
            [("500ms", 500), ("5s", 5000), ("2 M", 120_000), ("1min", 60_000), ("1d", 86_400_000)]
        {
            assert_eq!(millis(0, i64::MAX).parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(hours(0, 100).parse("2d"), Ok(Duration::from_secs(48 * 3600)));
        assert_eq!(seconds(0, 100).parse("100"), Ok(Duration::from_secs(100)));
        for bad in ["90m", "101", "5 weeks"] {
            assert!(hours(0, 100).parse(bad).unwrap_err().contains("(hours), or a time such as"), "{bad}");
        }
    }
}
