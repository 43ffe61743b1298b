//! What a plugin's entry grants, resolved: hosts parsed, secrets read, folders found.
//!
//! Secrets are read when the configuration is, so that one that is missing stops the start and not a call.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};

use super::file::{ConnectionFile, PluginFile, SecretFile, StoreFile};
use crate::sandbox::{
    ConnectionGrant, DEFAULT_POOL, FileGrant, Grants, HostGrant, Secret, TrustedRoots,
};

/// Bytes of one secret: a chain of certificates with its key is below 16 KiB.
const MAX_SECRET_BYTES: usize = 64 << 10;

/// The grants of one entry. `place` names it in messages.
pub(super) fn resolve(file: &PluginFile, folder: &Path, place: &str) -> anyhow::Result<Grants> {
    if let Some(name) = file
        .secrets
        .keys()
        .find(|name| file.config.contains_key(*name))
    {
        bail!(
            "`{place}.secrets.{name}` and `{place}.config.{name}` have one name, and the plugin reads both by it; rename one"
        );
    }
    let secret = |(name, source): (&String, &SecretFile)| {
        let value = read(source, folder).with_context(|| format!("`{place}.secrets.{name}`"))?;
        Ok((name.clone(), Secret::new(value)))
    };
    let files = file.files.iter().map(|grant| FileGrant {
        host: folder.join(&grant.host),
        guest: grant.guest.clone(),
        write: grant.write,
    });
    let connection = |(name, source): (&String, &ConnectionFile)| {
        let granted =
            connection(source, folder).with_context(|| format!("`{place}.connections.{name}`"))?;
        Ok((name.clone(), granted))
    };
    Ok(Grants {
        connections: file
            .connections
            .iter()
            .map(connection)
            .collect::<anyhow::Result<_>>()?,
        config: file.config.clone(),
        secrets: file
            .secrets
            .iter()
            .map(secret)
            .collect::<anyhow::Result<BTreeMap<_, _>>>()?,
        files: files.collect(),
        hosts: hosts(file, place)?,
        trusted_roots: trusted_roots(file, folder)
            .with_context(|| format!("`{place}.trusted_roots`"))?,
        clock: file.clock,
        random: file.random,
    })
}

fn connection(file: &ConnectionFile, folder: &Path) -> anyhow::Result<ConnectionGrant> {
    let url = match &file.url {
        StoreFile::Url(url) => url.clone(),
        StoreFile::Secret(source) => read(source, folder).context("`url`")?,
    };
    let pool = file.pool.unwrap_or(DEFAULT_POOL);
    ensure!(pool > 0, "`pool` must be at least 1, found 0");
    ConnectionGrant::new(&url, folder, file.write, pool)
}

fn hosts(file: &PluginFile, place: &str) -> anyhow::Result<Option<Vec<HostGrant>>> {
    let mut granted = Vec::new();
    for text in file.hosts.iter().flatten() {
        granted.push(HostGrant::public(text).with_context(|| format!("`{place}.hosts`"))?);
    }
    for text in file.private_hosts.iter().flatten() {
        granted.push(HostGrant::private(text).with_context(|| format!("`{place}.private_hosts`"))?);
    }
    let is_named = file.hosts.is_some() || file.private_hosts.is_some();
    Ok(is_named.then_some(granted))
}

fn trusted_roots(file: &PluginFile, folder: &Path) -> anyhow::Result<TrustedRoots> {
    let Some(name) = &file.trusted_roots else {
        return Ok(TrustedRoots::default());
    };
    let path = folder.join(name);
    let text = std::fs::read(&path).with_context(|| format!("reading `{}`", path.display()))?;
    TrustedRoots::from_pem(&text).with_context(|| format!("in `{}`", path.display()))
}

