//! Name server and broker as a user starts them: in this process by the blocking interface, and as the binary.

mod auth;
mod auth_clients;
mod auth_pair;
mod auth_users;
mod bad_starts;
mod binary;
mod compatibility;
mod configuration_page;
mod crash;
mod epochs;
mod exporters;
mod failed_disk;
mod full_disk;
mod groups_after_kill;
mod kv_config;
mod live_values;
mod lost_tables;
mod metrics;
mod network;
mod pair;
mod peers;
mod registration;
mod role_change;
mod secure;
mod standalone;
mod support;
