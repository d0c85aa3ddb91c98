//! Messages, queues, offsets, flags, property keys and name rules. No I/O.
