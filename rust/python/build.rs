//! Gives the extension module the commit that it is built from, for `rocketpy --version`.
//!
//! A checkout asks git. An archive of the sources has no git: `tools/commit` wrote the commit into the file `COMMIT` before.

#![allow(
    clippy::disallowed_methods,
    reason = "a build script runs on the machine of the developer, outside of any server"
)]
#![allow(clippy::print_stdout, reason = "cargo reads its instructions there")]

use std::fs;
use std::path::Path;
use std::process::Command;

const FILE: &str = "COMMIT";
/// Digits of a commit, as many as GitHub and git show for large repositories.
const DIGITS: usize = 12;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let commit = from_git().or_else(from_file).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=ROCKETPY_COMMIT={commit}");
}

/// The commit of the checkout, unless these sources only lie inside another repository.
fn from_git() -> Option<String> {
    let root = fs::canonicalize("../..").ok()?;
    if fs::canonicalize(git(&["rev-parse", "--show-toplevel"])?).ok()? != root {
        return None;
    }
    // Every commit and checkout appends to this file, also in a worktree.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).is_file()) {
        println!("cargo:rerun-if-changed={log}");
    }
    shortened(&git(&["rev-parse", "HEAD"])?)
}

fn from_file() -> Option<String> {
    let commit = fs::read_to_string(FILE).ok()?;
    println!("cargo:rerun-if-changed={FILE}"); // never of a file that is missing: cargo takes it for changed, at each build
    shortened(commit.trim())
}

fn shortened(commit: &str) -> Option<String> {
    let is_commit = commit.len() >= DIGITS && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| commit[..DIGITS].to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    let ended = Command::new("git").args(arguments).output().ok().filter(|ended| ended.status.success())?;
    String::from_utf8(ended.stdout).ok().map(|text| text.trim().to_owned())
}
