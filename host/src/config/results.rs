//! `[results]`: where complete results are kept, and how much.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use super::file::ResultsFile;
use super::{Setting, Source};
use crate::results::Location;
use crate::shape::DEFAULT_INTAKE_BYTES;

/// How long a result is kept by default: an hour, which is longer than an agent reads on in one answer and long enough for
/// a person to open the link that it passes on.
pub const DEFAULT_KEEP_SECONDS: u64 = 3_600;

/// How much a tenant may keep by default: 1 GiB, which is sixteen of the largest results and thousands of usual ones.
pub const DEFAULT_TENANT_BYTES: u64 = 1 << 30;

/// The folder of results by default, in the state folder.
pub(super) const DEFAULT_FOLDER: &str = "results";

/// The shortest time for which a result is kept: the next page has to find it.
const MIN_KEEP_SECONDS: u64 = 60;

/// Where results are kept, and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultsConfig {
    /// Whether they are.
    pub enabled: Setting<bool>,
    /// Where.
    pub location: Setting<Location>,
    /// For how long.
    pub keep_seconds: Setting<u64>,
    /// Bytes of one result.
    pub max_bytes: Setting<u64>,
    /// Bytes of all results of one tenant.
    pub tenant_bytes: Setting<u64>,
}

impl ResultsConfig {
    /// What `file` says, in a host whose state folder is `state` and whose config file is in `folder`.
    pub(super) fn resolve(file: &ResultsFile, folder: &Path, state: &Path) -> anyhow::Result<Self> {
        let location = match &file.location {
            None => Setting::default(Location::Folder(state.join(DEFAULT_FOLDER))),
            Some(text) => Setting {
                value: location(text, file, folder)?,
                source: Source::File,
            },
        };
        if !matches!(location.value, Location::S3 { .. })
            && let Some(name) = [("endpoint", &file.endpoint), ("region", &file.region)]
                .into_iter()
                .find_map(|(name, value)| value.as_ref().map(|_| name))
        {
            bail!(
                "`results.{name}` is for a bucket, and `results.location` is not one such as `s3://bucket/prefix`"
            );
        }
        let keep_seconds = Setting::or(file.keep_seconds, &Setting::default(DEFAULT_KEEP_SECONDS));
        ensure!(
            keep_seconds.value >= MIN_KEEP_SECONDS,
            "`results.keep_seconds` must be at least {MIN_KEEP_SECONDS}, found {}; `enabled = false` keeps nothing",
            keep_seconds.value
        );
        let max_bytes = Setting::or(
            file.max_bytes,
            &Setting::default(DEFAULT_INTAKE_BYTES as u64),
        );
        let tenant_bytes = Setting::or(file.tenant_bytes, &Setting::default(DEFAULT_TENANT_BYTES));
        ensure!(
            max_bytes.value > 0,
            "`results.max_bytes` must be at least 1, found 0"
        );
        ensure!(
            tenant_bytes.value >= max_bytes.value,
            "`results.tenant_bytes` must be at least `results.max_bytes`, which is {}, found {}",
            max_bytes.value,
            tenant_bytes.value
        );
        Ok(Self {
            enabled: Setting::or(file.enabled, &Setting::default(true)),
            location,
            keep_seconds,
            max_bytes,
            tenant_bytes,
        })
    }
}

