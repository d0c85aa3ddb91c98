//! The broker: request processing, topics, groups, offsets and held pulls.
