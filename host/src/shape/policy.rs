//! The policy of one tool: its declared shape, overridden by the operator and compiled once, at load.
//!
//! Owns: what the stages are to do by default, and under which names the host publishes its own arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cells::CellPolicy;
use super::select::{Path, Selection};
use crate::contract;

/// Rows of a page where neither the plugin nor the operator says otherwise.
pub const DEFAULT_LIMIT: u32 = 25;

/// The largest page where neither the plugin nor the operator says otherwise.
pub const MAX_LIMIT: u32 = 100;

/// A reply of this many bytes or more is refused by default: 256 KiB, above every page that a model can use and below
/// the sizes at which client programs drop the connection.
pub const DEFAULT_CAP_BYTES: u32 = 262_144;

/// The smallest cap that can be set: a refusal (8,000 bytes at most) must pass it.
pub const MIN_CAP_BYTES: u32 = 8_000;

/// The view that takes nothing away.
pub const FULL: &str = "full";

/// An argument that the host adds to a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostArgument {
    /// Rows of a page.
    Limit,
    /// The cursor of the page before.
    After,
    /// The view.
    Detail,
    /// Fields by name.
    Fields,
    /// Whether rows that are not live are shown.
    Horizon,
    /// The form of the body.
    Format,
    /// The token budget.
    MaxTokens,
}

impl HostArgument {
    /// All of them, in the order in which they are published.
    pub const ALL: [Self; 7] = [
        Self::Limit,
        Self::After,
        Self::Detail,
        Self::Fields,
        Self::Horizon,
        Self::Format,
        Self::MaxTokens,
    ];

    /// The name under which it is published unless the operator renames it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::After => "after",
            Self::Detail => "detail",
            Self::Fields => "fields",
            Self::Horizon => "horizon",
            Self::Format => "format",
            Self::MaxTokens => "max_tokens",
        }
    }

    /// The argument of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|argument| argument.name() == name)
    }
}

/// A compiled horizon.
#[derive(Debug, Clone)]
pub(crate) struct Horizon {
    pub(crate) field: Path,
    pub(crate) values: Vec<String>,
    /// Whether `values` are the live ones; otherwise they are the hidden ones.
    pub(crate) values_are_live: bool,
    pub(crate) excluded: String,
}

/// A compiled view.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) fields: Vec<Path>,
    pub(crate) selection: Selection,
}

/// A compiled column.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) field: Path,
}

/// A filter that the host carries out.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub(crate) argument: String,
    pub(crate) field: Path,
}

/// A compiled RFC 6901 pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) text: String,
    pub(crate) tokens: Vec<String>,
}

impl Pointer {
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let tokens = match text.strip_prefix('/') {
            Some(rest) => rest
                .split('/')
                .map(|token| token.replace("~1", "/").replace("~0", "~"))
                .collect(),
            None if text.is_empty() => Vec::new(),
            None => {
                return Err(format!(
                    "`{text}` is not a JSON pointer: expected it to be empty or to begin with `/`"
                ));
            }
        };
        Ok(Self {
            text: text.to_owned(),
            tokens,
        })
    }
}

/// Where the rows are, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rows {
    Automatic,
    Pointer(Pointer),
    Lines,
    Whole,
}

/// What the host does with the answers of one tool.
#[derive(Debug, Clone)]
pub struct Policy {
    pub(crate) rows: Rows,
    pub(crate) key: Option<Path>,
    pub(crate) horizon: Option<Horizon>,
    pub(crate) views: Vec<View>,
    pub(crate) default_view: Option<String>,
    pub(crate) columns: Vec<Column>,
    pub(crate) filters: Vec<Filter>,
    pub(crate) page: contract::Page,
    pub(crate) cap_bytes: u32,
    pub(crate) applies: contract::PushDown,
    /// What is taken out of the cells of rows.
    pub(crate) cells: Arc<CellPolicy>,
    /// Arguments that would select by a field that is withheld.
    pub(crate) withheld_filters: Vec<String>,
    published: BTreeMap<HostArgument, String>,
    /// Those of them that the handler has in its own schema.
    own: Vec<HostArgument>,
}

