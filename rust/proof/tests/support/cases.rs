//! Tests made from a table: the part of libtest's command line that `cargo test` and cargo-nextest use.
//!
//! cargo-nextest asks for the list, then runs each test in a process of its own.

use std::io::{self, Write};

/// A test.
pub(crate) struct Case {
    pub name: String,
    /// Panics when the test fails.
    pub run: Box<dyn FnOnce()>,
}

/// Options of libtest that are followed by a value and change nothing here.
const WITH_VALUE: [&str; 6] = ["--color", "--format", "--logfile", "--shuffle-seed", "--test-threads", "-Z"];

/// What the command line asks for.
#[derive(Debug, Default)]
struct Asked {
    lists: bool,
    ignored: bool,
    exact: bool,
    filters: Vec<String>,
    skipped: Vec<String>,
}

impl Asked {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut asked = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => asked.lists = true,
                "--ignored" => asked.ignored = true,
                "--exact" => asked.exact = true,
                "--skip" => asked.skipped.extend(arguments.next()),
                option if WITH_VALUE.contains(&option) => drop(arguments.next()),
                option if option.starts_with('-') => (),
                _ => asked.filters.push(argument),
            }
        }
        asked
    }

    fn wants(&self, name: &str) -> bool {
        let fits = |filter: &String| if self.exact { name == filter } else { name.contains(filter) };
        // No test of a table is ignored.
        !self.ignored
            && (self.filters.is_empty() || self.filters.iter().any(fits))
            && !self.skipped.iter().any(fits)
    }
}

/// Lists the tests, or runs those that the command line names; a failure ends the process.
pub(crate) fn main(cases: Vec<Case>) {
    let asked = Asked::parse(std::env::args().skip(1));
    for case in cases.into_iter().filter(|case| asked.wants(&case.name)) {
        if asked.lists {
            writeln!(io::stdout(), "{}: test", case.name).expect("standard output takes the list");
        } else {
            eprintln!("test {}", case.name);
            (case.run)();
        }
    }
}

/// The title of a planted bug as part of the name of a test.
pub(crate) fn name_of(title: &str) -> String {
    title.replace([' ', '-'], "_")
}
