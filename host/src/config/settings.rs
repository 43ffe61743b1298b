//! What the settings of a rule for tools mean: checked when they are read, and put over what a plugin declares.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail};

use super::file::{CellsFile, ColumnFile, HorizonFile, Switch, ToolFile};
use crate::contract;
use crate::shape::{CellPolicy, DEFAULT_DATA_CHARS, DEFAULT_LIMIT, HostArgument, MAX_LIMIT};

pub(super) fn check_tool(tool: &ToolFile) -> anyhow::Result<()> {
    super::check_bounds(tool.deadline_ms, tool.cap_bytes, "")?;
    super::check_tokens(tool.result_tokens)?;
    tool.argument_names().map(drop)?;
    tool.cells
        .iter()
        .try_for_each(|cells| cells.policy().map(drop))?;
    if let Some(Switch::Value(horizon)) = &tool.horizon {
        horizon.accepted()?;
    }
    Ok(())
}

impl HorizonFile {
    fn accepted(&self) -> anyhow::Result<contract::Accepted> {
        match (&self.live, &self.hidden) {
            (Some(live), None) => Ok(contract::Accepted::OneOf(live.clone())),
            (None, Some(hidden)) => Ok(contract::Accepted::NoneOf(hidden.clone())),
            _ => bail!("`horizon` takes exactly one of `live` and `hidden`"),
        }
    }
}

impl CellsFile {
    /// As the stages take it.
    pub fn policy(&self) -> anyhow::Result<CellPolicy> {
        if let Some(chars) = self.replace_data_chars
            && !self.replace_data
        {
            bail!(
                "`cells.replace_data_chars` is {chars}, and `replace_data` is not true: expected both or none"
            );
        }
        let numbers = [
            ("replace_data_chars", self.replace_data_chars),
            ("max_cell_chars", self.max_cell_chars),
        ];
        if let Some((name, _)) = numbers.iter().find(|(_, chars)| *chars == Some(0)) {
            bail!(
                "`cells.{name}` must be at least 1, found 0; leave it out to leave cells as they are"
            );
        }
        let data_chars = self
            .replace_data
            .then_some(self.replace_data_chars.unwrap_or(DEFAULT_DATA_CHARS));
        CellPolicy::new(&self.drop, &self.mask, data_chars, self.max_cell_chars)
            .map_err(|message| anyhow!("`cells`: {message}"))
    }
}

impl ToolFile {
    /// Under which name each argument of the host goes; none switches it off.
    pub fn argument_names(&self) -> anyhow::Result<BTreeMap<HostArgument, Option<String>>> {
        let mut names = BTreeMap::new();
        for (name, switch) in &self.arguments {
            let Some(argument) = HostArgument::named(name) else {
                let valid: Vec<&str> = HostArgument::ALL
                    .into_iter()
                    .map(HostArgument::name)
                    .collect();
                bail!(
                    "`arguments.{name}`: the host has no such argument; it has {}",
                    valid.join(", ")
                );
            };
            match switch {
                Switch::Is(true) => {}
                Switch::Is(false) => {
                    names.insert(argument, None);
                }
                Switch::Value(name) => {
                    names.insert(argument, Some(name.clone()));
                }
            }
        }
        Ok(names)
    }

    /// The plugin's declaration with what the operator says in its place.
    pub fn apply(&self, mut shape: contract::Shape) -> anyhow::Result<contract::Shape> {
        if let Some(rows) = &self.rows {
            shape.rows = match rows.as_str() {
                "automatic" => contract::RowSource::Automatic,
                "lines" => contract::RowSource::Lines,
                "whole" => contract::RowSource::Whole,
                pointer => contract::RowSource::Pointer(pointer.to_owned()),
            };
        }
        if let Some(key) = &self.key {
            shape.key = Some(key.clone());
        }
        match &self.horizon {
            None | Some(Switch::Is(true)) => {}
            Some(Switch::Is(false)) => {
                shape.horizon = None;
            }
            Some(Switch::Value(horizon)) => {
                shape.horizon = Some(contract::Horizon {
                    field: horizon.field.clone(),
                    live: horizon.accepted()?,
                    excluded: horizon.excluded.clone(),
                });
            }
        }
        if let Some(views) = &self.views {
            let view = |(name, fields): (&String, &Vec<String>)| contract::View {
                name: name.clone(),
                fields: fields.clone(),
            };
            shape.views = views.iter().map(view).collect();
            if self.default_view.is_none() {
                let default = shape.default_view.take();
                shape.default_view = default.filter(|default| views.contains_key(default));
            }
        }
        if let Some(default) = &self.default_view {
            shape.default_view = Some(default.clone());
        }
        if let Some(columns) = &self.columns {
            let column = |column: &ColumnFile| contract::Column {
                name: column.name.clone(),
                field: column.field.clone(),
            };
            shape.columns = columns.iter().map(column).collect();
        }
        if self.default_limit.is_some() || self.max_limit.is_some() {
            let declared = shape.page.unwrap_or(contract::Page {
                default_limit: DEFAULT_LIMIT,
                max_limit: MAX_LIMIT,
            });
            let max_limit = self.max_limit.unwrap_or(declared.max_limit);
            let default_limit = self
                .default_limit
                .unwrap_or(declared.default_limit.min(max_limit));
            shape.page = Some(contract::Page {
                default_limit,
                max_limit,
            });
        }
        if let Some(cap) = self.cap_bytes {
            shape.cap_bytes = Some(cap);
        }
        Ok(shape)
    }
}
