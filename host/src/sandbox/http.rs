//! `wasi:http/outgoing-handler`: one request of a guest, from its grant to the last byte of its answer.
//!
//! A request is matched against the grants; its name is resolved once, here; every address is checked, and one of those is
//! connected to, while TLS and the `Host` header keep the name. Redirects are answers like any other: a guest that follows
//! one sends a new request.
//!
//! Invariant: whatever a request holds (task, socket, timer) ends with the store of its call. A guest's own timeouts can only
//! end it sooner.

use std::error::Error as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};
use url::Host;
use wasmtime_wasi::p2::IoError;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpHooks};

use super::hosts::{HostGrant, Reach, Scheme, Target};
use super::journal::{Journal, Source};
use super::limits::{BODY_BYTES, FIELDS_BYTES, REQUEST_CHUNK_BYTES, REQUESTS};
use crate::contract::Level;

/// How long one of several addresses is tried before the next one: long enough for three attempts of TCP, which repeats
/// after 1 s and 2 s.
const ATTEMPT: Duration = Duration::from_secs(3);

/// What a call keeps for its requests.
pub(super) struct Requests {
    pub(super) context: WasiHttpCtx,
    pub(super) gate: Gate,
}

impl Requests {
    pub(super) fn new(
        hosts: Arc<[HostGrant]>,
        tls: Arc<ClientConfig>,
        deadline: Instant,
        journal: Journal,
    ) -> Self {
        let mut context = WasiHttpCtx::new();
        context.set_field_size_limit(FIELDS_BYTES);
        Self {
            context,
            gate: Gate {
                hosts,
                tls,
                deadline,
                journal,
                open: Arc::new(Semaphore::new(REQUESTS)),
            },
        }
    }
}

/// Lets requests out, or does not.
#[derive(Clone)]
pub(super) struct Gate {
    hosts: Arc<[HostGrant]>,
    /// Whom the plugin trusts.
    tls: Arc<ClientConfig>,
    deadline: Instant,
    journal: Journal,
    /// One for each request whose answer is not yet read to its end.
    open: Arc<Semaphore>,
}

type Sent = (
    Response<WasiBody>,
    Box<dyn Future<Output = Result<(), Error>> + Send>,
);

impl WasiHttpHooks for Gate {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<Sent, Error>> + Send> {
        let gate = self.clone();
        Box::new(async move { gate.send(request, options.unwrap_or_default()).await })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        REQUEST_CHUNK_BYTES
    }

    fn p2_error_from_hyper(&mut self, error: &hyper::Error) -> ErrorCode {
        self.note(&format!("a request failed: {error}"));
        // The body of the request says itself why it ended.
        match error.source().and_then(|source| source.downcast_ref()) {
            Some(Error::HttpRequestBodySize(size)) => ErrorCode::HttpRequestBodySize(*size),
            _ if error.is_incomplete_message() => ErrorCode::HttpResponseIncomplete,
            _ => ErrorCode::HttpProtocolError,
        }
    }

    fn p2_error_from_connect(&mut self, error: &std::io::Error) -> ErrorCode {
        self.note(&format!("a connection failed: {error}"));
        ErrorCode::ConnectionRefused
    }

    fn p2_error_from_tls(&mut self, error: &std::io::Error) -> ErrorCode {
        self.note(&format!("TLS failed: {error}"));
        match error.get_ref().and_then(|error| error.downcast_ref()) {
            Some(rustls::Error::InvalidCertificate(_)) => ErrorCode::TlsCertificateError,
            _ => ErrorCode::TlsProtocolError,
        }
    }
}

