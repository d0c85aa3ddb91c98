//! The settings that a tool may change while the name server runs. A change holds until the next start.

use std::time::Duration;

use crate::config::NameServerConfig;
use crate::error::Refusal;

/// The bounds of `scanNotActiveBrokerInterval`, in milliseconds.
const SCAN_INTERVAL_MS: std::ops::RangeInclusive<u64> = 10..=86_400_000;

/// The settings with the changes of a request, which are lines of `key=value`. All of them hold, or none.
///
/// # Errors
/// The text is malformed, a key cannot change while the server runs, or its value is out of bounds.
pub(crate) fn changed(config: &NameServerConfig, body: &[u8]) -> Result<NameServerConfig, Refusal> {
    let mut config = config.clone();
    let text = std::str::from_utf8(body).map_err(|_| Refusal::Properties)?;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '!'])) {
        let (key, value) = line.split_once('=').ok_or(Refusal::Properties)?;
        let (key, value) = (key.trim_end(), value.trim_start());
        let bad_value = |expected| Refusal::SettingValue { key: key.to_owned(), expected };
        match key {
            "orderMessageEnable" => {
                config.order_message_enabled = value.parse().map_err(|_| bad_value("true or false"))?;
            }
            "scanNotActiveBrokerInterval" => {
                let interval_ms = value.parse().ok().filter(|millis| SCAN_INTERVAL_MS.contains(millis));
                let interval_ms = interval_ms.ok_or(bad_value("10 to 86400000 milliseconds"))?;
                config.scan_interval = Duration::from_millis(interval_ms);
            }
            _ => return Err(Refusal::FixedSetting { key: key.to_owned() }),
        }
    }
    Ok(config)
}
