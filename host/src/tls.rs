//! What speaks TLS: ring, for every client of this process.

/// Makes ring the provider of clients that name none. Where another one was chosen before, that is as good.
pub fn install() {
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
}
