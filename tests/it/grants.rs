//! What a plugin is granted and what it is not: requests against real servers on loopback, secrets, files, and what it sees
//! of the host.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll::shape::{Code, Reply};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use crate::support::{TestHost, component, json as parse, plimsoll};

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// A server that answers every connection in its own way.
struct Server {
    address: SocketAddr,
    /// The heads of the requests that came in.
    seen: Arc<Mutex<Vec<String>>>,
    running: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Server {
    /// Reads the head of each request and hands the connection to `answer`.
    async fn start<F>(answer: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::start_on([127, 0, 0, 1].into(), answer).await
    }

    async fn start_on<F>(address: IpAddr, answer: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let heads = seen.clone();
        let running = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                heads
                    .lock()
                    .unwrap()
                    .push(String::from_utf8_lossy(&head).into_owned());
                tokio::spawn(answer(stream));
            }
        });
        Self {
            address,
            seen,
            running,
        }
    }

    /// A server that says `hello`.
    async fn hello() -> Self {
        Self::start(|stream| {
            say(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello".to_owned(),
            )
        })
        .await
    }

    fn authority(&self) -> String {
        self.address.to_string()
    }

    fn grant(&self) -> String {
        format!("private_hosts = [\"http://{}\"]", self.address)
    }

    fn requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

