use std::time::Duration;

use rocketpy_model::NameError;

/// What is wrong with a value, as the second half of a sentence: "`key` must be ...".
pub(super) type Wanted = String;

pub(super) fn boolean(text: &str) -> Result<bool, Wanted> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("true or false".to_owned()),
    }
}

pub(super) fn integer(text: &str, least: i64, most: i64) -> Result<i64, Wanted> {
    text.parse::<i64>()
        .ok()
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| format!("a whole number from {least} to {most}"))
}

/// # Units
/// Milliseconds, as every Apache key that holds a time.
pub(super) fn millis(text: &str, least: i64, most: i64) -> Result<Duration, Wanted> {
    let value = integer(text, least, most).map_err(|wanted| format!("{wanted} (milliseconds)"))?;
    Ok(Duration::from_millis(value.unsigned_abs()))
}

pub(super) fn port(text: &str) -> Result<u16, Wanted> {
    text.parse().map_err(|_| "a port from 0 to 65535 (0 takes a free one)".to_owned())
}

/// A name that passes its check.
pub(super) fn checked(text: &str, check: fn(&str) -> Result<(), NameError>) -> Result<String, Wanted> {
    match check(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(format!("a name ({error})")),
    }
}

/// Splits `host:port;host:port` (or with commas) and checks each part.
pub(super) fn addresses(text: &str) -> Result<Vec<String>, Wanted> {
    let parts: Vec<String> =
        text.split([';', ',']).map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect();
    match parts.iter().any(|part| !is_address(part)) {
        true => Err("host:port, several of them separated by a semicolon".to_owned()),
        false => Ok(parts),
    }
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let host_is_good = !host.is_empty()
        && (bracketed || !host.contains(':'))
        && !host.chars().any(|c| c.is_whitespace() || c == '/' || c == '@');
    host_is_good && port.parse::<u16>().is_ok_and(|port| port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split_and_checked() {
        assert_eq!(addresses("a:1;b:2, [::1]:3 ;").unwrap(), ["a:1", "b:2", "[::1]:3"]);
        for bad in ["a", "a:", "a:0", "a:70000", ":1", "http://a:1", "::1:9876", "a b:1"] {
            assert!(addresses(bad).is_err(), "{bad}");
        }
    }
}
