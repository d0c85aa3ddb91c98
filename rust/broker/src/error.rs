/// Why a broker could not start or stop in order.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The listening address is taken or does not belong to this machine.
    #[error("the broker cannot listen on {address}: {source}")]
    Listen {
        /// The address asked for.
        address: std::net::SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}
