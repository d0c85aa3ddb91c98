//! The state of a broker.

header! {
    /// The answer to GET_BROKER_CONFIG (code 26).
    GetBrokerConfigResponseHeader<'a> {
        /// A data version as JSON.
        version: &'a str = "version",
    }
}

header! {
    /// Asks for the configuration (codes 26 and 319).
    GetConfigHeader<'a> {
        /// RocketPy's own, `true`: JSON with the layer of each value in place of lines.
        layers: Option<&'a str> = "layers",
    }
}

header! {
    /// Changes the configuration (codes 25 and 318). The fields are RocketPy's own.
    UpdateConfigHeader<'a> {
        /// Keys whose live value is removed, separated by semicolons.
        unset: Option<&'a str> = "unset",
        /// Whether keys are accepted that take effect at the next start.
        at_restart: Option<bool> = "atRestart",
        /// Whether the change is only checked.
        dry_run: Option<bool> = "dryRun",
    }
}

header! {
    /// Asks for one statistic (code 315).
    ViewBrokerStatsDataRequestHeader<'a> {
        stats_name: &'a str = "statsName",
        stats_key: &'a str = "statsKey",
    }
}

header! {
    /// Makes a slave the master, or a master a slave (code 10907, RocketPy's own).
    ChangeBrokerRoleHeader<'a> {
        /// `ASYNC_MASTER`, `SYNC_MASTER` or `SLAVE`.
        role: &'a str = "brokerRole",
        /// Of the slave; the smallest free one where it is missing.
        broker_id: Option<i64> = "brokerId",
        /// Whether guards are passed over.
        force: Option<bool> = "force",
    }
}

header! {
    /// A master of RocketPy asks a slave of RocketPy for what it lost (code 10906).
    CopyLogHeader<'a> {
        /// What the master says of itself and of its log, as JSON.
        greeting: &'a str = "greeting",
    }
}

header! {
    /// Has a slave forget how far the log of its master is flushed (code 908).
    ResetMasterFlushOffsetHeader {
        master_flush_offset: i64 = "masterFlushOffset",
    }
}

header! {
    /// Where the slaves of a broker connect (code 906): what is asked and what is answered.
    ExchangeHaInfoHeader<'a> {
        /// `host:port` of the master's port for slaves.
        master_ha_address: Option<&'a str> = "masterHaAddress",
        master_flush_offset: Option<i64> = "masterFlushOffset",
        /// `host:port` of the master.
        master_address: Option<&'a str> = "masterAddress",
        /// Where the log of a RocketPy master begins: an empty slave gets everything.
        log_start: Option<i64> = "logStart",
    }
}
