//! TLS of a process: certificates are read at the start and again when their files change.

use std::time::Duration;

use rocketpy_broker::{ClientTls, ClientTlsFiles, ServerTls, Tls, TlsError, TlsMode, Trust};
use rocketpy_env::now_ms;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::config::TlsConfig;

/// How often the files are compared with what is in use.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Remaining validity of a certificate below which a warning is logged, and how often.
const WARN_WITHIN_MS: i64 = 30 * DAY_MS;
const DAY_MS: i64 = 86_400_000;

/// Reads certificates and keys. `is_alone`: the broker uses the name server of its process.
///
/// # Errors
/// A file cannot be read or used.
pub(crate) fn load(config: &TlsConfig, is_alone: bool) -> Result<Tls, TlsError> {
    let server = ServerTls::load(config.server.clone())?;
    let own = config.server.cert.clone().filter(|_| is_alone && config.server.mode == TlsMode::Enforcing);
    let files = match own {
        _ if config.is_used => Some(config.of_client()),
        Some(own) => Some(ClientTlsFiles { trust: Trust::Exactly(own), ..config.client.clone() }),
        None => None,
    };
    let client = files.map(ClientTls::load).transpose()?;
    Ok(Tls { server, client })
}

/// Uses changed files, and warns before a certificate expires, until aborted.
pub(crate) async fn watch(tls: Tls) {
    if tls.server.is_none() && tls.client.is_none() {
        return;
    }
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut warned_at_ms = None;
    loop {
        ticks.tick().await;
        let tried = tls.clone();
        let Ok(has_changed) = spawn_blocking(move || reload(&tried)).await else { return };
        let now_ms = now_ms();
        if has_changed || warned_at_ms.is_none_or(|at_ms: i64| now_ms - at_ms >= DAY_MS) {
            warned_at_ms = Some(now_ms);
            warn_of_expiry(&tls, now_ms);
        }
    }
}

fn reload(tls: &Tls) -> bool {
    let server = tls.server.as_ref().map(|server| server.reload());
    let client = tls.client.as_ref().map(|client| client.reload());
    let mut has_changed = false;
    for (side, reloaded) in [("server", server), ("client", client)] {
        match reloaded {
            Some(Ok(true)) => {
                info!(side, "TLS certificate reloaded");
                has_changed = true;
            }
            Some(Err(error)) => {
                warn!(side, %error, "TLS files not reloaded, the former certificate stays in use")
            }
            Some(Ok(false)) | None => {}
        }
    }
    has_changed
}

fn warn_of_expiry(tls: &Tls, now_ms: i64) {
    let Some(server) = &tls.server else { return };
    let left_ms = server.expires_at_ms() - now_ms;
    if left_ms <= 0 {
        warn!("TLS certificate expired, clients that verify it cannot connect");
    } else if left_ms < WARN_WITHIN_MS {
        warn!(days = left_ms / DAY_MS, "TLS certificate expires soon");
    }
}
