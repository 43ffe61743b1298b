//! What the operator grants a plugin, and the WASI that follows from it.
//!
//! Invariant: a plugin sees no environment, no arguments, no stdin, of the network only the hosts and of the file system
//! only the folders that its entry names, and of the host's secrets only its own. Whether it may have the interfaces at all
//! is decided at load, by [`inspect`](super::inspect).

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder};

use super::hosts::HostGrant;
use super::journal::{Journal, Source, Stream};
use super::limits::RANDOM_BYTES;
use super::roots::TrustedRoots;
use super::secret::Secret;
use super::sql::ConnectionGrant;

/// What one plugin is granted. By default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Values that the plugin reads through `wasi:config/store`.
    pub config: BTreeMap<String, String>,
    /// Secrets that the plugin reads in the same way, and that are never printed.
    pub secrets: BTreeMap<String, Secret>,
    /// Folders that the plugin may use.
    pub files: Vec<FileGrant>,
    /// Hosts to which the plugin may send requests; `None` does not even let it import the interface.
    pub hosts: Option<Vec<HostGrant>>,
    /// Whom its requests trust beside the roots of Mozilla.
    pub trusted_roots: TrustedRoots,
    /// Databases that the plugin may use, by name.
    pub connections: BTreeMap<String, ConnectionGrant>,
    /// Whether the plugin may read clocks and wait for them.
    pub clock: bool,
    /// Whether the plugin gets random numbers.
    pub random: bool,
}

/// A folder of the host under a path of the guest, with all that is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileGrant {
    /// Folder on the host.
    pub host: PathBuf,
    /// Path at which the plugin sees it.
    pub guest: String,
    /// Whether the plugin may also create, change and remove what is in it.
    pub write: bool,
}

impl Grants {
    /// Whether the granted folders are there. An error names the first that is not.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        for FileGrant { host, guest, .. } in &self.files {
            let metadata = std::fs::metadata(host)
                .with_context(|| format!("granting `{}` as `{guest}`", host.display()))?;
            ensure!(
                metadata.is_dir(),
                "granting `{}` as `{guest}`: it is not a folder",
                host.display()
            );
        }
        for (name, connection) in &self.connections {
            connection
                .check()
                .with_context(|| format!("granting the connection `{name}`"))?;
        }
        Ok(())
    }

    /// All that the plugin finds in `wasi:config/store`.
    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        let config = self
            .config
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        config.chain(
            self.secrets
                .iter()
                .map(|(key, secret)| (key.as_str(), secret.reveal())),
        )
    }

    /// The WASI of one call.
    ///
    /// Folders are opened anew for each call, so that one that was replaced since is seen as it is now. The error names
    /// the path of the guest only, since it may reach a caller.
    pub(super) fn wasi(&self, journal: &Journal) -> anyhow::Result<WasiCtx> {
        let mut wasi = WasiCtxBuilder::new();
        wasi.stdout(Stream::new(journal.clone(), Source::Stdout))
            .stderr(Stream::new(journal.clone(), Source::Stderr))
            .max_random_size(RANDOM_BYTES);
        for FileGrant { host, guest, write } in &self.files {
            let permissions = if *write {
                FsPerms::ReadWrite
            } else {
                FsPerms::ReadOnly
            };
            if let Err(error) = wasi.preopened_dir(host, guest, permissions) {
                tracing::warn!(folder = %host.display(), guest, %error, "a granted folder cannot be opened");
                anyhow::bail!("the granted folder `{guest}` cannot be opened");
            }
        }
        Ok(wasi.build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_granted_by_default() {
        let Grants {
            config,
            secrets,
            files,
            hosts,
            trusted_roots,
            connections,
            clock,
            random,
        } = Grants::default();
        assert!(
            config.is_empty()
                && secrets.is_empty()
                && files.is_empty()
                && hosts.is_none()
                && trusted_roots.is_empty()
                && connections.is_empty()
                && !clock
                && !random
        );
    }

    #[test]
    fn a_granted_folder_that_is_not_there_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let grant = |host: PathBuf| Grants {
            files: vec![FileGrant {
                host,
                guest: "/data".into(),
                write: false,
            }],
            ..Grants::default()
        };
        let error = grant(file.path().join("missing")).check().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("granting `{}/missing` as `/data`", file.path().display())
        );
        let error = grant(file.path().to_owned()).check().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "granting `{}` as `/data`: it is not a folder",
                file.path().display()
            )
        );
    }
}
