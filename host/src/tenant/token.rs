//! Bearer tokens of identity providers: the host as an OAuth 2.1 resource server.
//!
//! A token is a JWT of a configured issuer for this host as its audience (RFC 8707), signed with a key that the issuer
//! publishes. It is never passed on.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use arc_swap::ArcSwap;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::Denied;

/// Algorithms of signatures. Never one with a shared secret: who knows a public key could sign.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// How long the keys of an issuer are used without a look at its list.
const KEYS_TTL: Duration = Duration::from_secs(300);

/// How often a token with an unknown key may make the host look at the list before that: keys are rotated rarely, and
/// anybody can send tokens with made-up keys.
const KEYS_COOLDOWN: Duration = Duration::from_secs(10);

/// How long a look may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a document of an issuer.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// Clocks may differ by this.
const LEEWAY_SECONDS: u64 = 30;

/// Who makes tokens, and whose calls they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// The `iss` of its tokens: its URL.
    pub issuer: String,
    /// Where its keys are; none is what its metadata says.
    pub jwks_url: Option<String>,
    /// The tenant of all its tokens, or the name of the claim that says it.
    pub tenant: Result<String, String>,
    /// The scope that a call needs.
    pub scope: String,
    /// The scope that makes an admin; none makes nobody one.
    pub admin_scope: Option<String>,
}

/// Every issuer, and this host as their tokens name it.
#[derive(Debug, Default)]
pub struct Issuers {
    resource: String,
    issuers: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    issuer: Issuer,
    keys: ArcSwap<Keys>,
    /// One look at a time.
    looking: tokio::sync::Mutex<()>,
    client: reqwest::Client,
}

/// The published keys of an issuer.
#[derive(Debug, Default)]
struct Keys {
    keys: Vec<Jwk>,
    /// When the host looked at the list.
    looked: Option<Instant>,
    /// When it looked before its time, for a key that it did not know.
    looked_early: Option<Instant>,
}

impl Keys {
    fn is_fresh(&self) -> bool {
        is_within(self.looked, KEYS_TTL)
    }
}

fn is_within(moment: Option<Instant>, time: Duration) -> bool {
    moment.is_some_and(|moment| moment.elapsed() < time)
}

