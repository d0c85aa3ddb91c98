//! How a producer chooses queues.

/// How a producer chooses the queue of a message that has neither a queue nor an order key. A message that is tried again goes to
/// another broker than the one that failed last, if there is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Selector {
    /// One queue after the other.
    #[default]
    RoundRobin,
    /// Any queue, each with the same probability.
    Random,
    /// One after the other, without those of brokers that failed, for 10 s and until they answer again, or that took 550 ms or longer,
    /// for 2 s to 30 s. When there are no others, all are used.
    LeastLatency,
}