fn location(text: &str, file: &ResultsFile, folder: &Path) -> anyhow::Result<Location> {
    let expected = "expected a folder, or a bucket such as `s3://bucket/prefix`";
    let Some((scheme, rest)) = text.split_once("://") else {
        ensure!(!text.is_empty(), "`results.location` is empty; {expected}");
        return Ok(Location::Folder(folder.join(PathBuf::from(text))));
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    ensure!(
        scheme == "s3" && !bucket.is_empty(),
        "`results.location`: {expected}, found `{text}`"
    );
    if let Some(endpoint) = &file.endpoint {
        let url = url::Url::parse(endpoint);
        let is_http = url.is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        ensure!(
            is_http,
            "`results.endpoint` must be a URL such as `https://s3.example.com`, found `{endpoint}`"
        );
    }
    Ok(Location::S3 {
        bucket: bucket.to_owned(),
        prefix: prefix.trim_matches('/').to_owned(),
        endpoint: file.endpoint.clone(),
        region: file.region.clone(),
    })
}

/// Checks what links begin with.
pub(super) fn public_url(text: &str) -> anyhow::Result<String> {
    let expected = || {
        format!(
            "`public_url` must be a URL without a query, such as `https://plimsoll.example.com`, found `{text}`"
        )
    };
    let url = url::Url::parse(text).with_context(expected)?;
    ensure!(
        matches!(url.scheme(), "http" | "https")
            && url.query().is_none()
            && url.fragment().is_none(),
        expected()
    );
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::results::Location;
    use std::path::Path;

    fn parse(text: &str) -> anyhow::Result<Config> {
        Config::parse(text, Path::new("/etc/plimsoll"))
    }

    #[test]
    fn results_are_kept_for_an_hour_in_the_state_folder() {
        let config = parse("").unwrap();
        let results = &config.results;
        assert!(results.enabled.value);
        assert_eq!(
            results.location.value,
            Location::Folder("/etc/plimsoll/.plimsoll/results".into())
        );
        assert_eq!(results.keep_seconds.value, 3_600);
        assert_eq!(results.max_bytes.value, 67_108_864);
        assert_eq!(results.tenant_bytes.value, 1_073_741_824);
        assert_eq!(config.public_url.value, None);
    }

    #[test]
    fn a_bucket_has_a_prefix_an_endpoint_and_a_region() {
        let text = "public_url = \"https://plimsoll.example.com/\"\n[results]\nlocation = \"s3://agents/kept/\"\nendpoint = \
                    \"http://127.0.0.1:9000\"\nregion = \"eu-west-1\"\n";
        let config = parse(text).unwrap();
        assert_eq!(
            config.results.location.value,
            Location::S3 {
                bucket: "agents".into(),
                prefix: "kept".into(),
                endpoint: Some("http://127.0.0.1:9000".into()),
                region: Some("eu-west-1".into()),
            }
        );
        assert_eq!(
            config.public_url.value.as_deref(),
            Some("https://plimsoll.example.com")
        );
        let folder = parse("[results]\nlocation = \"kept\"").unwrap();
        assert_eq!(
            folder.results.location.value,
            Location::Folder("/etc/plimsoll/kept".into())
        );
    }

    #[test]
    fn bad_settings_say_what_was_expected_and_found() {
        let table = [
            (
                "public_url = \"plimsoll\"",
                "`public_url` must be a URL without a query, such as `https://plimsoll.example.com`, found `plimsoll`",
            ),
            (
                "public_url = \"https://a.test/?x\"",
                "found `https://a.test/?x`",
            ),
            (
                "[results]\nlocation = \"\"",
                "`results.location` is empty; expected a folder, or a bucket such as `s3://bucket/prefix`",
            ),
            (
                "[results]\nlocation = \"gs://b\"",
                "expected a folder, or a bucket such as `s3://bucket/prefix`, found `gs://b`",
            ),
            ("[results]\nlocation = \"s3:///x\"", "found `s3:///x`"),
            (
                "[results]\nregion = \"eu\"",
                "`results.region` is for a bucket",
            ),
            (
                "[results]\nlocation = \"kept\"\nendpoint = \"http://x\"",
                "`results.endpoint` is for a bucket",
            ),
            (
                "[results]\nlocation = \"s3://b\"\nendpoint = \"x\"",
                "`results.endpoint` must be a URL such as `https://s3.example.com`, found `x`",
            ),
            (
                "[results]\nkeep_seconds = 59",
                "`results.keep_seconds` must be at least 60, found 59; `enabled = false` keeps nothing",
            ),
            (
                "[results]\nmax_bytes = 0",
                "`results.max_bytes` must be at least 1, found 0",
            ),
            (
                "[results]\ntenant_bytes = 5",
                "`results.tenant_bytes` must be at least `results.max_bytes`, which is 67108864, found 5",
            ),
            ("[results]\nkeep = 5", "unknown field `keep`"),
        ];
        for (text, expected) in table {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