impl Issuers {
    /// These issuers. `resource` is the URL of this host's MCP endpoint, the audience of its tokens.
    pub fn new(resource: String, issuers: Vec<Issuer>) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(FETCH_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .context("making a client for the keys of issuers")?;
        let known = |issuer| Known {
            issuer,
            keys: ArcSwap::default(),
            looking: tokio::sync::Mutex::new(()),
            client: client.clone(),
        };
        Ok(Self {
            resource,
            issuers: issuers.into_iter().map(known).collect(),
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.issuers.is_empty()
    }

    /// This host as tokens name it.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Scopes that a client should ask for: those of calls. Nobody becomes an admin because a client asks for all there is.
    pub fn scopes(&self) -> Vec<&str> {
        let mut scopes: Vec<&str> = Vec::new();
        for known in &self.issuers {
            let scope = known.issuer.scope.as_str();
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        scopes
    }

    /// The metadata of RFC 9728.
    pub fn metadata(&self) -> Value {
        let servers: Vec<&str> = self
            .issuers
            .iter()
            .map(|known| known.issuer.issuer.as_str())
            .collect();
        serde_json::json!({
            "resource": self.resource,
            "authorization_servers": servers,
            "scopes_supported": self.scopes(),
            "bearer_methods_supported": ["header"],
            "resource_name": "Plimsoll",
        })
    }

    /// Checks a token. The tenant, whether an admin, and the subject.
    pub(super) async fn verify(&self, token: &str) -> Result<(String, bool, String), Denied> {
        let invalid = |why: String| Denied::Invalid(why);
        if self.issuers.is_empty() {
            return Err(invalid(
                "this is no key of this host: one begins with `plm_`, and an operator makes it with `plimsoll keys add`".into(),
            ));
        }
        let header = decode_header(token)
            .map_err(|_| invalid("the token is neither a key of this host nor a JWT".into()))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(invalid(format!(
                "expected a token with an asymmetric signature, found {:?}",
                header.alg
            )));
        }
        // Which issuer's keys to use is taken from the token unseen; with them it is then checked whole.
        let claimed: Map<String, Value> = jsonwebtoken::dangerous::insecure_decode_claims(token)
            .map_err(|_| invalid("the token has no JSON object of claims".into()))?;
        let issuer = claimed
            .get("iss")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let known = self
            .issuers
            .iter()
            .find(|known| known.issuer.issuer == issuer)
            .ok_or_else(|| {
                invalid("the token is of an issuer that this host does not trust".into())
            })?;
        let key = known.key(header.kid.as_deref(), header.alg).await?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_audience(&[&self.resource]);
        validation.set_issuer(&[&known.issuer.issuer]);
        validation.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
        let claims = decode::<Map<String, Value>>(token, &key, &validation)
            .map_err(|error| {
                invalid(format!(
                    "the token is not valid here: {}",
                    why(&error, &self.resource)
                ))
            })?
            .claims;
        let scopes = scopes(&claims);
        if !scopes.contains(known.issuer.scope.as_str()) {
            return Err(Denied::Scope(known.issuer.scope.clone()));
        }
        let is_admin = known
            .issuer
            .admin_scope
            .as_deref()
            .is_some_and(|scope| scopes.contains(scope));
        let tenant = match &known.issuer.tenant {
            Ok(tenant) => tenant.clone(),
            Err(claim) => claims
                .get(claim)
                .and_then(Value::as_str)
                .ok_or_else(|| {
                    invalid(format!(
                        "the token does not say its tenant in the claim `{claim}`"
                    ))
                })?
                .to_owned(),
        };
        // Two issuers may have the same subject.
        let subject = format!(
            "{}#{}",
            known.issuer.issuer,
            claims["sub"].as_str().unwrap_or_default()
        );
        Ok((tenant, is_admin, subject))
    }
}

impl Known {
    /// The published key that a token was signed with.
    async fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Result<DecodingKey, Denied> {
        let find = |keys: &Keys| {
            let is_meant = |key: &&Jwk| {
                let is_named = id.is_none() || key.common.key_id.as_deref() == id;
                let is_of = key.common.key_algorithm.is_none_or(|named| {
                    Algorithm::try_from(named).is_ok_and(|named| named == algorithm)
                });
                is_named && is_of && fits(key, algorithm)
            };
            keys.keys.iter().find(is_meant).cloned()
        };
        let keys = self.keys.load();
        let mut key = find(&keys).filter(|_| keys.is_fresh());
        if key.is_none() {
            let _one = self.looking.lock().await;
            // Another token may have made the host look in between.
            let keys = self.keys.load();
            let is_early = keys.is_fresh();
            let is_known = is_early && find(&keys).is_some();
            if !(is_known || is_early && is_within(keys.looked_early, KEYS_COOLDOWN)) {
                self.look(is_early).await;
            }
        }
        let keys = self.keys.load();
        // Keys outlive their time where the issuer does not answer: a call is not lost for that.
        key = key.or_else(|| find(&keys));
        let key = key.ok_or_else(|| {
            Denied::Invalid(
                "the token is signed with a key that its issuer does not publish".into(),
            )
        })?;
        DecodingKey::from_jwk(&key).map_err(|_| {
            Denied::Invalid("the token is signed with a kind of key that is not supported".into())
        })
    }

    async fn look(&self, is_early: bool) {
        let before = self.keys.load();
        let keys = match self.fetch().await {
            Ok(keys) => keys,
            Err(error) => {
                tracing::warn!(
                    issuer = self.issuer.issuer,
                    "the keys of an issuer stay as they were: {error:#}"
                );
                before.keys.clone()
            }
        };
        let now = Some(Instant::now());
        self.keys.store(Arc::new(Keys {
            keys,
            looked: now,
            looked_early: if is_early { now } else { before.looked_early },
        }));
    }

    async fn fetch(&self) -> anyhow::Result<Vec<Jwk>> {
        let url = match &self.issuer.jwks_url {
            Some(url) => url.clone(),
            None => self.discover().await?,
        };
        let document = self.get(&url).await?;
        let keys = document
            .get("keys")
            .and_then(Value::as_array)
            .with_context(|| format!("expected a list of `keys` in `{url}`"))?;
        // A kind of key that is not known here is no reason not to use the others.
        Ok(keys
            .iter()
            .filter_map(|key| serde_json::from_value(key.clone()).ok())
            .collect())
    }

    /// Where the issuer says that its keys are: RFC 8414, or OpenID Connect.
    async fn discover(&self) -> anyhow::Result<String> {
        let issuer = url::Url::parse(&self.issuer.issuer)?;
        let path = issuer.path().trim_end_matches('/');
        let at = |path: String| {
            let mut url = issuer.clone();
            url.set_path(&path);
            url.to_string()
        };
        let candidates = [
            at(format!("/.well-known/oauth-authorization-server{path}")),
            at(format!("{path}/.well-known/openid-configuration")),
        ];
        let mut problem = None;
        for url in &candidates {
            match self.get(url).await {
                Ok(document) => {
                    ensure!(
                        document.get("issuer").and_then(Value::as_str) == Some(&self.issuer.issuer),
                        "`{url}` is of another issuer"
                    );
                    return document
                        .get("jwks_uri")
                        .and_then(Value::as_str)
                        .map(str::to_owned)
                        .with_context(|| format!("`{url}` names no `jwks_uri`"));
                }
                Err(error) => problem = Some(error),
            }
        }
        Err(problem.unwrap_or_else(|| anyhow::anyhow!("it has no metadata")))
    }

    async fn get(&self, url: &str) -> anyhow::Result<Value> {
        check_url(url)?;
        let asking = || format!("asking `{url}`");
        let mut response = self.client.get(url).send().await.with_context(asking)?;
        ensure!(
            response.status().is_success(),
            "`{url}` answered {}",
            response.status()
        );
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.with_context(asking)? {
            body.extend_from_slice(&chunk);
            ensure!(
                body.len() <= MAX_DOCUMENT_BYTES,
                "`{url}` answered with more than {MAX_DOCUMENT_BYTES} bytes"
            );
        }
        serde_json::from_slice(&body).with_context(|| format!("`{url}` is not JSON"))
    }
}

/// Keys decide who is let in, so that they come by https, or from this machine.
pub(crate) fn check_url(url: &str) -> anyhow::Result<()> {
    let parsed = url::Url::parse(url).with_context(|| format!("expected a URL, found `{url}`"))?;
    let is_loopback = parsed
        .host_str()
        .is_some_and(|host| ["localhost", "127.0.0.1", "[::1]"].contains(&host));
    ensure!(
        parsed.scheme() == "https" || parsed.scheme() == "http" && is_loopback,
        "expected https, since its keys decide who is let in, found `{url}`"
    );
    Ok(())
}

/// Whether a key is of the kind that an algorithm needs.
fn fits(key: &Jwk, algorithm: Algorithm) -> bool {
    DecodingKey::from_jwk(key).is_ok_and(|key| key.family().algorithms().contains(&algorithm))
}

/// `scope` as OAuth has it, a text with spaces; some providers send a list, or call it `scp`.
fn scopes(claims: &Map<String, Value>) -> HashSet<&str> {
    ["scope", "scp"]
        .iter()
        .filter_map(|name| claims.get(*name))
        .flat_map(|value| match value {
            Value::String(text) => text.split_whitespace().collect(),
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        })
        .collect()
}

fn why(error: &jsonwebtoken::errors::Error, resource: &str) -> String {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::ExpiredSignature => "it has expired".into(),
        ErrorKind::ImmatureSignature => "it is not valid yet".into(),
        ErrorKind::InvalidAudience => format!("its audience is not `{resource}`"),
        ErrorKind::InvalidSignature => "its signature is wrong".into(),
        ErrorKind::MissingRequiredClaim(claim) => format!("it has no claim `{claim}`"),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_by_https_or_from_this_machine_wherever_they_are_named() {
        for url in [
            "https://id.example/keys",
            "http://127.0.0.1:9000/keys",
            "http://localhost/keys",
            "http://[::1]/keys",
        ] {
            check_url(url).unwrap();
        }
        for url in [
            "http://id.example/keys",
            "http://169.254.169.254/latest",
            "http://localhost.id.example/keys",
            "file:///etc/passwd",
        ] {
            assert_eq!(
                check_url(url).unwrap_err().to_string(),
                format!("expected https, since its keys decide who is let in, found `{url}`")
            );
        }
    }
}