impl Gate {
    async fn send(
        self,
        mut request: Request<WasiBody>,
        options: RequestOptions,
    ) -> Result<Sent, Error> {
        let (target, reach) = self.admit(&request)?;
        let Ok(open) = self.open.clone().try_acquire_owned() else {
            self.deny(&format!(
                "`{target}` would be one request more than the {REQUESTS} that a call may have open"
            ));
            return Err(Error::ConnectionLimitReached);
        };
        let connect = self.connect(&target, reach);
        let stream = within(
            self.shorter(options.connect_timeout),
            Error::ConnectionTimeout,
            connect,
        )
        .await?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(FIELDS_BYTES)
            .handshake::<_, Bounded<WasiBody>>(TokioIo::new(stream))
            .await?;
        let connection =
            wasmtime_wasi::runtime::spawn(async move { connection.await.map_err(Error::from) });

        // The form for origins, and the name that was checked.
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        *request.uri_mut() = path.parse().map_err(|_| Error::HttpRequestUriInvalid)?;
        let authority =
            HeaderValue::try_from(target.authority()).map_err(|_| Error::HttpRequestUriInvalid)?;
        request.headers_mut().insert(header::HOST, authority);
        let request = request.map(|body| Bounded::new(body, Error::HttpRequestBodySize));

        let first_byte = self.shorter(options.first_byte_timeout);
        let send = async { sender.send_request(request).await.map_err(Error::from) };
        let response = within(first_byte, Error::ConnectionReadTimeout, send).await?;
        if let Some(size) = response
            .body()
            .size_hint()
            .exact()
            .filter(|size| *size > BODY_BYTES)
        {
            self.note(&format!(
                "`{target}` answers with {size} bytes, and {BODY_BYTES} may come in"
            ));
            return Err(Error::HttpResponseBodySize(Some(size)));
        }
        let between_bytes = self.shorter(options.between_bytes_timeout);
        let response = response.map(|body| {
            let bounded = Bounded {
                between_bytes,
                open: Some(open),
                ..Bounded::new(body, Error::HttpResponseBodySize)
            };
            bounded.boxed_unsync()
        });
        // The body tells the guest what breaks; told here, it would be a line of the log for each request and past the count.
        let connection = async move {
            let _ = connection.await;
            Ok(())
        };
        Ok((response, Box::new(connection)))
    }

    /// Where the request wants to go, and with which right.
    fn admit(&self, request: &Request<WasiBody>) -> Result<(Target, Reach), Error> {
        let target = Target::of(request.uri()).map_err(|reason| {
            self.deny(&reason);
            Error::HttpRequestDenied
        })?;
        if request.method() == Method::CONNECT {
            self.deny(&format!(
                "`{target}` was asked for a tunnel, through which anything could be reached"
            ));
            return Err(Error::HttpRequestMethodInvalid);
        }
        let Some(reach) = Reach::of(&target, &self.hosts) else {
            self.deny(&format!(
                "`{target}` is not granted: to allow it, add \"{target}\" to `hosts`"
            ));
            return Err(Error::HttpRequestDenied);
        };
        Ok((target, reach))
    }

    /// Resolves once, checks every address, and connects to the first of these that answers.
    async fn connect(&self, target: &Target, reach: Reach) -> Result<Box<dyn Stream>, Error> {
        let addresses: Vec<SocketAddr> = match &target.host {
            Host::Ipv4(address) => vec![SocketAddr::from((*address, target.port))],
            Host::Ipv6(address) => vec![SocketAddr::from((*address, target.port))],
            Host::Domain(name) => {
                let resolved =
                    lookup_host((name.as_str(), target.port))
                        .await
                        .map_err(|error| {
                            self.note(&format!("`{name}` has no address: {error}"));
                            Error::DnsError {
                                rcode: None,
                                info_code: None,
                            }
                        })?;
                resolved.collect()
            }
        };
        reach.check(target, &addresses).map_err(|reason| {
            self.deny(&reason);
            Error::DestinationIpProhibited
        })?;
        let stream = dial(&addresses).await?;
        match target.scheme {
            Scheme::Http => Ok(Box::new(stream)),
            Scheme::Https => {
                let name = match &target.host {
                    Host::Ipv4(address) => ServerName::from(*address),
                    Host::Ipv6(address) => ServerName::from(*address),
                    Host::Domain(name) => ServerName::try_from(name.clone())
                        .map_err(|_| Error::HttpRequestUriInvalid)?,
                };
                let stream = TlsConnector::from(self.tls.clone())
                    .connect(name, stream)
                    .await
                    .map_err(Error::Tls)?;
                Ok(Box::new(stream))
            }
        }
    }

