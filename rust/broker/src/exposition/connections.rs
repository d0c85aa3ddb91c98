//! Connections of producers and consumers.

use rocketpy_model::system;

use super::{Out, Sample, flag};
use crate::desk::Desk;
use crate::metrics::Metric;

/// The ordinal of 4.0.0, and the one after all that are known, those of 5.9.
///
/// # Source
/// docs/reference/protocol.md 1.6.
const FIRST_OF_4: i32 = 212;
const AFTER_5: i32 = 614;

/// Name of a version, such as `v5_5_0`.
///
/// # Source
/// docs/reference/protocol.md 1.6.
fn version_name(ordinal: i32) -> String {
    match ordinal {
        AFTER_5.. => "higher_version".to_owned(),
        FIRST_OF_4.. => {
            let number = (ordinal - FIRST_OF_4) / 2;
            assert!(number / 100 < 2, "a version of 4.x or 5.x: {ordinal}");
            let snapshot = if ordinal % 2 == 0 { "_snapshot" } else { "" };
            format!("v{}_{}_{}{snapshot}", 4 + number / 100, number / 10 % 10, number % 10)
        }
        _ => "v3".to_owned(),
    }
}

pub(super) fn show(desk: &Desk, out: &mut Out<'_>) {
    let clients = desk.members.clients();
    if out.shows(Metric::ProducerConnections) {
        let producers = clients.producer_counts();
        out.show(Metric::ProducerConnections, |add| {
            for ((language, version), count) in &producers {
                let labels = [&*language.name().to_lowercase(), &*version_name(*version), "remoting"];
                add(&labels, Sample::Count(*count));
            }
        });
    }
    if out.shows(Metric::ConsumerConnections) {
        let consumers = clients.consumer_counts();
        out.show(Metric::ConsumerConnections, |add| {
            for ((group, language, version, mode), count) in &consumers {
                let (language, version) = (language.name().to_lowercase(), version_name(*version));
                let is_system = flag(system::is_system_group(group));
                let labels = [&**group, &*language, &*version, mode, "remoting", is_system];
                add(&labels, Sample::Count(*count));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_the_names_of_apache() {
        for (ordinal, name) in [
            (28, "v3"),
            (213, "v4_0_0"),
            (317, "v4_5_2"),
            (407, "v4_9_7"),
            (413, "v5_0_0"),
            (478, "v5_3_3_snapshot"),
            (479, "v5_3_3"),
            (513, "v5_5_0"),
            (9999, "higher_version"),
        ] {
            assert_eq!(version_name(ordinal), name);
        }
    }
}
