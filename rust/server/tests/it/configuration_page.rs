//! docs/configuration.md, made from the table of keys.

use std::fmt::Write;
use std::path::Path;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_server::config::{Apache, FIXED, KEYS, Key, MEANINGLESS, Section, Shape};

const HEAD: &str = "# Configuration keys

Made from the table of keys in `rust/server/src/config/keys.rs` by the tests of `rocketpy-server`; do not edit it here.

Layers, the last wins: defaults, `--config` file, environment variable `ROCKETPY_KEY_NAME`, command line (`--set KEY=VALUE`, and flags,
which win over `--set`). Case and underscores of a key do not matter: `brokerIP1`, `broker_ip1` and `ROCKETPY_BROKER_IP1` are one.
An unknown key is an error that names known ones that look like it.

`rocketpy config show` prints every value and the layer it comes from, `rocketpy config explain KEY` prints this page's entry for one key,
`rocketpy config diff` prints what differs from the defaults.
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
        "docs/configuration.md is not what the table of keys says; write it again with\n\
         UPDATE_DOCS=1 cargo test -p rocketpy-server --test it configuration_page"
    );
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str(changes());
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
        "\n## Apache's keys with one value\n\nAnother value asks for what is not there yet, and is an error that names it.\n\n\
         | key | the one value | another one needs |\n|---|---|---|\n",
    );
    for fixed in FIXED {
        let only = if fixed.only.is_empty() { "empty".to_owned() } else { format!("`{}`", fixed.only) };
        let _ = writeln!(page, "| `{}` | {only} | {} |", fixed.name, fixed.feature);
    }
    page.push_str(
        "\n## Apache's keys without a meaning here\n\nThey tune parts that do not exist here. They are taken with any value; one \
         warning at start lists them.\n\n",
    );
    let mut names = MEANINGLESS.to_vec();
    names.sort_unstable();
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    for line in names.chunks(4) {
        let _ = writeln!(page, "{}", line.join(" "));
    }
    page
}

/// Whether values may change while a server runs.
fn changes() -> &'static str {
    match KEYS.iter().any(|key| key.is_changeable) {
        true => "\nMost values are read at start; a key that may change while a server runs says so.\n",
        false => "\nEvery value is read at start: no key can change while a server runs.\n",
    }
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
        text.push_str(" It may change while a server runs.");
    }
    text
}