async fn say(mut stream: TcpStream, answer: String) {
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// The entry of a plugin that sends requests.
fn fetcher(grants: &str) -> String {
    format!(
        "[plugins.fetcher]\ncomponent = {:?}\n{grants}\n",
        component("guests/fetcher.wasm")
    )
}

async fn host(grants: &str) -> TestHost {
    TestHost::start(&fetcher(grants)).await
}

fn document(reply: &Reply) -> Value {
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    parse(reply.body())
}

async fn fetch(host: &TestHost, arguments: Value) -> Value {
    document(&host.call("fetch", arguments).await)
}

async fn error(host: &TestHost, arguments: Value) -> String {
    let document = fetch(host, arguments).await;
    document["error"]
        .as_str()
        .unwrap_or_else(|| panic!("it was let through: {document}"))
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_host_is_reached_and_hears_the_name_that_was_checked() {
    let server = Server::hello().await;
    let host = host(&server.grant()).await;
    let document = fetch(
        &host,
        json!({ "authority": server.authority(), "path": "/a?b=c" }),
    )
    .await;
    assert_eq!(
        document,
        json!({ "status": 200, "bytes": 5, "text": "hello" })
    );
    let head = server.seen.lock().unwrap()[0].to_lowercase();
    assert!(head.starts_with("get /a?b=c http/1.1\r\n"), "{head}");
    assert!(
        head.contains(&format!("\r\nhost: {}\r\n", server.authority())),
        "{head}"
    );
    // In other words for the same address.
    let decimal = format!("2130706433:{}", server.address.port());
    assert_eq!(
        fetch(&host, json!({ "authority": decimal })).await["status"],
        200
    );
    let head = server.seen.lock().unwrap()[1].to_lowercase();
    assert!(
        head.contains(&format!("\r\nhost: {}\r\n", server.authority())),
        "{head}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_port_scheme_or_host_is_denied_and_hears_nothing() {
    let (granted, other) = (Server::hello().await, Server::hello().await);
    let host = host(&granted.grant()).await;
    let port = granted.address.port();
    for arguments in [
        json!({ "authority": other.authority() }),
        json!({ "authority": granted.authority(), "scheme": "https" }),
        json!({ "authority": format!("localhost:{port}") }),
        json!({ "authority": format!("127.0.0.2:{port}") }),
        json!({ "authority": format!("[::1]:{port}") }),
        json!({ "authority": "127.0.0.1" }),
    ] {
        assert_eq!(
            error(&host, arguments.clone()).await,
            "ErrorCode::HttpRequestDenied",
            "{arguments}"
        );
    }
    assert_eq!((granted.requests(), other.requests()), (0, 0));
    let tunnel = json!({ "authority": granted.authority(), "method": "CONNECT" });
    assert_eq!(
        error(&host, tunnel).await,
        "ErrorCode::HttpRequestMethodInvalid"
    );
    assert_eq!(granted.requests(), 0);
}

/// Case Q1.
#[tokio::test(flavor = "multi_thread")]
async fn q1_a_host_that_only_looks_like_the_granted_one_is_denied() {
    let host = host("hosts = [\"http://api.example.com\", \"http://*.example.org\"]").await;
    for (authority, path) in [
        ("api.example.com.evil.test", "/"),
        ("evil.test", "/?x=api.example.com"),
        ("evil.test", "/api.example.com"),
        ("xapi.example.com", "/"),
        ("example.com", "/"),
        ("example.org", "/"),
        ("xexample.org", "/"),
        ("a.example.org.evil.test", "/"),
        ("api.example.com@evil.test", "/"),
        ("evil.test:80@api.example.com", "/"),
    ] {
        let error = error(&host, json!({ "authority": authority, "path": path })).await;
        assert!(
            [
                "ErrorCode::HttpRequestDenied",
                "ErrorCode::HttpRequestUriInvalid"
            ]
            .contains(&error.as_str()),
            "{authority}: {error}"
        );
    }
}

/// Case Q3. `localhost` is a name whose address is private, as a rebound name's is.
#[tokio::test(flavor = "multi_thread")]
async fn q3_a_name_with_a_private_address_needs_a_private_grant() {
    let server = Server::hello().await;
    let (port, authority) = (
        server.address.port(),
        format!("localhost:{}", server.address.port()),
    );
    let public = host(&format!("hosts = [\"http://{authority}\"]")).await;
    assert_eq!(
        error(&public, json!({ "authority": authority })).await,
        "ErrorCode::DestinationIpProhibited"
    );
    assert_eq!(server.requests(), 0);
    let private = host(&format!("private_hosts = [\"http://{authority}\"]")).await;
    assert_eq!(
        fetch(&private, json!({ "authority": authority })).await["text"],
        "hello"
    );
    let head = server.seen.lock().unwrap()[0].to_lowercase();
    assert!(
        head.contains(&format!("\r\nhost: {authority}\r\n")),
        "{head}"
    );
    // A user before the host, and the granted name as the user.
    for authority in [
        format!("user@{authority}"),
        format!("{authority}@127.0.0.1:{port}"),
    ] {
        let error = error(&private, json!({ "authority": authority })).await;
        assert!(
            [
                "ErrorCode::HttpRequestDenied",
                "ErrorCode::HttpRequestUriInvalid"
            ]
            .contains(&error.as_str()),
            "{authority}: {error}"
        );
    }
    assert_eq!(server.requests(), 1);
}

/// Case Q3: an IPv6 literal with a port is one host and one port.
#[tokio::test(flavor = "multi_thread")]
async fn q3_an_address_of_ipv6_is_read_whole() {
    let hello = |stream| {
        say(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".to_owned(),
        )
    };
    let server = Server::start_on("::1".parse().unwrap(), hello).await;
    let host = host(&server.grant()).await;
    assert_eq!(
        fetch(&host, json!({ "authority": server.authority() })).await["text"],
        "hello"
    );
    let mapped = format!("[::ffff:127.0.0.1]:{}", server.address.port());
    assert_eq!(
        error(&host, json!({ "authority": mapped })).await,
        "ErrorCode::HttpRequestDenied"
    );
}

/// Case Q3: what is connected to is an address, what TLS asks for is the name; and nobody is trusted who only has the address.
#[tokio::test(flavor = "multi_thread")]
async fn q3_tls_keeps_the_name_and_refuses_a_certificate_that_nobody_signed() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("localhost:{}", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream)
            .await
            .unwrap();
        let name = hello.client_hello().server_name().map(str::to_owned);
        let refused = hello.into_stream(Arc::new(tls)).await.is_err();
        (name, refused)
    });
    let host = host(&format!("private_hosts = [\"https://{authority}\"]")).await;
    let error = error(&host, json!({ "authority": authority, "scheme": "https" })).await;
    assert_eq!(error, "ErrorCode::TlsCertificateError");
    assert_eq!(server.await.unwrap(), (Some("localhost".to_owned()), true));
}

