//! The state of a broker.

header! {
    /// The answer to GET_BROKER_CONFIG (code 26).
    GetBrokerConfigResponseHeader<'a> {
        /// A data version as JSON.
        version: &'a str = "version",
    }
}

header! {
    /// Asks for one statistic (code 315).
    ViewBrokerStatsDataRequestHeader<'a> {
        stats_name: &'a str = "statsName",
        stats_key: &'a str = "statsKey",
    }
}