/// Reads a secret. No message carries any of it.
pub(super) fn read(source: &SecretFile, folder: &Path) -> anyhow::Result<String> {
    let value = match (&source.env, &source.file) {
        (Some(name), None) => match std::env::var(name) {
            Ok(value) => value,
            Err(std::env::VarError::NotPresent) => {
                bail!("the environment variable `{name}` is not set")
            }
            Err(std::env::VarError::NotUnicode(_)) => {
                bail!("the environment variable `{name}` is not UTF-8")
            }
        },
        (None, Some(file)) => {
            let path = folder.join(file);
            let bytes =
                std::fs::read(&path).with_context(|| format!("reading `{}`", path.display()))?;
            let Ok(text) = String::from_utf8(bytes) else {
                bail!("`{}` is not UTF-8", path.display())
            };
            let line = text.strip_suffix('\n').map_or(text.as_str(), |line| {
                line.strip_suffix('\r').unwrap_or(line)
            });
            line.to_owned()
        }
        _ => bail!("expected exactly one of `env` and `file`, such as `{{ env = \"TOKEN\" }}`"),
    };
    ensure!(!value.is_empty(), "it is empty");
    ensure!(
        value.len() <= MAX_SECRET_BYTES,
        "expected at most {MAX_SECRET_BYTES} bytes, found {}",
        value.len()
    );
    Ok(value)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn parse(entry: &str) -> anyhow::Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key.txt"), "hunter2\r\n").unwrap();
        std::fs::write(folder.path().join("empty.txt"), "\n").unwrap();
        std::fs::write(folder.path().join("binary.txt"), [0xff]).unwrap();
        std::fs::write(folder.path().join("large.txt"), "x".repeat(70_000)).unwrap();
        Config::parse(&format!("[plugins.a]\n{entry}\n"), folder.path())
    }

    #[test]
    fn a_grant_that_cannot_be_given_is_an_error_that_names_it() {
        let table = [
            (
                "secrets.K = { file = \"missing.txt\" }",
                "`plugins.a.secrets.K`: reading `",
            ),
            (
                "secrets.K = { env = \"PLIMSOLL_TEST_NOT_SET\" }",
                "`plugins.a.secrets.K`: the environment variable `PLIMSOLL_TEST_NOT_SET` is not set",
            ),
            (
                "secrets.K = { file = \"empty.txt\" }",
                "`plugins.a.secrets.K`: it is empty",
            ),
            ("secrets.K = { file = \"binary.txt\" }", "is not UTF-8"),
            (
                "secrets.K = { file = \"large.txt\" }",
                "expected at most 65536 bytes, found 70000",
            ),
            ("secrets.K = {}", "expected exactly one of `env` and `file`"),
            (
                "secrets.K = { env = \"A\", file = \"key.txt\" }",
                "expected exactly one of `env` and `file`",
            ),
            (
                "secrets.K = { file = \"key.txt\" }\nconfig.K = \"x\"",
                "`plugins.a.secrets.K` and `plugins.a.config.K` have one name",
            ),
            (
                "trusted_roots = \"missing.pem\"",
                "`plugins.a.trusted_roots`: reading `",
            ),
            (
                "trusted_roots = \"key.txt\"",
                "key.txt`: expected certificates in PEM, each from `-----BEGIN CERTIFICATE-----` on, found none",
            ),
            (
                "connections.shop.url = \"mysql://u:hunter2@h/d\"",
                "`plugins.a.connections.shop`: expected a URL such as `postgres://user@host/database` or `sqlite:shop.db`, \
                 found another text",
            ),
            (
                "connections.shop = { url = \"sqlite:a.db\", pool = 0 }",
                "`plugins.a.connections.shop`: `pool` must be at least 1, found 0",
            ),
            (
                "connections.shop.url = { env = \"PLIMSOLL_TEST_NOT_SET\" }",
                "`plugins.a.connections.shop`: `url`: the environment variable `PLIMSOLL_TEST_NOT_SET` is not set",
            ),
            (
                "hosts = [\"api.example.com\"]",
                "`plugins.a.hosts`: expected a scheme",
            ),
            (
                "hosts = [\"http://127.0.0.1:9000\"]",
                "hint: name it in `private_hosts`",
            ),
            (
                "private_hosts = [\"http://intranet/x\"]",
                "`plugins.a.private_hosts`: expected a scheme",
            ),
        ];
        for (entry, expected) in table {
            let error = format!("{:#}", parse(entry).unwrap_err());
            assert!(error.contains(expected), "{entry}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_nowhere_in_what_is_printed_of_the_configuration() {
        let text = format!("{:?}", parse("secrets.K = { file = \"key.txt\" }").unwrap());
        assert!(
            text.contains("Secret(") && !text.contains("hunter2"),
            "{text}"
        );
    }

    #[test]
    fn the_url_of_a_connection_is_nowhere_in_what_is_printed_of_the_configuration() {
        let entry = "connections.shop.url = \"postgres://u:hunter2@h/d\"";
        let text = format!("{:?}", parse(entry).unwrap());
        assert!(
            text.contains("Postgres(Secret(") && !text.contains("hunter2"),
            "{text}"
        );
    }

    #[test]
    fn no_hosts_and_an_empty_list_of_hosts_are_two_things() {
        assert_eq!(parse("").unwrap().plugins[0].grants.hosts, None);
        assert_eq!(
            parse("hosts = []").unwrap().plugins[0].grants.hosts,
            Some(vec![])
        );
        let both =
            parse("hosts = [\"https://a.test\"]\nprivate_hosts = [\"http://127.0.0.1:9000\"]")
                .unwrap();
        let hosts = both.plugins[0].grants.hosts.clone().unwrap();
        let seen: Vec<(String, bool)> = hosts
            .iter()
            .map(|grant| (grant.to_string(), grant.is_private()))
            .collect();
        assert_eq!(
            seen,
            [
                ("https://a.test".to_owned(), false),
                ("http://127.0.0.1:9000".to_owned(), true)
            ]
        );
    }
}