/// An authority that nobody knows, as private services have one.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let text = STANDARD.encode(params.self_signed(&key).unwrap().der());
        Self {
            pem: format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"),
            issuer: Issuer::new(params, key),
        }
    }

    /// A server that says `hello` over TLS, with a certificate for this name; where it listens, by the name `localhost`.
    async fn serve(&self, name: &str) -> String {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // One that does not trust the certificate hangs up.
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let body = String::from_utf8(head).unwrap().to_lowercase();
                let length = body.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
            }
        });
        format!("localhost:{port}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_service_is_trusted_over_tls_where_its_authority_is_granted() {
    let (ours, other) = (Authority::new(), Authority::new());
    let authority = ours.serve("localhost").await;
    let misnamed = ours.serve("another.test").await;
    let folder = tempfile::tempdir().unwrap();
    for (name, pem) in [("ours.pem", &ours.pem), ("other.pem", &other.pem)] {
        std::fs::write(folder.path().join(name), pem).unwrap();
    }
    let both = format!("{}{}", other.pem, ours.pem);
    std::fs::write(folder.path().join("both.pem"), both).unwrap();
    let with = async |roots: Option<&str>| {
        let roots = roots.map(|name| format!("trusted_roots = {:?}\n", folder.path().join(name)));
        let grants = format!(
            "{}private_hosts = [\"https://{authority}\", \"https://{misnamed}\"]",
            roots.unwrap_or_default()
        );
        host(&grants).await
    };
    let ask = |authority: &str| json!({ "authority": authority, "scheme": "https", "path": "/a" });
    for roots in ["ours.pem", "both.pem"] {
        let host = with(Some(roots)).await;
        let answer = fetch(&host, ask(&authority)).await;
        assert_eq!(answer["status"], 200, "{roots}: {answer}");
        let head = answer["text"].as_str().unwrap();
        assert!(head.starts_with("get /a http/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("host: {authority}\r\n")), "{head}");
        // Who is trusted may still not speak for another name.
        assert_eq!(
            error(&host, ask(&misnamed)).await,
            "ErrorCode::TlsCertificateError"
        );
    }
    for roots in [None, Some("other.pem")] {
        assert_eq!(
            error(&with(roots).await, ask(&authority)).await,
            "ErrorCode::TlsCertificateError",
            "{roots:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_a_new_request_with_a_new_check() {
    let secret = Server::hello().await;
    let location = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://{}/x\r\ncontent-length: 0\r\n\r\n",
        secret.address
    );
    let server = Server::start(move |stream| say(stream, location.clone())).await;
    let host = host(&server.grant()).await;
    // The host follows nothing by itself.
    assert_eq!(
        fetch(&host, json!({ "authority": server.authority() })).await["status"],
        302
    );
    assert_eq!(
        error(
            &host,
            json!({ "authority": server.authority(), "follow": true })
        )
        .await,
        "ErrorCode::HttpRequestDenied"
    );
    assert_eq!(secret.requests(), 0);
    let both = TestHost::start(&fetcher(&format!(
        "private_hosts = [\"http://{}\", \"http://{}\"]",
        server.address, secret.address
    )))
    .await;
    assert_eq!(
        fetch(
            &both,
            json!({ "authority": server.authority(), "follow": true })
        )
        .await["text"],
        "hello"
    );
}

/// Case N3: whatever the guest's timeouts, the call's deadline ends the request and its connection.
#[tokio::test(flavor = "multi_thread")]
async fn n3_a_server_that_never_ends_is_left_at_the_deadline() {
    let (closed, mut closes) = tokio::sync::mpsc::unbounded_channel();
    let never = |head: &'static str, closed: tokio::sync::mpsc::UnboundedSender<()>| {
        Server::start(move |mut stream: TcpStream| {
            let closed = closed.clone();
            async move {
                stream.write_all(head.as_bytes()).await.unwrap();
                let (mut reader, mut writer) = stream.into_split();
                let drip = async {
                    // Where there is a head, a byte every 20 ms restarts whatever counts between bytes.
                    while !head.is_empty() && writer.write_all(b"x").await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    () = drip => {}
                    _ = reader.read_u8() => {}
                }
                closed.send(()).unwrap();
            }
        })
    };
    let silent = never("", closed.clone()).await;
    let dripping = never("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", closed).await;
    for server in [&silent, &dripping] {
        let host = host(&format!("{}\nlimits.deadline_ms = 500", server.grant())).await;
        for timeouts in [
            json!({}),
            json!({ "connect_ms": 600_000, "first_byte_ms": 600_000, "between_bytes_ms": u64::MAX }),
        ] {
            let mut arguments = timeouts.clone();
            arguments["authority"] = json!(server.authority());
            let begun = Instant::now();
            let reply = host.call("fetch", arguments).await;
            assert_eq!(
                reply.refusal(),
                Some(Code::InvokeTimeout),
                "{}",
                reply.body()
            );
            assert!(
                begun.elapsed() >= Duration::from_millis(500)
                    && begun.elapsed() < Duration::from_secs(3),
                "{:?}",
                begun.elapsed()
            );
            tokio::time::timeout(LONG, closes.recv())
                .await
                .expect("the connection is still open")
                .unwrap();
        }
    }
    // A guest may wait for less.
    let host = host(&format!(
        "{}\n{}",
        silent.grant(),
        "limits.deadline_ms = 20000"
    ))
    .await;
    let waited = error(
        &host,
        json!({ "authority": silent.authority(), "first_byte_ms": 50 }),
    )
    .await;
    assert_eq!(waited, "ErrorCode::ConnectionReadTimeout");
    tokio::time::timeout(LONG, closes.recv())
        .await
        .expect("the connection is still open")
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_may_wait_less_between_bytes_than_the_call_lasts() {
    let stuck = Server::start(|mut stream: TcpStream| async move {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
            .await;
        let _ = stream.read_u8().await;
    })
    .await;
    let host = host(&stuck.grant()).await;
    let waited = error(
        &host,
        json!({ "authority": stuck.authority(), "between_bytes_ms": 50 }),
    )
    .await;
    assert_eq!(waited, "ErrorCode::ConnectionReadTimeout");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_larger_than_the_bound_is_stopped() {
    // One that says so at once, and one that does not.
    let announced = Server::start(|stream| {
        say(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: 67108865\r\n\r\n".to_owned(),
        )
    })
    .await;
    let endless = Server::start(|mut stream: TcpStream| async move {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
            .await;
        let piece = vec![b'x'; 1 << 20];
        while stream.write_all(&piece).await.is_ok() {}
    })
    .await;
    for server in [&announced, &endless] {
        let host = host(&server.grant()).await;
        let error = error(&host, json!({ "authority": server.authority() })).await;
        assert!(error.contains("HttpResponseBodySize"), "{error}");
    }
    // As large as may be.
    let whole = Server::start(|mut stream: TcpStream| async move {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 67108864\r\n\r\n")
            .await;
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..64 {
            let _ = stream.write_all(&piece).await;
        }
    })
    .await;
    let host = host(&whole.grant()).await;
    assert_eq!(
        fetch(&host, json!({ "authority": whole.authority() })).await["bytes"],
        64 << 20
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_larger_than_the_bound_is_stopped() {
    let sink = Server::start(|mut stream: TcpStream| async move {
        let mut piece = vec![0; 1 << 16];
        while stream.read(&mut piece).await.is_ok_and(|bytes| bytes > 0) {}
    })
    .await;
    let host = host(&sink.grant()).await;
    let error = error(
        &host,
        json!({ "authority": sink.authority(), "body_bytes": (64 << 20) + 1 }),
    )
    .await;
    assert!(error.contains("HttpRequestBodySize"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_has_so_many_requests_open_and_no_more() {
    let server = Server::hello().await;
    let host = host(&server.grant()).await;
    let document = fetch(
        &host,
        json!({ "authority": server.authority(), "times": 40 }),
    )
    .await;
    let refused = document["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 40 - 1 - 32, "{document}");
    assert!(
        refused
            .iter()
            .all(|refused| refused == "ErrorCode::ConnectionLimitReached"),
        "{document}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_no_http_is_an_error_of_the_request() {
    for answer in [
        "nothing of the kind\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1 << 20)),
    ] {
        let server = Server::start(move |stream| say(stream, answer.clone())).await;
        let host = host(&server.grant()).await;
        let error = error(&host, json!({ "authority": server.authority() })).await;
        assert!(error.contains("ErrorCode::Http"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_of_hosts_lets_a_plugin_load_and_denies_every_request() {
    let server = Server::hello().await;
    let host = host("hosts = []").await;
    assert_eq!(
        error(&host, json!({ "authority": server.authority() })).await,
        "ErrorCode::HttpRequestDenied"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_without_hosts_does_not_load_and_the_message_has_the_lines_to_add() {
    let folder = tempfile::tempdir().unwrap();
    let output = plimsoll_in(folder.path(), &fetcher(""), &["check"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("`wasi:http/outgoing-handler@0.2."), "{text}");
    assert!(
        text.contains(
            "hint: add to `plimsoll.toml`\n[plugins.fetcher]\nhosts = [\"https://HOST\"]"
        ),
        "{text}"
    );
}

/// Case Q5.
#[tokio::test(flavor = "multi_thread")]
async fn q5_a_plugin_reads_its_own_values_and_secrets_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine.txt"), "mine\n").unwrap();
    std::fs::write(folder.path().join("theirs.txt"), "theirs\n").unwrap();
    let mine =
        fetcher("hosts = []\nconfig.colour = \"blue\"\nsecrets.KEY = { file = \"mine.txt\" }");
    let theirs = format!(
        "[plugins.hostile]\ncomponent = {:?}\nclock = true\nconfig.shade = \"dark\"\nsecrets.KEY = {{ file = \"theirs.txt\" }}\n\
         secrets.OTHER = {{ file = \"theirs.txt\" }}\n",
        component("guests/hostile.wasm")
    );
    let host = TestHost::start_in(folder, &format!("{mine}{theirs}"))
        .await
        .unwrap();
    assert_eq!(host.call("fine", json!({})).await.refusal(), None);
    assert_eq!(
        document(&host.call("values", json!({})).await),
        json!({ "colour": "blue", "KEY": "mine" })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_changed_is_the_plugins_at_the_next_reload() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.txt");
    std::fs::write(&file, "old").unwrap();
    let host = TestHost::start_in(
        folder,
        &fetcher("hosts = []\nsecrets.KEY = { file = \"key.txt\" }"),
    )
    .await
    .unwrap();
    assert_eq!(
        document(&host.call("values", json!({})).await)["KEY"],
        "old"
    );
    std::fs::write(&file, "new").unwrap();
    host.app.reload().await.unwrap();
    assert_eq!(
        document(&host.call("values", json!({})).await)["KEY"],
        "new"
    );
    // One that is gone leaves what serves as it is.
    std::fs::remove_file(&file).unwrap();
    host.app.reload().await;
    assert_eq!(
        document(&host.call("values", json!({})).await)["KEY"],
        "new"
    );
}

/// Case Q7.
#[tokio::test(flavor = "multi_thread")]
async fn q7_folder_process_and_environment_are_not_the_hosts() {
    let host = host("hosts = []").await;
    let place = document(&host.call("place", json!({})).await);
    assert_eq!(
        place,
        json!({ "folder": "/", "process_file": false, "variables": [], "arguments": 0 })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_written_where_the_entry_says_so_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["open", "closed", "beside"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    std::os::unix::fs::symlink("../beside", folder.path().join("open/way_out")).unwrap();
    let root = folder.path().to_owned();
    let files = "hosts = []\nfiles = [{ host = \"open\", guest = \"/open\", write = true }, { host = \"closed\", guest = \"/closed\" }]";
    let host = TestHost::start_in(folder, &fetcher(files)).await.unwrap();
    assert_eq!(
        document(
            &host
                .call("write", json!({ "path": "/open/a.txt", "text": "kept" }))
                .await
        ),
        json!({ "text": "kept" })
    );
    for path in [
        "/closed/a.txt",
        "/open/../beside/a.txt",
        "/open/way_out/a.txt",
        "/beside/a.txt",
        "a.txt",
        "/etc/a.txt",
    ] {
        let document = document(
            &host
                .call("write", json!({ "path": path, "text": "x" }))
                .await,
        );
        assert!(document["error"].is_string(), "{path}: {document}");
    }
    for name in ["closed", "beside"] {
        assert_eq!(
            std::fs::read_dir(root.join(name)).unwrap().count(),
            0,
            "{name}"
        );
    }
}

fn plimsoll_in(folder: &std::path::Path, config: &str, arguments: &[&str]) -> std::process::Output {
    let _ = std::fs::remove_dir_all(folder.join(".plimsoll"));
    crate::support::write_state(&folder.join(".plimsoll"));
    std::fs::write(folder.join("plimsoll.toml"), config).unwrap();
    plimsoll()
        .args(arguments)
        .current_dir(folder)
        .env("PLIMSOLL_TEST_TOKEN", "hunter2")
        .env("PLIMSOLL_LOG", "plimsoll=trace")
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_set_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let config = fetcher(
        "hosts = [\"https://api.example.com\"]\nprivate_hosts = [\"http://127.0.0.1:9000\"]\nsecrets.TOKEN = { env = \"PLIMSOLL_TEST_TOKEN\" }",
    );
    let component = component("guests/fetcher.wasm");
    let inspect = [
        "inspect",
        component.to_str().unwrap(),
        "--plugin",
        "fetcher",
    ];
    for arguments in [
        &["check"][..],
        &inspect[..],
        &["call", "fetch", "--args", "{\"authority\":\"evil.test\"}"][..],
    ] {
        let output = plimsoll_in(folder.path(), &config, arguments);
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!text.contains("hunter2"), "{text}");
        let expected = match arguments[0] {
            "check" => vec![
                "secrets.TOKEN = (set)",
                "hosts = https://api.example.com",
                "private_hosts = http://127.0.0.1:9000",
            ],
            "inspect" => vec![
                "(granted)",
                "requests to https://api.example.com\n",
                "the secret `TOKEN` (set)",
            ],
            _ => vec![
                "a request was denied: `http://evil.test` is not granted: to allow it, add \"http://evil.test\" to `hosts`",
                "source=\"host\"",
            ],
        };
        for expected in expected {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
    let unset = config.replace("PLIMSOLL_TEST_TOKEN", "PLIMSOLL_TEST_NOT_SET");
    let output = plimsoll_in(folder.path(), &unset, &["check"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("`plugins.fetcher.secrets.TOKEN`: the environment variable `PLIMSOLL_TEST_NOT_SET` is not set"), "{text}");
}

#[test]
fn inspect_shows_wanted_against_granted() {
    let folder = tempfile::tempdir().unwrap();
    let component = component("guests/fetcher.wasm");
    let output = plimsoll_in(
        folder.path(),
        &fetcher(""),
        &[
            "inspect",
            component.to_str().unwrap(),
            "--plugin",
            "fetcher",
        ],
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for expected in [
        "wasi:http/outgoing-handler@0.2.12 (not granted)\n",
        "to add to [plugins.fetcher]:\n  hosts = [\"https://HOST\"]\n",
        "granted by [plugins.fetcher]: nothing\n",
        "\nfetch (",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let output = plimsoll_in(
        folder.path(),
        &fetcher(""),
        &["inspect", component.to_str().unwrap(), "--plugin", "other"],
    );
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("there is no `[plugins.other]` in the config file; it has: fetcher")
    );
}
