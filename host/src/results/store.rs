//! Where kept results are: a folder, or a bucket of S3.
//!
//! Owns: the object store and the names in it. An object is there whole or not at all.

use std::fmt;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt,
    PutPayload, RetryConfig,
};

use super::spool::Spool;

/// Bytes of a part of an upload: the smallest that S3 takes. What is not larger goes in one request.
const PART_BYTES: usize = 5 << 20;

/// How long writing one result may take. A client waits for it.
const UPLOAD_TIME: Duration = Duration::from_secs(15);

/// How long one request to S3 may take with all its repetitions, and how long connecting may.
const REQUEST_TIME: Duration = Duration::from_secs(10);
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// Where results are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A folder.
    Folder(PathBuf),
    /// A bucket of S3.
    S3 {
        /// Its name.
        bucket: String,
        /// What all names in it begin with.
        prefix: String,
        /// The server, where it is not Amazon's.
        endpoint: Option<String>,
        /// The region, where the environment does not say it.
        region: Option<String>,
    },
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::S3 {
                bucket,
                prefix,
                endpoint,
                ..
            } => {
                write!(f, "s3://{bucket}/{prefix}")?;
                endpoint
                    .iter()
                    .try_for_each(|endpoint| write!(f, " at {endpoint}"))
            }
        }
    }
}

/// A folder or bucket. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    /// The folder, where it is one.
    folder: Option<PathBuf>,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its name, below the prefix.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// When it was written, in milliseconds since 1970.
    pub(crate) modified_ms: u64,
}

impl Store {
    /// Opens a location. A folder is made; a bucket is not asked for before it is needed.
    pub fn open(location: &Location) -> anyhow::Result<Self> {
        match location {
            Location::Folder(folder) => {
                let opening = || format!("opening the folder `{}`", folder.display());
                std::fs::create_dir_all(folder).with_context(opening)?;
                let objects = LocalFileSystem::new_with_prefix(folder).with_context(opening)?;
                Ok(Self {
                    objects: Arc::new(objects),
                    prefix: Path::default(),
                    folder: Some(folder.clone()),
                })
            }
            Location::S3 {
                bucket,
                prefix,
                endpoint,
                region,
            } => {
                // The HTTP client has no cryptography of its own.
                crate::tls::install();
                let mut builder = AmazonS3Builder::from_env()
                    .with_bucket_name(bucket)
                    .with_retry(RetryConfig {
                        retry_timeout: REQUEST_TIME,
                        ..RetryConfig::default()
                    })
                    .with_client_options(
                        ClientOptions::new()
                            .with_allow_http(
                                endpoint
                                    .as_ref()
                                    .is_some_and(|url| url.starts_with("http://")),
                            )
                            .with_timeout(REQUEST_TIME)
                            .with_connect_timeout(CONNECT_TIME),
                    );
                if let Some(endpoint) = endpoint {
                    builder = builder.with_endpoint(endpoint);
                }
                if let Some(region) = region {
                    builder = builder.with_region(region);
                }
                let objects = builder
                    .build()
                    .with_context(|| format!("opening the bucket `{bucket}`"))?;
                Ok(Self {
                    objects: Arc::new(objects),
                    prefix: Path::from(prefix.as_str()),
                    folder: None,
                })
            }
        }
    }

