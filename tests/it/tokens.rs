//! Tokens of an identity provider, and traces: what the host exchanges with other servers of an operator.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use serde_json::{Value, json};

use crate::support::{HostProcess, json as parse};
use crate::tenants::config_of;

const RESOURCE: &str = "https://plimsoll.example/mcp";

/// A key of an issuer: its id, how it signs, and how it is published.
struct Key {
    id: &'static str,
    algorithm: Algorithm,
    signing: EncodingKey,
    published: Value,
}

impl Key {
    fn elliptic(id: &'static str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        // 0x04, then both coordinates.
        let point = pair.public_key_raw();
        let coordinate = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
        Self {
            id,
            algorithm: Algorithm::ES256,
            signing: EncodingKey::from_ec_der(&pair.serialize_der()),
            published: json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": id, "x": coordinate(1..33), "y": coordinate(33..65)}),
        }
    }

    fn edwards(id: &'static str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        Self {
            id,
            algorithm: Algorithm::EdDSA,
            signing: EncodingKey::from_ed_der(&pair.serialize_der()),
            published: json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": id, "x": URL_SAFE_NO_PAD.encode(pair.public_key_raw())}),
        }
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.id.into());
        encode(&header, claims, &self.signing).unwrap()
    }
}

/// An identity provider on loopback: its URL, and the keys that it publishes now.
async fn issuer() -> (String, Arc<Mutex<Vec<Value>>>) {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let metadata = json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string();
    let router = Router::new()
        .route(
            "/.well-known/oauth-authorization-server",
            get(move || async move { metadata }),
        )
        .route(
            "/keys",
            get(|State(keys): State<Arc<Mutex<Vec<Value>>>>| async move {
                json!({"keys": *keys.lock().unwrap()}).to_string()
            }),
        )
        .with_state(keys.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, keys)
}

