//! The HTTP server: few connections, small requests, short waits. A peer can hold no more than that.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rocketpy_broker::{Accepted, FailedCheck, ServerTls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{JoinSet, spawn_blocking};
use tracing::{debug, warn};

use super::{Source, Watched, prometheus};

/// Connections that are served at a time. Further ones wait in the system's queue until one ends.
const MAX_CONNECTIONS: usize = 32;
/// Bytes of a request's head: hyper takes no less than 8 KiB.
const MAX_HEAD_BYTES: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
/// Time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for a whole connection: peers come again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
/// Readings of all metrics that run, wait, or whose text is not written yet. Health has its answer without one.
const MAX_SCRAPES: usize = 4;
/// Pause after a failed accept: most often the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const TEXT: &str = "text/plain; charset=utf-8";

struct Service {
    watched: Watched,
    scrapes: Arc<Semaphore>,
}

/// Metrics as text, which count as a scrape until the peer has them.
struct Text {
    text: String,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Serves until `stopped` resolves.
pub(super) async fn serve(
    listener: std::net::TcpListener,
    tls: Option<Arc<ServerTls>>,
    watched: Watched,
    mut stopped: oneshot::Receiver<()>,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return warn!(%error, "metrics and health not served"),
    };
    let service = Arc::new(Service { watched, scrapes: Arc::new(Semaphore::new(MAX_SCRAPES)) });
    let mut connections = JoinSet::new();
    loop {
        let may_accept = connections.len() < MAX_CONNECTIONS;
        tokio::select! {
            _ = &mut stopped => return,
            accepted = listener.accept(), if may_accept => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, tls.clone(), service.clone()))),
                Err(error) => {
                    warn!(%error, "HTTP connection not accepted, retrying");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves a connection, by TLS where the peer begins a handshake.
async fn connection(stream: TcpStream, tls: Option<Arc<ServerTls>>, service: Arc<Service>) {
    let served = async {
        match tls {
            None => answer_all(stream, service).await,
            Some(tls) => match tls.accept(stream, HEAD_TIMEOUT).await {
                Ok(Accepted::Plain(stream)) => answer_all(stream, service).await,
                Ok(Accepted::Encrypted(stream)) => answer_all(stream, service).await,
                Err(refused) => debug!(reason = %refused, "HTTP connection refused"),
            },
        }
    };
    if tokio::time::timeout(CONNECTION_TIMEOUT, served).await.is_err() {
        debug!("HTTP connection closed after its time");
    }
}

async fn answer_all(stream: impl AsyncRead + AsyncWrite + Unpin, service: Arc<Service>) {
    let answer = service_fn(move |request| answer(request, service.clone()));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .keep_alive(true)
        .serve_connection(TokioIo::new(stream), answer);
    if let Err(error) = served.await {
        debug!(%error, "HTTP connection ended");
    }
}

async fn answer(
    request: Request<Incoming>,
    service: Arc<Service>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    Ok(match request.uri().path() {
        "/metrics" | "/" => metrics(&request, &service).await,
        "/readyz" => health("ready", service.watched.ready()),
        "/livez" => health("alive", service.watched.alive()),
        _ => text(StatusCode::NOT_FOUND, "not found; try /metrics, /readyz or /livez\n".to_owned()),
    })
}

/// One line for each failing check.
fn health(word: &str, checked: Result<(), Vec<FailedCheck>>) -> Response<Full<Bytes>> {
    match checked {
        Ok(()) => text(StatusCode::OK, format!("{word}\n")),
        Err(failed) => {
            let lines = failed.iter().map(|check| format!("{check}\n")).collect();
            text(StatusCode::SERVICE_UNAVAILABLE, lines)
        }
    }
}

async fn metrics(request: &Request<Incoming>, service: &Service) -> Response<Full<Bytes>> {
    let Ok(place) = service.scrapes.clone().try_acquire_owned() else {
        return text(StatusCode::TOO_MANY_REQUESTS, "too many requests for metrics at a time\n".to_owned());
    };
    let Some(source) = service.watched.source() else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "the broker is not running\n".to_owned());
    };
    let accepted = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = prometheus::Format::of(accepted.unwrap_or_default());
    let read = move || match source {
        Source::Broker(broker) => prometheus::text(&broker, format),
        Source::NameServer(figures) => prometheus::text_of_name_server(&figures, format),
    };
    match spawn_blocking(read).await {
        Ok(text) => {
            let body = Bytes::from_owner(Text { text, _place: place });
            response(StatusCode::OK, format.content_type(), body)
        }
        Err(error) => {
            warn!(%error, "metrics not read");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "cannot read the metrics; see the log of the server\n".to_owned(),
            )
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    response(status, TEXT, body.into())
}

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
