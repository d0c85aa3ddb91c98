//! The name server: routes, broker liveness, request processing.
