//! docs/configuration.md, made from the table of keys.

use std::fmt::Write;
use std::path::Path;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_server::config::{Apache, FIXED, KEYS, Key, MEANINGLESS, STORE_PATHS, Section, Shape};

const HEAD: &str = "# Configuration keys

A test of `rocketpy-server` makes this page from the table of keys in `rust/server/src/config/keys.rs`; do not edit it by hand.

A value comes from one of these layers; a later layer overrides an earlier one:

1. the default
2. the file given with `--config`
3. an environment variable: `ROCKETPY_` and the name of the key, in capitals with underscores between its words
4. live values: `rocketpy config set`, or `mqadmin updateBrokerConfig`, while the server runs
5. the command line: `--set KEY=VALUE`, and flags such as `--port`, which override `--set`

For example `ROCKETPY_MAX_MESSAGE_SIZE=8388608` sets `maxMessageSize` to 8 MiB, as `--set maxMessageSize=8388608` does. Case and underscores
of a key do not matter: `brokerIP1`, `broker_ip1` and `ROCKETPY_BROKER_IP1` name the same key. An unknown key is an error that suggests
known keys with similar names. A configuration file is Java properties, or TOML if its name ends in `.toml`.

A size may have a unit (`64k`, `10MB`, `1GiB`; k is 1024), and so may a time (`500ms`, `30s`, `10m`, `2h`, `1d`). A number without a unit
is in the unit of the key. The case of choices does not matter, and an IPv6 address may have brackets (`[::1]`).

`rocketpy config list BROKER --origin` prints every value of a running broker and its layer, `rocketpy config show` those of a start with these
files and flags. `rocketpy config explain KEY` prints this page's entry for one key, `rocketpy config diff` what differs from the defaults.

## Live values

`rocketpy config set BROKER KEY=VALUE` changes a running broker at once, and its later starts. `rocketpy config unset BROKER KEY` gives back the value
of the lower layer, at once. A request changes all of its keys or none. A name server has live values too: give its `HOST:PORT` as BROKER.

* Keys with `May change while it runs` take effect at once. Others take effect at the next start, and need `--at-restart`.
* Keys of identity, files, addresses and secrets have no live value, and a key on the server's command line keeps its value. Both are errors.
* The values are in `config/live.properties` of the store, those of a name server beside `kvConfigPath` (`kvConfig.live.properties`). Without
  `kvConfigPath` they end with the name server. Master and slave have their own; snapshots have none.
* A live value that a start cannot use stops that start. `rocketpy config unset --store DIR KEY` removes it while no server runs.
";

#[test]
fn the_page_of_keys_says_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        RealDisk.replace(&path, page.as_bytes()).unwrap();
    }
    let found = RealDisk.read(&path, 1 << 20).unwrap_or_default();
    assert!(
        found == page.as_bytes(),
        "docs/configuration.md is not what the table of keys says; write it with\n\
         UPDATE_DOCS=1 cargo test -p rocketpy-server --test it configuration_page"
    );
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for section in Section::ALL {
        let _ = write!(page, "\n## {}\n\n", section.title());
        if section == Section::Ours {
            page.push_str("Apache has none of these.\n\n");
        }
        page.push_str("| key | values | default | meaning |\n|---|---|---|---|\n");
        for key in KEYS.iter().filter(|key| key.section == section) {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} |",
                key.name,
                values(&key.shape()),
                default(key),
                meaning(key)
            );
        }
    }
    page.push_str(
        "\n## Apache's keys with one value\n\nA different value needs a feature that RocketPy does not have. It is an error that names the feature. An empty value counts as the\n\
         one value.\n\n\
         | key | the one value | a different value needs |\n|---|---|---|\n",
    );
    for fixed in FIXED {
        let only = if fixed.only.is_empty() { "empty".to_owned() } else { format!("`{}`", fixed.only) };
        let _ = writeln!(page, "| `{}` | {only} | {} |", fixed.name, fixed.feature);
    }
    page.push_str(
        "\n## Paths that cannot change\n\nApache's brokers since 3.2.6 ignore these keys, but guides have them. The value must be \
         the place that the store uses, in `storePathRootDir`; a different value is an error.\n\n| key | place |\n|---|---|\n",
    );
    for path in STORE_PATHS {
        let _ = writeln!(page, "| `{}` | `{}` |", path.name, path.place);
    }
    page.push_str(
        "\n## Apache's keys without a meaning here\n\nThey tune parts of Apache's broker that RocketPy does not have. Any value \
         is accepted and ignored; one warning at start lists them.\n\n",
    );
    let mut names = MEANINGLESS.to_vec();
    names.sort_unstable();
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    for line in names.chunks(4) {
        let _ = writeln!(page, "{}", line.join(" "));
    }
    page
}

fn values(shape: &Shape) -> String {
    if !shape.choices.is_empty() {
        return shape.choices.join(", ");
    }
    let what = shape.unit.unwrap_or(shape.kind);
    match shape.bounds {
        Some((least, i64::MAX)) => format!("{what}, from {least}"),
        Some((least, most)) => format!("{what}, {least} to {most}"),
        None => what.to_owned(),
    }
}

fn default(key: &Key) -> String {
    let text = key.default_value().to_string();
    if text.is_empty() { "none".to_owned() } else { text }
}

fn meaning(key: &Key) -> String {
    let mut text = key.description().to_owned();
    if let Apache::Default(default) = key.apache {
        let _ = write!(text, " Apache's default: {default}.");
    }
    if key.apache == Apache::Unknown && key.section != Section::Ours {
        text.push_str(" Not a key of Apache's.");
    }
    if key.is_changeable {
        text.push_str(" May change while it runs.");
    }
    text
}
