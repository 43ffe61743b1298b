//! HTTP as the client needs it: a request with a body, and an answer that is read piece by piece.

use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest,
    Scheme,
};
use wasip2::io::streams::{InputStream, StreamError};

use crate::settings::Address;

/// Bytes that are read of an answer at a time.
const PIECE_BYTES: u64 = 1 << 16;
/// Bytes that are written of a request at a time: what `blocking-write-and-flush` takes at most.
const WRITE_BYTES: usize = 4096;

/// Header fields of a request.
pub(crate) type Headers = Vec<(String, String)>;

/// What a server answered.
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Media type, in lower case and without parameters.
    pub(crate) media_type: String,
    /// Where a redirect leads.
    pub(crate) location: Option<String>,
    /// The session that the server has begun.
    pub(crate) session: Option<String>,
    /// The body, piece by piece. Dropping it closes the connection.
    pub(crate) body: Box<dyn Iterator<Item = Result<Vec<u8>, String>>>,
}

/// What requests go through: the host's `wasi:http`, or in unit tests a script.
pub(crate) trait Wire {
    /// Sends a body and hands back the answer as soon as it begins.
    fn post(&mut self, headers: &Headers, body: &[u8]) -> Result<Response, String>;
    /// Ends a session. Whether the server does that is its own affair.
    fn delete(&mut self, headers: &Headers);
}

/// The host's `wasi:http`.
pub(crate) struct Http<'a> {
    pub(crate) address: &'a Address,
}

impl Wire for Http<'_> {
    fn post(&mut self, headers: &Headers, body: &[u8]) -> Result<Response, String> {
        self.send(&Method::Post, headers, body)
            .and_then(|response| read(&response))
            .map_err(|error| explain(&error))
    }

    fn delete(&mut self, headers: &Headers) {
        // Read no further than its head: nothing that the answer says could change what the caller gets.
        let _ = self.send(&Method::Delete, headers, b"");
    }
}

impl Http<'_> {
    fn send(
        &self,
        method: &Method,
        headers: &Headers,
        bytes: &[u8],
    ) -> Result<IncomingResponse, ErrorCode> {
        let fields = Fields::new();
        for (name, value) in headers {
            let refused =
                |_| ErrorCode::InternalError(Some(format!("the header `{name}` cannot be sent")));
            fields.append(name, value.as_bytes()).map_err(refused)?;
        }
        let request = OutgoingRequest::new(fields);
        let scheme = match self.address.is_https {
            true => Scheme::Https,
            false => Scheme::Http,
        };
        let invalid = |()| ErrorCode::HttpRequestUriInvalid;
        request.set_method(method).map_err(invalid)?;
        request.set_scheme(Some(&scheme)).map_err(invalid)?;
        request
            .set_authority(Some(&self.address.authority))
            .map_err(invalid)?;
        request
            .set_path_with_query(Some(&self.address.path))
            .map_err(invalid)?;
        let lost = |()| ErrorCode::InternalError(None);
        let body = request.body().map_err(lost)?;
        let response = outgoing_handler::handle(request, None)?;
        let stream = body.write().map_err(lost)?;
        for piece in bytes.chunks(WRITE_BYTES) {
            // Closed: the server has its answer ready before it has read all.
            if stream.blocking_write_and_flush(piece).is_err() {
                break;
            }
        }
        drop(stream);
        // Where the server has not waited for the end, its answer says more than this error.
        let _ = OutgoingBody::finish(body, None);
        response.subscribe().block();
        match response.get() {
            Some(Ok(outcome)) => outcome,
            _ => Err(ErrorCode::InternalError(None)),
        }
    }
}

fn read(response: &IncomingResponse) -> Result<Response, ErrorCode> {
    let headers = response.headers();
    let header = |name: &str| {
        let value = headers.get(name).into_iter().next()?;
        String::from_utf8(value).ok()
    };
    let media_type = header("content-type").unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    let (media_type, location, session) = (
        media_type.to_ascii_lowercase(),
        header("location"),
        header("mcp-session-id"),
    );
    let lost = |()| ErrorCode::InternalError(None);
    let body = response.consume().map_err(lost)?;
    let stream = body.stream().map_err(lost)?;
    Ok(Response {
        status: response.status(),
        media_type,
        location,
        session,
        body: Box::new(Pieces {
            stream,
            _body: body,
        }),
    })
}

/// The body of an answer. The stream is declared first, since it has to go before the body that it is of.
struct Pieces {
    stream: InputStream,
    _body: IncomingBody,
}

impl Iterator for Pieces {
    type Item = Result<Vec<u8>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.stream.blocking_read(PIECE_BYTES) {
            Ok(piece) => Some(Ok(piece)),
            Err(StreamError::Closed) => None,
            Err(StreamError::LastOperationFailed(error)) => {
                let code = wasip2::http::types::http_error_code(&error);
                Some(Err(explain(
                    &code.unwrap_or(ErrorCode::InternalError(None)),
                )))
            }
        }
    }
}

/// What went wrong, in words for whoever calls. The operator's log has what the host knows beyond that.
fn explain(error: &ErrorCode) -> String {
    match error {
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => {
            "the host does not let the request out; the operator has to name the server in `hosts` or `private_hosts`".to_owned()
        }
        ErrorCode::ConnectionRefused => "no connection to it could be made".to_owned(),
        ErrorCode::DnsError(_) => "its name has no address".to_owned(),
        ErrorCode::TlsCertificateError => "its certificate is not trusted; the operator can name its root in `trusted_roots`".to_owned(),
        ErrorCode::HttpResponseIncomplete => "it closed the connection before the end of its answer".to_owned(),
        ErrorCode::HttpResponseBodySize(_) => "its answer is larger than what the host takes in".to_owned(),
        ErrorCode::HttpRequestBodySize(_) => "the arguments are larger than what the host lets out".to_owned(),
        ErrorCode::InternalError(Some(reason)) => reason.clone(),
        other => format!("{other:?}"),
    }
}
