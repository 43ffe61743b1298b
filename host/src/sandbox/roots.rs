//! Whom the requests of a plugin trust over TLS: the roots that Mozilla trusts, which are compiled in, and the ones that
//! the plugin's entry adds, which private services need.

use std::fmt;
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, ensure};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Roots beside those of Mozilla. By default none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TrustedRoots(Vec<CertificateDer<'static>>);

/// What every plugin without roots of its own uses.
static PUBLIC: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| client(public()));

impl TrustedRoots {
    /// Reads certificates in PEM. An error says what is wrong with the text.
    pub fn from_pem(text: &[u8]) -> anyhow::Result<Self> {
        let certificates = CertificateDer::pem_slice_iter(text)
            .collect::<Result<Vec<_>, _>>()
            .context("expected certificates in PEM")?;
        ensure!(
            !certificates.is_empty(),
            "expected certificates in PEM, each from `-----BEGIN CERTIFICATE-----` on, found none"
        );
        let mut roots = public();
        for (index, certificate) in certificates.iter().enumerate() {
            roots.add(certificate.clone()).with_context(|| {
                format!("certificate {} cannot be trusted as a root", index + 1)
            })?;
        }
        Ok(Self(certificates))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How the plugin's requests speak TLS.
    pub(super) fn client(&self) -> Arc<ClientConfig> {
        if self.is_empty() {
            return PUBLIC.clone();
        }
        let mut roots = public();
        // Each was added once already, when it was read.
        roots.add_parsable_certificates(self.0.iter().cloned());
        client(roots)
    }
}

/// A mark in place of the certificates, which tells changed ones from unchanged ones.
impl fmt::Debug for TrustedRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hasher = blake3::Hasher::new();
        for certificate in &self.0 {
            hasher.update(blake3::hash(certificate).as_bytes());
        }
        write!(
            f,
            "TrustedRoots({}, {})",
            self.len(),
            hasher.finalize().to_hex()
        )
    }
}

fn public() -> RootCertStore {
    RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.into(),
    }
}

fn client(roots: RootCertStore) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the ciphers of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn certificates_are_read_and_what_is_none_is_named() {
        let made = |name: &str| {
            let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
            let text = STANDARD.encode(made.cert.der());
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let (one, other) = (made("a.test"), made("b.test"));
        let both = TrustedRoots::from_pem(format!("# ours\n{one}{other}").as_bytes()).unwrap();
        assert_eq!(both.len(), 2);
        let one = TrustedRoots::from_pem(one.as_bytes()).unwrap();
        assert_eq!(format!("{one:?}"), format!("{:?}", one.clone()));
        assert_ne!(
            format!("{one:?}"),
            format!("{:?}", TrustedRoots::from_pem(other.as_bytes()).unwrap())
        );
        for (text, expected) in [
            (
                "hello",
                "expected certificates in PEM, each from `-----BEGIN CERTIFICATE-----` on, found none",
            ),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n",
                "expected certificates in PEM",
            ),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "certificate 1 cannot be trusted as a root",
            ),
        ] {
            let error = TrustedRoots::from_pem(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), expected, "{text}");
        }
    }
}