    /// A guest's timeout where it ends before the call does. Otherwise the deadline of the call is the timeout: a timer of
    /// that length would race with it, and the guest might answer for what the host has to.
    fn shorter(&self, asked: Option<Duration>) -> Option<Duration> {
        asked.filter(|asked| {
            Instant::now()
                .checked_add(*asked)
                .is_some_and(|end| end < self.deadline)
        })
    }

    /// Tells the operator which grant was missing. It counts as a line of the call, so a guest cannot flood the log with it.
    fn deny(&self, reason: &str) {
        self.journal.write(
            Level::Warn,
            Source::Host,
            format!("a request was denied: {reason}").as_bytes(),
        );
    }

    fn note(&self, text: &str) {
        self.journal
            .write(Level::Info, Source::Host, text.as_bytes());
    }
}

/// What ended a body, in the guest's words, where an error of a stream is that of a body.
pub(super) fn body_error(error: &IoError) -> Option<ErrorCode> {
    if let Some(code) = error.downcast_ref::<ErrorCode>() {
        return Some(code.clone());
    }
    Some(match error.downcast_ref::<Error>()? {
        Error::HttpResponseBodySize(size) => ErrorCode::HttpResponseBodySize(*size),
        Error::ConnectionReadTimeout => ErrorCode::ConnectionReadTimeout,
        Error::Hyper(error) if error.is_incomplete_message() => ErrorCode::HttpResponseIncomplete,
        _ => ErrorCode::HttpProtocolError,
    })
}

/// A connection, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, Error> {
    let mut last = Error::DnsError {
        rcode: None,
        info_code: None,
    };
    for (index, address) in addresses.iter().enumerate() {
        let limit = (index + 1 < addresses.len()).then_some(ATTEMPT);
        let dial = async { TcpStream::connect(address).await.map_err(Error::Connect) };
        match within(limit, Error::ConnectionTimeout, dial).await {
            Ok(stream) => {
                // Requests are written whole; waiting for more to send would only delay them.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The outcome of `work`, or `late` where there is a limit and it passes first.
async fn within<T>(
    limit: Option<Duration>,
    late: Error,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match limit {
        None => work.await,
        Some(limit) => timeout(limit, work).await.unwrap_or(Err(late)),
    }
}

/// A body that ends with an error after [`BODY_BYTES`], or when nothing comes for longer than the guest will wait.
struct Bounded<B> {
    inner: B,
    bytes: u64,
    /// The error for so many bytes.
    too_large: fn(Option<u64>) -> Error,
    between_bytes: Option<Duration>,
    /// Runs while the body is waited for.
    timer: Option<Pin<Box<Sleep>>>,
    /// Given back when the body is read or dropped.
    open: Option<OwnedSemaphorePermit>,
}

impl<B> Bounded<B> {
    fn new(inner: B, too_large: fn(Option<u64>) -> Error) -> Self {
        Self {
            inner,
            bytes: 0,
            too_large,
            between_bytes: None,
            timer: None,
            open: None,
        }
    }
}

impl<B> Body for Bounded<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Error>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Pending => {
                let Some(limit) = this.between_bytes else {
                    return Poll::Pending;
                };
                let timer = this.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
                timer
                    .as_mut()
                    .poll(context)
                    .map(|()| Some(Err(Error::ConnectionReadTimeout)))
            }
            Poll::Ready(frame) => {
                this.timer = None;
                if frame.is_none() {
                    this.open = None;
                }
                Poll::Ready(frame.map(|frame| {
                    let frame = frame.map_err(Into::into)?;
                    this.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                    if this.bytes > BODY_BYTES {
                        Err((this.too_large)(Some(this.bytes)))
                    } else {
                        Ok(frame)
                    }
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