    fn path(&self, name: &str) -> Path {
        let parts = name.split('/');
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Writes a small object.
    pub(crate) async fn put(&self, name: &str, bytes: Vec<u8>) -> anyhow::Result<()> {
        let payload = PutPayload::from(bytes);
        self.objects.put(&self.path(name), payload).await?;
        Ok(())
    }

    /// Writes an object that begins with `head` and goes on with what a spool holds, and says how large it is. It is
    /// finished or given up in a task of its own, so that a caller who hangs up leaves no half of it behind.
    pub(super) async fn put_spool(
        &self,
        name: &str,
        head: Vec<u8>,
        spool: Spool,
    ) -> anyhow::Result<u64> {
        let bytes = head.len() as u64 + spool.bytes();
        let (objects, path) = (self.objects.clone(), self.path(name));
        let task = async move {
            let mut pieces = Pieces::new(head, spool);
            let first = pieces.next().await?;
            if bytes <= PART_BYTES as u64 {
                let put = objects.put(&path, PutPayload::from(first));
                return tokio::time::timeout(UPLOAD_TIME, put)
                    .await
                    .context("it takes too long")?
                    .map(drop)
                    .map_err(Into::into);
            }
            let mut upload = objects.put_multipart(&path).await?;
            let sent =
                tokio::time::timeout(UPLOAD_TIME, send(upload.as_mut(), first, &mut pieces)).await;
            let sent = sent.context("it takes too long").flatten();
            if sent.is_err() {
                // The parts cost until they are gone. What this cannot remove, the bucket's life cycle has to.
                let _ = upload.abort().await;
            }
            sent
        };
        tokio::spawn(task).await.context("writing it broke")??;
        Ok(bytes)
    }

    /// A range of an object, as far as it goes; none where the object is not there.
    pub(crate) async fn get(&self, name: &str, range: Range<u64>) -> anyhow::Result<Option<Bytes>> {
        match self.objects.get_range(&self.path(name), range).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// All of a small object; none where it is not there.
    pub(crate) async fn get_all(&self, name: &str) -> anyhow::Result<Option<Bytes>> {
        match self.objects.get(&self.path(name)).await {
            Ok(found) => Ok(Some(found.bytes().await?)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// An object from `start` to its end, in pieces.
    pub(super) async fn stream(
        &self,
        name: &str,
        start: u64,
    ) -> anyhow::Result<BoxStream<'static, object_store::Result<Bytes>>> {
        let options = GetOptions {
            range: Some(GetRange::Offset(start)),
            ..GetOptions::default()
        };
        let found = self.objects.get_opts(&self.path(name), options).await?;
        Ok(found.into_stream())
    }

    /// Whether an object is there.
    pub(super) async fn has(&self, name: &str) -> bool {
        self.objects.head(&self.path(name)).await.is_ok()
    }

    /// Every object below a folder.
    pub(crate) async fn list(&self, folder: &str) -> anyhow::Result<Vec<Found>> {
        let below = self.path(folder);
        let listed = self.objects.list(Some(&below)).map_ok(|object| {
            let parts = object.location.prefix_match(&self.prefix);
            let name = parts.map(|parts| {
                parts
                    .map(|part| part.as_ref().to_owned())
                    .collect::<Vec<_>>()
            });
            Found {
                name: name.unwrap_or_default().join("/"),
                bytes: object.size,
                modified_ms: u64::try_from(object.last_modified.timestamp_millis())
                    .unwrap_or_default(),
            }
        });
        Ok(listed.try_collect().await?)
    }

    /// Removes objects. One that is gone already is no error.
    pub(crate) async fn remove(
        &self,
        names: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<()> {
        for name in names {
            match self.objects.delete(&self.path(&name)).await {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error).with_context(|| format!("removing `{name}`")),
            }
        }
        Ok(())
    }

    /// Removes what killed hosts have left half-written in a folder. A bucket has none: parts are not objects.
    pub(super) async fn remove_halves(&self) -> anyhow::Result<()> {
        let Some(folder) = self.folder.clone() else {
            return Ok(());
        };
        tokio::task::spawn_blocking(move || {
            remove_halves_below(&folder, SystemTime::now() - 2 * UPLOAD_TIME)
        })
        .await?
        .context("removing what was written half")
    }
}

/// Sends what is left, part by part.
async fn send(
    upload: &mut dyn MultipartUpload,
    first: Vec<u8>,
    pieces: &mut Pieces,
) -> anyhow::Result<()> {
    let mut piece = first;
    while !piece.is_empty() {
        upload.put_part(PutPayload::from(piece)).await?;
        piece = pieces.next().await?;
    }
    upload.complete().await?;
    Ok(())
}

/// A head and a spool, cut into parts.
struct Pieces {
    head: Vec<u8>,
    spool: Option<Spool>,
    read: u64,
    has_begun: bool,
}

impl Pieces {
    fn new(head: Vec<u8>, spool: Spool) -> Self {
        Self {
            head,
            spool: Some(spool),
            read: 0,
            has_begun: false,
        }
    }

    /// The next part; empty at the end.
    async fn next(&mut self) -> anyhow::Result<Vec<u8>> {
        let Some(mut spool) = self.spool.take() else {
            return Ok(Vec::new());
        };
        let (mut read, is_first) = (self.read, !self.has_begun);
        self.has_begun = true;
        let mut piece = std::mem::take(&mut self.head);
        let reading = tokio::task::spawn_blocking(move || {
            if is_first {
                spool.rewind()?;
            }
            while piece.len() < PART_BYTES {
                let room = PART_BYTES - piece.len();
                match spool.read_on(read, room, &mut piece)? {
                    0 => break,
                    more => read += more as u64,
                }
            }
            Ok::<_, std::io::Error>((spool, read, piece))
        });
        let (spool, read, piece) = reading.await?.context("reading the rows back")?;
        ensure!(
            !piece.is_empty() || read == spool.bytes(),
            "rows are missing"
        );
        (self.spool, self.read) = (Some(spool), read);
        Ok(piece)
    }
}

/// Removes files that are older than `oldest` and are half of one: their names end in `#` and a number.
fn remove_halves_below(folder: &FilePath, oldest: SystemTime) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Another host may have been quicker with any of this.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_dir() {
            remove_halves_below(&entry.path(), oldest)?;
        } else if name.contains('#') && metadata.modified()? < oldest {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}
