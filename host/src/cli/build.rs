//! `plimsoll build`

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::Exit;
use crate::app::App;
use crate::call::Caller;
use crate::config::{Config, FILE_NAME};
use crate::preview::grouped;

/// How plugins are built, here and in the repository of the host: there is one way.
const SCRIPT: &str = include_str!("../../../plugins/build");

/// How long loading may take without a word. A component that carries a JavaScript or Python runtime is compiled for some
/// 20 s, once.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct Build {
    #[command(flatten)]
    source: Source,
}

/// What is built, and where to.
#[derive(Debug, Args)]
pub(super) struct Source {
    /// The folder of the plugin
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// The folder of the component [default: the plugin's folder]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Where what builds plugins is installed, once for all of them [default: the user's cache folder]
    #[arg(long, value_name = "FOLDER", env = "PLIMSOLL_CACHE")]
    cache: Option<PathBuf>,
    /// The config file that says what the plugin is granted [default: `plimsoll.toml` in its folder, if there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Build {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let Some(component) = self.source.build()? else {
            return Ok(Exit::Failed);
        };
        let app = loaded(App::start(self.source.config(&component)?)).await?;
        std::io::stdout()
            .lock()
            .write_all(report(&component, &app)?.as_bytes())?;
        Ok(Exit::Success)
    }
}

impl Source {
    /// The folder of the plugin.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Builds the component and says where it is; none where that failed, which has been said already.
    pub(super) fn build(&self) -> anyhow::Result<Option<PathBuf>> {
        if !self.dir.is_dir() {
            bail!(
                "there is no folder `{}`\nhint: make a plugin with `plimsoll new NAME --lang rust`",
                self.dir.display()
            );
        }
        let cache = match &self.cache {
            Some(cache) => cache.clone(),
            None => default_cache().unwrap_or_else(|| self.dir.join(".plimsoll/cache")),
        };
        let script = Command::new("sh")
            .args(["-c", SCRIPT, "plimsoll build"])
            .arg("--cache")
            .arg(cache)
            .arg("--out")
            .arg(self.out.as_ref().unwrap_or(&self.dir))
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("running `sh`, which builds plugins")?;
        if !script.status.success() {
            return Ok(None);
        }
        let path = String::from_utf8(script.stdout).context("reading where the component is")?;
        let component = PathBuf::from(path.trim_end());
        Ok(Some(component))
    }

    /// What the plugin runs under: its entry in the config file, if there is one, and nothing granted otherwise.
    pub(super) fn config(&self, component: &Path) -> anyhow::Result<Config> {
        let beside = self.dir.join(FILE_NAME);
        let file = self
            .config
            .as_deref()
            .or_else(|| beside.exists().then_some(beside.as_path()));
        let Some(file) = file else {
            let mut config = Config::of_component(component)?;
            config.state.value = self.dir.join(crate::config::DEFAULT_STATE);
            return Ok(config);
        };
        let mut config = Config::read(file)?;
        let is_same = |path: &Path| {
            path.canonicalize().is_ok_and(|path| {
                component
                    .canonicalize()
                    .is_ok_and(|component| path == component)
            })
        };
        config.plugins.retain(|plugin| is_same(&plugin.component));
        if config.plugins.is_empty() {
            let name = component.file_stem().unwrap_or_default().display();
            bail!(
                "`{}` has no plugin whose component is `{}`\nhint: add the lines\n\n[plugins.{name}]\ncomponent = \"{name}.wasm\"",
                file.display(),
                component.display()
            );
        }
        Ok(config)
    }
}

/// Waits for plugins to be loaded, and says what is going on where that takes a while.
pub(super) async fn loaded<T>(loading: impl Future<Output = T>) -> T {
    let mut loading = pin!(loading);
    if let Ok(loaded) = tokio::time::timeout(PATIENCE, &mut loading).await {
        return loaded;
    }
    // Nobody reads it where standard error is closed, and then it does not matter.
    let _ = writeln!(
        std::io::stderr().lock(),
        "plimsoll build: compiling the component for this machine; the outcome is kept"
    );
    loading.await
}

/// The folder of this program in the user's cache folder.
fn default_cache() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(caches.join("plimsoll"))
}

/// What was built: the file, and each tool with what its listing costs.
fn report(component: &Path, app: &App) -> anyhow::Result<String> {
    let mut out = String::new();
    let bytes = component
        .metadata()
        .with_context(|| format!("reading `{}`", component.display()))?
        .len();
    let catalog = app.host.catalog(&Caller::default());
    let Some(plugin) = catalog.tools().find_map(|tool| tool.plugin()) else {
        bail!("`{}` offers no tools", component.display())
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{}: {}, {} bytes",
        component.display(),
        plugin.world(),
        grouped(bytes)
    );
    for tool in catalog.tools() {
        let description = tool.listed["description"].as_str().unwrap_or_default();
        let first_line = description.lines().next().unwrap_or_default();
        let _ = writeln!(
            out,
            "  {} (listing it costs {} tokens): {first_line}",
            tool.name(),
            tool.listing_tokens()
        );
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        let grouped = [0, 12, 123, 1_234, 123_456, 1_234_567].map(grouped);
        assert_eq!(grouped, ["0", "12", "123", "1,234", "123,456", "1,234,567"]);
    }

    #[test]
    fn the_script_fits_into_one_argument() {
        // Linux takes 128 KiB in one argument.
        assert!(SCRIPT.len() < 100_000);
        assert!(!SCRIPT.contains('\0'));
    }
}
