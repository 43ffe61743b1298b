//! `plimsoll call`

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Map, Value};

use super::{CallerArguments, ConfigArgument, Exit};
use crate::app::App;
use crate::config::Config;
use crate::shape::Reply;

#[derive(Debug, Args)]
pub(super) struct Call {
    #[command(flatten)]
    what: What,
}

/// What is called, and with which configuration.
#[derive(Debug, Args)]
pub(super) struct What {
    /// The tool
    pub(super) tool: String,
    /// Its arguments, a JSON object; `-` reads them from standard input
    #[arg(long, value_name = "JSON", default_value = "{}")]
    args: String,
    #[command(flatten)]
    config: ConfigArgument,
    #[command(flatten)]
    pub(super) caller: CallerArguments,
    /// A component file to call without a config file; it is granted nothing
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    plugin: Option<PathBuf>,
}

impl What {
    /// The host that is called, and the arguments.
    pub(super) async fn open(&self) -> anyhow::Result<(App, Map<String, Value>)> {
        let config = match &self.plugin {
            Some(component) => Config::of_component(component)?,
            None => self.config.read()?,
        };
        let text = if self.args == "-" {
            std::io::read_to_string(std::io::stdin())
                .context("reading the arguments from standard input")?
        } else {
            self.args.clone()
        };
        let arguments: Map<String, Value> =
            match serde_json::from_str(&text).context("`--args` must be a JSON object")? {
                Value::Object(arguments) => arguments,
                other => bail!("`--args` must be a JSON object, found: {other}"),
            };
        Ok((App::start(config).await?, arguments))
    }
}

impl Call {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let (app, arguments) = self.what.open().await?;
        let caller = self.what.caller.caller(&app)?;
        let reply = app
            .host
            .call_named(&caller, &self.what.tool, arguments)
            .await;
        app.close().await;
        if reply.refusal().is_some() {
            writeln!(std::io::stderr().lock(), "{}", reply.body())?;
            return Ok(Exit::Refused);
        }
        writeln!(std::io::stderr().lock(), "{}", reply.facts())?;
        let mut out = std::io::stdout().lock();
        // The body is the handler's bytes: nothing is added, not even a line break.
        out.write_all(reply.body().as_bytes())?;
        say_attachments(&reply)?;
        out.flush()?;
        // No server runs here that would do it now and then.
        if let Err(error) = app.host.results().sweep().await {
            tracing::warn!("expired results stay for now: {error:#}");
        }
        Ok(Exit::Success)
    }
}

/// Names the attachments of a reply on standard error.
pub(super) fn say_attachments(reply: &Reply) -> std::io::Result<()> {
    for attachment in reply.attachments() {
        writeln!(
            std::io::stderr().lock(),
            "attachment: {}",
            describe(attachment)
        )?;
    }
    Ok(())
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
