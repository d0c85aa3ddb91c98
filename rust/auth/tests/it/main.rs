//! Users and policies from outside: killed while they change, and what each request needs.

mod killed;
mod permissions_page;
