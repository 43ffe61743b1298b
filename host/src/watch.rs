//! Watches the config file and the component files, and reloads when one changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Config;

/// How long the files must be quiet before a reload: longer than the pauses of a program that writes a component, shorter
/// than a person's patience.
const QUIET: Duration = Duration::from_millis(200);

/// Reloads at every change until `stop` fires.
pub async fn run(app: &App, stop: CancellationToken) -> anyhow::Result<()> {
    let changed = Arc::new(Notify::new());
    let mut watched = Watched::new(changed.clone())?;
    watched.add(&app.config);
    // What changed between loading and watching is not lost.
    changed.notify_one();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = changed.notified() => {}
        }
        // Until it is quiet: half a component is not worth a try.
        while tokio::time::timeout(QUIET, changed.notified())
            .await
            .is_ok()
        {}
        if let Some(config) = app.reload().await {
            watched.add(&config);
        }
    }
}

/// The folders that are watched. Folders and not files, because a file that is replaced is another file.
struct Watched {
    watcher: RecommendedWatcher,
    folders: BTreeSet<PathBuf>,
}

impl Watched {
    fn new(changed: Arc<Notify>) -> anyhow::Result<Self> {
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading is what a reload does itself; it must not lead to the next one.
            if !event.is_ok_and(|event| event.kind.is_access()) {
                changed.notify_one();
            }
        });
        Ok(Self {
            watcher: watcher.context("watching files")?,
            folders: BTreeSet::new(),
        })
    }

    /// Watches the folders of a configuration, beside those that are watched already.
    fn add(&mut self, config: &Config) {
        let components = config
            .plugins
            .iter()
            .map(|plugin| plugin.component.as_path());
        let files = config.file.as_deref().into_iter().chain(components);
        let mut folders: BTreeSet<PathBuf> = files
            .filter_map(Path::parent)
            .map(|folder| {
                if folder.as_os_str().is_empty() {
                    PathBuf::from(".")
                } else {
                    folder.to_owned()
                }
            })
            .collect();
        folders.insert(config.plugins_folder.value.clone());
        for folder in folders {
            if !self.folders.contains(&folder) && folder.is_dir() {
                match self.watcher.watch(&folder, RecursiveMode::NonRecursive) {
                    Ok(()) => drop(self.folders.insert(folder)),
                    Err(error) => {
                        tracing::warn!("changes in `{}` are not seen: {error}", folder.display())
                    }
                }
            }
        }
    }
}