impl Policy {
    /// Compiles a shape. `own_arguments` are the names in the handler's own schema; `names` says under which other
    /// name the operator publishes an argument of the host, or, with `None`, that it is switched off.
    ///
    /// The error names the declaration that cannot be carried out.
    pub fn new(
        shape: &contract::Shape,
        default_cap_bytes: u32,
        own_arguments: &[&str],
        names: &BTreeMap<HostArgument, Option<String>>,
    ) -> Result<Self, String> {
        let rows = match &shape.rows {
            contract::RowSource::Automatic => Rows::Automatic,
            contract::RowSource::Pointer(pointer) => {
                Rows::Pointer(Pointer::new(pointer).map_err(|e| format!("rows: {e}"))?)
            }
            contract::RowSource::Lines => Rows::Lines,
            contract::RowSource::Whole => Rows::Whole,
        };
        let path =
            |what: &str, text: &str| Path::new(text).map_err(|error| format!("{what}: {error}"));
        let key = shape
            .key
            .as_deref()
            .map(|key| path("key", key))
            .transpose()?;
        let horizon = shape
            .horizon
            .as_ref()
            .map(|horizon| {
                let (values, values_are_live) = match &horizon.live {
                    contract::Accepted::OneOf(values) => (values.clone(), true),
                    contract::Accepted::NoneOf(values) => (values.clone(), false),
                };
                Ok::<_, String>(Horizon {
                    field: path("horizon.field", &horizon.field)?,
                    values,
                    values_are_live,
                    excluded: horizon.excluded.clone(),
                })
            })
            .transpose()?;
        let mut views = Vec::with_capacity(shape.views.len());
        for view in &shape.views {
            let what = format!("view `{}`", view.name);
            if view.name == FULL {
                return Err(format!(
                    "{what}: `full` always exists and takes nothing away; it is not declared"
                ));
            }
            let is_name = |name: &str| {
                !name.is_empty()
                    && name.bytes().all(|b| {
                        b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_'
                    })
            };
            if !is_name(&view.name) || views.iter().any(|other: &View| other.name == view.name) {
                return Err(format!(
                    "{what}: expected a name of its own, of lower-case letters, digits, `-` and `_`"
                ));
            }
            let fields = view
                .fields
                .iter()
                .map(|field| path(&what, field))
                .collect::<Result<Vec<_>, _>>()?;
            if fields.is_empty() {
                return Err(format!("{what}: expected at least one field"));
            }
            views.push(View {
                name: view.name.clone(),
                selection: Selection::new(&fields),
                fields,
            });
        }
        if let Some(default) = shape.default_view.as_deref().filter(|name| *name != FULL)
            && !views.iter().any(|view| view.name == default)
        {
            return Err(format!("default-view: there is no view `{default}`"));
        }
        let columns = shape
            .columns
            .iter()
            .map(|column| {
                Ok::<_, String>(Column {
                    name: column.name.clone(),
                    field: path("column", &column.field)?,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let filters = shape
            .filters
            .iter()
            .map(|filter| {
                if !own_arguments.contains(&filter.argument.as_str()) {
                    return Err(format!(
                        "filter: the input schema has no argument `{}`",
                        filter.argument
                    ));
                }
                Ok(Filter {
                    argument: filter.argument.clone(),
                    field: path("filter", &filter.field)?,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let page = shape.page.unwrap_or(contract::Page {
            default_limit: DEFAULT_LIMIT,
            max_limit: MAX_LIMIT,
        });
        if page.default_limit == 0 || page.max_limit < page.default_limit {
            return Err(format!(
                "page: expected 1 ≤ default-limit ≤ max-limit, found {} and {}",
                page.default_limit, page.max_limit
            ));
        }
        let cap_bytes = shape.cap_bytes.unwrap_or(default_cap_bytes);
        if cap_bytes < MIN_CAP_BYTES {
            return Err(format!(
                "cap-bytes: expected at least {MIN_CAP_BYTES}, since a refusal must pass, found {cap_bytes}"
            ));
        }
        let mut policy = Self {
            rows,
            key,
            horizon,
            views,
            default_view: shape.default_view.clone().filter(|name| name != FULL),
            columns,
            filters,
            page,
            cap_bytes,
            applies: shape.applies,
            cells: Arc::default(),
            withheld_filters: Vec::new(),
            published: BTreeMap::new(),
            own: Vec::new(),
        };
        policy.published = policy.publish(own_arguments, names)?;
        let is_own = |name: &String| own_arguments.contains(&name.as_str());
        policy.own = policy
            .published
            .iter()
            .filter(|(_, name)| is_own(name))
            .map(|(argument, _)| *argument)
            .collect();
        Ok(policy)
    }

    /// The same with this done to the cells of its rows, beside what is done already.
    ///
    /// A field that is withheld decides nothing that a caller could watch: pages are told apart by their position instead of
    /// their key, which a cursor would carry; a horizon by it does not apply, since lifting it would tell of every row
    /// whether it has a live value; an argument that filters by it is refused; a column of a table that is gone is gone.
    #[must_use]
    pub fn with_cells(mut self, cells: &CellPolicy) -> Self {
        let cells = self.cells.and(cells);
        self.key = self.key.filter(|key| !cells.covers(key));
        if self
            .horizon
            .as_ref()
            .is_some_and(|horizon| cells.covers(&horizon.field))
        {
            self.horizon = None;
            self.published.remove(&HostArgument::Horizon);
        }
        let (withheld, filters) = self
            .filters
            .into_iter()
            .partition(|filter: &Filter| cells.covers(&filter.field));
        self.filters = filters;
        let withheld: Vec<Filter> = withheld;
        self.withheld_filters
            .extend(withheld.into_iter().map(|filter| filter.argument));
        self.columns.retain(|column| !cells.removes(&column.field));
        if self.columns.is_empty() {
            self.published.remove(&HostArgument::Format);
        }
        for view in &mut self.views {
            view.fields.retain(|field| !cells.removes(field));
        }
        self.views.retain(|view| !view.fields.is_empty());
        if let Some(default) = self.default_view.take() {
            self.default_view = self.view(&default).is_some().then_some(default);
        }
        if self.views.is_empty() {
            self.published.remove(&HostArgument::Detail);
        }
        self.cells = Arc::new(cells);
        self
    }

    /// The same for a document that whoever makes it fits to the budget: it takes `max_tokens` although it has no rows.
    #[must_use]
    pub fn fitting_itself(mut self) -> Self {
        let argument = HostArgument::MaxTokens;
        self.published.insert(argument, argument.name().to_owned());
        self
    }

    /// What is taken out of the cells of rows.
    pub fn cells(&self) -> &CellPolicy {
        &self.cells
    }

    /// Which arguments of the host have a meaning for this tool, and their names.
    fn publish(
        &self,
        own_arguments: &[&str],
        names: &BTreeMap<HostArgument, Option<String>>,
    ) -> Result<BTreeMap<HostArgument, String>, String> {
        let has_fields = self.rows != Rows::Lines;
        let mut published: BTreeMap<HostArgument, String> = BTreeMap::new();
        for argument in HostArgument::ALL {
            let has_meaning = match argument {
                HostArgument::Limit | HostArgument::After | HostArgument::MaxTokens => {
                    self.rows != Rows::Whole
                }
                // Lines have no fields; one piece may be anything, unless views say that it is an object.
                HostArgument::Fields => match self.rows {
                    Rows::Whole => !self.views.is_empty(),
                    _ => has_fields,
                },
                HostArgument::Detail => has_fields && !self.views.is_empty(),
                HostArgument::Horizon => self.rows != Rows::Whole && self.horizon.is_some(),
                HostArgument::Format => has_fields && !self.columns.is_empty(),
            };
            let name = match names.get(&argument) {
                Some(Some(name)) => name.clone(),
                Some(None) => continue,
                None => argument.name().to_owned(),
            };
            let is_own = own_arguments.contains(&name.as_str());
            if is_own && names.contains_key(&argument) {
                return Err(format!(
                    "argument `{}`: the tool has an argument `{name}` of its own",
                    argument.name()
                ));
            }
            if let Some((other, _)) = published.iter().find(|(_, other)| **other == name) {
                return Err(format!(
                    "argument `{}`: `{name}` is already the name of `{}`",
                    argument.name(),
                    other.name()
                ));
            }
            if has_meaning && (!is_own || self.is_applied_by_handler(argument)) {
                published.insert(argument, name);
            }
        }
        // A handler that takes `limit` or `after` itself pages by itself: a cursor of the host would page its pages.
        // And a page without a way to the next one would be a cut, so the two go together.
        let has_own_limit = !published.contains_key(&HostArgument::Limit)
            && own_arguments.contains(&HostArgument::Limit.name())
            && !names.contains_key(&HostArgument::Limit);
        let pages_itself = has_own_limit || self.applies.contains(contract::PushDown::PAGING);
        if pages_itself || !published.contains_key(&HostArgument::After) {
            published.remove(&HostArgument::After);
            published.remove(&HostArgument::Limit);
        }
        Ok(published)
    }

    /// Whether the handler declared that it applies this argument itself.
    pub(crate) fn is_applied_by_handler(&self, argument: HostArgument) -> bool {
        let flag = match argument {
            HostArgument::Limit => contract::PushDown::LIMIT,
            HostArgument::After => contract::PushDown::AFTER,
            HostArgument::Fields => contract::PushDown::FIELDS,
            _ => return false,
        };
        self.applies.contains(flag)
    }

    /// Whether the handler's own schema has this argument, which it applies itself.
    pub(crate) fn is_own(&self, argument: HostArgument) -> bool {
        self.own.contains(&argument)
    }

    /// Whether something is declared that only rows can have.
    pub(crate) fn declares_rows(&self) -> bool {
        let is_declared = self.key.is_some() || self.horizon.is_some() || !self.filters.is_empty();
        self.rows != Rows::Whole
            && (is_declared || !self.views.is_empty() || !self.columns.is_empty())
    }

    /// The fields by which the host pages and narrows.
    pub(crate) fn needed_fields(&self) -> impl Iterator<Item = &str> {
        let horizon = self.horizon.iter().map(|horizon| &horizon.field);
        self.key
            .iter()
            .chain(horizon)
            .chain(self.filters.iter().map(|filter| &filter.field))
            .map(Path::text)
    }

    /// The name under which an argument of the host is published; `None` where it is not.
    pub fn published(&self, argument: HostArgument) -> Option<&str> {
        self.published.get(&argument).map(String::as_str)
    }

    /// Whether the host pages this tool's answers: unless the handler does, or the operator switched it off.
    pub(crate) fn is_paged(&self) -> bool {
        self.published.contains_key(&HostArgument::After)
    }

    /// The declared view of that name.
    pub(crate) fn view(&self, name: &str) -> Option<&View> {
        self.views.iter().find(|view| view.name == name)
    }

    /// Names of the views with their fields; `full`, which has every field, comes last.
    pub fn views(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        let declared = self.views.iter().map(|view| {
            (
                view.name.as_str(),
                view.fields.iter().map(Path::text).collect(),
            )
        });
        declared.chain((!self.views.is_empty()).then_some((FULL, Vec::new())))
    }

    /// The view that an absent `detail` selects.
    pub fn default_view(&self) -> &str {
        self.default_view.as_deref().unwrap_or(FULL)
    }

    /// What the default horizon hides, if there is one.
    pub fn excluded(&self) -> Option<&str> {
        self.horizon
            .as_ref()
            .map(|horizon| horizon.excluded.as_str())
    }

    /// Rows of a page by default, and at most.
    pub fn page(&self) -> (u32, u32) {
        (self.page.default_limit, self.page.max_limit)
    }

    /// A reply of this many bytes or more is refused.
    pub fn cap_bytes(&self) -> u32 {
        self.cap_bytes
    }

    /// Header cells of a table.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// The declared columns: header cell, and path of the field.
    pub fn declared_columns(&self) -> impl Iterator<Item = (&str, &str)> {
        let columns = self.columns.iter();
        columns.map(|column| (column.name.as_str(), column.field.text()))
    }

    /// Every field that a declaration names, each once.
    pub(crate) fn known_fields(&self) -> Vec<&str> {
        let mut fields: Vec<&str> = Vec::new();
        let views = self.views.iter().flat_map(|view| &view.fields);
        for path in self
            .key
            .iter()
            .chain(views)
            .chain(self.columns.iter().map(|column| &column.field))
        {
            if !fields.contains(&path.text()) {
                fields.push(path.text());
            }
        }
        fields
    }
}

/// A shape that declares nothing: rows are found automatically, all defaults are the host's.
pub fn undeclared() -> contract::Shape {
    contract::Shape {
        rows: contract::RowSource::Automatic,
        key: None,
        horizon: None,
        views: Vec::new(),
        default_view: None,
        columns: Vec::new(),
        filters: Vec::new(),
        page: None,
        cap_bytes: None,
        applies: contract::PushDown::empty(),
    }
}

impl Policy {
    /// Where the rows are, as the config file writes it.
    pub fn rows_at(&self) -> &str {
        match &self.rows {
            Rows::Automatic => "automatic",
            Rows::Pointer(pointer) => &pointer.text,
            Rows::Lines => "lines",
            Rows::Whole => "whole",
        }
    }

    /// Path of the field that identifies a row.
    pub fn key(&self) -> Option<&str> {
        self.key.as_ref().map(Path::text)
    }
}
