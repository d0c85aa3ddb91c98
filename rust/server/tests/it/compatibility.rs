//! docs/compatibility.md says of every request what the servers say: its tables are made from theirs.

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::code::request::{self, Effect, Party, Request};
use rocketpy_protocol::code::{AfterDispatch, Handling};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compatibility.md");
const MAKE: &str = "UPDATE_DOCS=1 cargo test -p rocketpy-server --test it compatibility";

/// What a server does with a request.
type Handled = Vec<(i32, Handling)>;

fn served_table(party: Party, handled: &Handled) -> Vec<String> {
    let mut rows = vec![
        "| code | request | asked by | changes something | answer |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    // A name server serves some requests that are asked of brokers too.
    let is_listed =
        |row: &&Request| row.asked_of == party || handled.iter().any(|(code, _)| *code == row.code);
    rows.extend(request::ALL.iter().filter(is_listed).map(|row| {
        let (_, handling) = handled.iter().find(|(code, _)| *code == row.code).expect("a route");
        let (code, name, by, answer) = (row.code, row.name, row.asked_by.name(), answer(*handling));
        format!("| {code} | {name} | {by} | {} | {answer} |", effect(*row))
    }));
    rows
}

fn other_table() -> Vec<String> {
    let mut rows = vec![
        "| code | request | asked by | asked of | changes something |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    let others = request::ALL.iter().filter(|row| !matches!(row.asked_of, Party::Broker | Party::NameServer));
    rows.extend(others.map(|row| {
        let (code, name, by, of) = (row.code, row.name, row.asked_by.name(), row.asked_of.name());
        format!("| {code} | {name} | {by} | {of} | {} |", effect(*row))
    }));
    rows
}

fn effect(row: Request) -> &'static str {
    match row.effect {
        Effect::Question => "no",
        Effect::Change => "yes",
    }
}

fn answer(handling: Handling) -> String {
    match handling {
        Handling::Served { after_dispatch: AfterDispatch::No } => "served".to_owned(),
        Handling::Served { after_dispatch: AfterDispatch::Yes } => "served after dispatch".to_owned(),
        Handling::Served { after_dispatch: AfterDispatch::Unless(says) } => {
            format!("served after dispatch, with `{says}` at once")
        }
        Handling::Refused { why } => format!("refused: {why}"),
    }
}

/// The page with `table` in place of the first table below `heading`.
fn with_table(page: &str, heading: &str, table: &[String]) -> String {
    let below = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let start = below + page[below..].find("\n|").expect("a table below the heading") + 1;
    let lines = page[start..].split_inclusive('\n').take_while(|line| line.starts_with('|'));
    let end = start + lines.map(str::len).sum::<usize>();
    format!("{}{}\n{}", &page[..start], table.join("\n"), &page[end..])
}

#[test]
fn the_page_of_compatibility_says_what_the_servers_do() {
    let page = String::from_utf8(RealDisk.read(PAGE.as_ref(), 1 << 20).unwrap()).unwrap();
    let broker = served_table(Party::Broker, &rocketpy_broker::requests().collect());
    let name_server = served_table(Party::NameServer, &rocketpy_namesrv::requests().collect());
    let made = with_table(&page, "## Requests to a broker", &broker);
    let made = with_table(&made, "## Requests to a name server", &name_server);
    let made = with_table(&made, "## Requests to others", &other_table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return RealDisk.replace(PAGE.as_ref(), made.as_bytes()).unwrap();
    }
    let differing = page.lines().zip(made.lines()).find(|(stands, should)| stands != should);
    assert_eq!(differing, None, "docs/compatibility.md is not what the servers do; make it with {MAKE}");
    assert_eq!(
        page.len(),
        made.len(),
        "docs/compatibility.md has lines too many or too few; make it with {MAKE}"
    );
}