async fn ask(url: &str, token: &str) -> reqwest::Response {
    reqwest::Client::new()
        .post(format!("{url}/v1/tools/list_rows"))
        .bearer_auth(token)
        .send()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_configured_issuer_lets_in_and_any_other_does_not() {
    let (issuer, published) = issuer().await;
    let folder = tempfile::tempdir().unwrap();
    let auth = format!(
        "[auth]\nresource = \"{RESOURCE}\"\n[[auth.issuers]]\nissuer = \"{issuer}\"\ntenant_claim = \"org\"\nadmin_scope = \"plimsoll:admin\"\n"
    );
    let host = HostProcess::start(&format!(
        "{}{auth}",
        config_of(folder.path(), &["acme"], 3, "", "")
    ));
    let (first, second, unpublished) = (Key::elliptic("1"), Key::edwards("2"), Key::elliptic("3"));
    published
        .lock()
        .unwrap()
        .push(json!({"kty": "new-kind", "kid": "0"}));
    published.lock().unwrap().push(first.published.clone());
    let now = jsonwebtoken::get_current_timestamp();
    let good = json!({"iss": issuer, "aud": RESOURCE, "sub": "user-1", "exp": now + 600, "scope": "openid plimsoll", "org": "acme"});
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };

    let response = ask(&host.url, &first.sign(&good)).await;
    assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
    // An audience may be one of many, and a scope one of a list.
    let listed = with("aud", json!(["https://other.example", RESOURCE]));
    assert_eq!(ask(&host.url, &first.sign(&listed)).await.status(), 200);
    let mut scp = with("scp", json!(["plimsoll"]));
    scp.as_object_mut().unwrap().remove("scope");
    assert_eq!(ask(&host.url, &first.sign(&scp)).await.status(), 200);

    // The issuer rotates its keys while the host runs.
    let response = ask(&host.url, &second.sign(&good)).await;
    assert_eq!(response.status(), 401);
    let host = host.restart();
    assert_eq!(ask(&host.url, &first.sign(&good)).await.status(), 200);
    *published.lock().unwrap() = vec![second.published.clone()];
    assert_eq!(ask(&host.url, &second.sign(&good)).await.status(), 200);

    let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", host.url);
    let document = parse(&reqwest::get(&metadata).await.unwrap().text().await.unwrap());
    assert_eq!(
        document,
        json!({
            "resource": RESOURCE, "authorization_servers": [issuer], "scopes_supported": ["plimsoll"],
            "bearer_methods_supported": ["header"], "resource_name": "Plimsoll",
        })
    );
    let root = format!("{}/.well-known/oauth-protected-resource", host.url);
    assert_eq!(reqwest::get(&root).await.unwrap().status(), 200);
    assert_eq!(
        reqwest::get(format!("{root}/other"))
            .await
            .unwrap()
            .status(),
        404
    );

    let where_to =
        "resource_metadata=\"https://plimsoll.example/.well-known/oauth-protected-resource/mcp\"";
    let forged = {
        // Signed with the public key as if it were a shared secret.
        let secret = EncodingKey::from_secret(second.published["x"].as_str().unwrap().as_bytes());
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("2".into());
        encode(&header, &good, &secret.unwrap()).unwrap()
    };
    let table = [
        (
            second.sign(&with("aud", json!("https://other.example"))),
            401,
            format!("the token is not valid here: its audience is not `{RESOURCE}`"),
        ),
        (
            second.sign(&with("exp", json!(now - 120))),
            401,
            "the token is not valid here: it has expired".into(),
        ),
        (
            second.sign(&with("nbf", json!(now + 120))),
            401,
            "the token is not valid here: it is not valid yet".into(),
        ),
        (
            second.sign(&with("iss", json!("https://evil.example"))),
            401,
            "the token is of an issuer that this host does not trust".into(),
        ),
        (
            second.sign(&with("org", json!("nobody"))),
            401,
            "its tenant is not one of this host any more".into(),
        ),
        (
            second.sign(&with("org", json!(7))),
            401,
            "the token does not say its tenant in the claim `org`".into(),
        ),
        (
            second.sign(&with("scope", json!("openid"))),
            403,
            "the token needs the scope `plimsoll`".into(),
        ),
        (
            unpublished.sign(&good),
            401,
            "the token is signed with a key that its issuer does not publish".into(),
        ),
        (
            first.sign(&good),
            401,
            "the token is signed with a key that its issuer does not publish".into(),
        ),
        (
            forged,
            401,
            "expected a token with an asymmetric signature, found HS256".into(),
        ),
        (
            "a.b.c".into(),
            401,
            "the token is neither a key of this host nor a JWT".into(),
        ),
    ];
    for (token, status, detail) in table {
        let response = ask(&host.url, &token).await;
        assert_eq!(response.status(), status, "{detail}");
        let challenge = response.headers()["www-authenticate"]
            .to_str()
            .unwrap()
            .to_owned();
        let error = if status == 403 {
            "insufficient_scope"
        } else {
            "invalid_token"
        };
        assert_eq!(
            challenge,
            format!("Bearer realm=\"plimsoll\", error=\"{error}\", {where_to}, scope=\"plimsoll\"")
        );
        let body = response.text().await.unwrap();
        assert_eq!(parse(&body)["detail"], detail);
        assert!(!body.contains(&token));
    }
    let admin = second.sign(&with("scope", json!("plimsoll plimsoll:admin")));
    for (token, status) in [(admin, 200), (second.sign(&good), 403)] {
        let metrics = reqwest::Client::new()
            .get(format!("{}/metrics", host.url))
            .bearer_auth(token);
        assert_eq!(metrics.send().await.unwrap().status(), status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_continues_the_trace_of_its_caller() {
    // A collector of OTLP over HTTP, which keeps what it is sent.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let router = Router::new().route(
        "/v1/traces",
        post(move |body: axum::body::Bytes| async move {
            let _ = sender.send(body);
        }),
    );
    tokio::spawn(async move { axum::serve(listener, router).await });

    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
    ];
    let host = HostProcess::start_with(&crate::support::fleet(), &environment);
    let traces = [
        "4bf92f3577b34da6a3ce929d0e0e4736",
        "0af7651916cd43dd8448eb211c80319c",
    ];
    let response = reqwest::Client::new()
        .post(format!("{}/v1/tools/fleet_show", host.url))
        .header(
            "traceparent",
            format!("00-{}-00f067aa0ba902b7-01", traces[0]),
        )
        .body(r#"{"limit":2}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fleet_show", "arguments": {"limit": 101},
        "_meta": {"traceparent": format!("00-{}-00f067aa0ba902b7-01", traces[1]),
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": {"name": "tracing-client", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": {}}}});
    let response = reqwest::Client::new()
        .post(format!("{}/mcp", host.url))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "fleet_show")
        .body(message.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
    let has = |body: &[u8], part: &[u8]| body.windows(part.len()).any(|window| window == part);
    let id = |hex: &str| -> Vec<u8> {
        (0..16)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
            .collect()
    };
    let mut wanted: BTreeSet<(Vec<u8>, &str)> = BTreeSet::from([
        (id(traces[0]), "answered"),
        (id(traces[1]), "invalid_arguments"),
    ]);
    while !wanted.is_empty() {
        let body = received.recv().await.unwrap();
        wanted.retain(|(trace, outcome)| {
            !(has(&body, trace) && has(&body, outcome.as_bytes()) && has(&body, b"fleet_show"))
        });
    }
}
