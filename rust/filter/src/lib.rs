//! Tag filter: the hash and the subscription expression.
