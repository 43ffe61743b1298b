//! `plimsoll call`

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Map, Value};

use super::{CallerArguments, ConfigArgument, Exit};
use crate::app::App;
use crate::config::Config;

#[derive(Debug, Args)]
pub(super) struct Call {
    /// The tool
    tool: String,
    /// Its arguments, a JSON object; `-` reads them from standard input
    #[arg(long, value_name = "JSON", default_value = "{}")]
    args: String,
    #[command(flatten)]
    config: ConfigArgument,
    #[command(flatten)]
    caller: CallerArguments,
    /// A component file to call without a config file; it is granted nothing
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    plugin: Option<PathBuf>,
}

impl Call {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let config = match &self.plugin {
            Some(component) => Config::of_component(component)?,
            None => self.config.read()?,
        };
        let text = if self.args == "-" {
            std::io::read_to_string(std::io::stdin())
                .context("reading the arguments from standard input")?
        } else {
            self.args
        };
        let arguments: Map<String, Value> =
            match serde_json::from_str(&text).context("`--args` must be a JSON object")? {
                Value::Object(arguments) => arguments,
                other => bail!("`--args` must be a JSON object, found: {other}"),
            };
        let app = App::start(config).await?;
        let caller = self.caller.caller(&app)?;
        let reply = app.host.call_named(&caller, &self.tool, arguments).await;
        app.close().await;
        if reply.refusal().is_some() {
            writeln!(std::io::stderr().lock(), "{}", reply.body())?;
            return Ok(Exit::Refused);
        }
        writeln!(std::io::stderr().lock(), "{}", reply.facts())?;
        let mut out = std::io::stdout().lock();
        // The body is the handler's bytes: nothing is added, not even a line break.
        out.write_all(reply.body().as_bytes())?;
        for attachment in reply.attachments() {
            writeln!(
                std::io::stderr().lock(),
                "attachment: {}",
                describe(attachment)
            )?;
        }
        out.flush()?;
        // No server runs here that would do it now and then.
        if let Err(error) = app.host.results().sweep().await {
            tracing::warn!("expired results stay for now: {error:#}");
        }
        Ok(Exit::Success)
    }
}

fn describe(attachment: &crate::contract::Attachment) -> String {
    use crate::contract::Attachment;
    match attachment {
        Attachment::Image(blob) | Attachment::Audio(blob) => {
            format!("{}, {} bytes", blob.media_type, blob.data.len())
        }
        Attachment::Resource(embedded) => format!(
            "{}, {}, {} bytes",
            embedded.uri,
            embedded.media_type,
            embedded.data.len()
        ),
    }
}
