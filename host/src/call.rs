//! One call, from a name and arguments to a sealed reply. Every door goes through here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, watch};

use crate::catalog::{Catalog, Target, Tool};
use crate::client::{self, Profile};
use crate::contract::{BackendSelection, Condition};
use crate::queries::Queries;
use crate::sandbox::{Failed, Progress, Request, Usage};
use crate::shape::{
    Ask, Budget, BudgetSources, Call, HostArgument, Intake, Reader, Refusal, Reply, Signer, shape,
    shape_each,
};

/// The tenant of a host without tenants.
pub const SINGLE_TENANT: &str = "";

/// Who calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// The tenant; [`SINGLE_TENANT`] on a host without.
    pub tenant: String,
    /// The calling program, as it names itself.
    pub client: Option<String>,
}

/// Where progress of a call goes.
pub type ProgressSender = mpsc::Sender<Progress>;

/// The host: what is needed to serve calls. Cheap to share.
#[derive(Debug)]
pub struct Host {
    /// The tools. Swapped whole, so that a call sees one catalog from its beginning to its end.
    catalog: ArcSwap<Catalog>,
    /// How often the listing has changed; zero until the plugins have been loaded for the first time.
    version: watch::Sender<u64>,
    /// Signs cursors with the key of this installation.
    signer: Signer,
    /// Queries that do not fit into their cursors.
    queries: Queries,
    /// Budget of answers for which the call names none.
    result_tokens: Option<u64>,
    /// Whether what is known of client programs applies.
    knows_clients: bool,
    /// The cap of what the host itself sends.
    cap_bytes: u32,
    /// Numbers calls, for the log.
    calls: AtomicU64,
    /// Calls that have begun and not ended.
    running: AtomicU64,
}

/// Counts one call as running for as long as it lives, however it ends.
struct Running<'a>(&'a AtomicU64);

impl<'a> Running<'a> {
    fn begin(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Host {
    /// A host without tools, which waits for its first catalog.
    pub fn new(
        signer: Signer,
        queries: Queries,
        result_tokens: Option<u64>,
        cap_bytes: u32,
    ) -> Self {
        let version = watch::Sender::new(0);
        Self {
            catalog: ArcSwap::default(),
            version,
            signer,
            queries,
            result_tokens,
            knows_clients: true,
            cap_bytes,
            calls: AtomicU64::new(0),
            running: AtomicU64::new(0),
        }
    }

    /// The same host, to which what is known of client programs applies or not.
    #[must_use]
    pub fn with_client_profiles(mut self, knows_clients: bool) -> Self {
        self.knows_clients = knows_clients;
        self
    }

    /// What is known of the program that calls, where that applies.
    pub fn profile(&self, caller: &Caller) -> Option<&'static Profile> {
        let name = caller.client.as_deref().filter(|_| self.knows_clients)?;
        client::profile(name)
    }

    /// For whom an answer is shaped: the budget of this caller, for a call that asks for `max_tokens`, and the gates of its
    /// program. The only place where the sources of a budget come together.
    pub fn reader(&self, caller: &Caller, max_tokens: Option<u64>) -> Reader<'static> {
        let profile = self.profile(caller);
        let budget: Budget = BudgetSources {
            input: max_tokens,
            org: self.result_tokens,
            client_default: profile.and_then(|profile| profile.budget_tokens),
            ..Default::default()
        }
        .resolve();
        Reader {
            budget,
            gates: profile.map(|profile| &profile.gates),
        }
    }

    /// Serves this catalog from now on; calls that run go on with theirs. Whoever watches hears of it if the listing
    /// differs.
    pub fn serve(&self, catalog: Catalog) {
        let before = self.catalog.swap(Arc::new(catalog));
        let is_changed = before.listing().items() != self.catalog.load().listing().items();
        self.version.send_if_modified(|version| {
            let is_news = is_changed || *version == 0;
            *version += u64::from(is_news);
            is_news
        });
    }

    /// Waits until the plugins have been loaded for the first time. Compiling can take a while, and a client must not
    /// take an empty listing for the whole.
    pub async fn ready(&self) {
        // The sender lives as long as the host, so that waiting cannot fail.
        let _ = self
            .version
            .subscribe()
            .wait_for(|version| *version > 0)
            .await;
    }

    /// Changes of the listing, from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The tools as they are now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// How many calls are running now.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// The cap of what the host itself sends.
    pub fn cap_bytes(&self) -> u32 {
        self.cap_bytes
    }

    /// The tool of that name, if the caller may see it.
    pub fn tool(&self, _caller: &Caller, name: &str) -> Option<Arc<Tool>> {
        self.catalog.load().tool(name).cloned()
    }

    /// Looks a tool up and calls it; an unknown one is a refusal.
    pub async fn call_named(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Reply {
        self.measure_named(caller, name, arguments).await.0
    }

    /// Calls a tool. The reply is an answer or a refusal; dropping the future ends the guest.
    pub async fn call(
        &self,
        caller: &Caller,
        tool: &Tool,
        arguments: Map<String, Value>,
        progress: Option<ProgressSender>,
    ) -> Reply {
        self.measure(caller, tool, arguments, progress).await.0
    }

    /// Looks a tool up and measures a call of it.
    pub async fn measure_named(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
    ) -> (Reply, Usage) {
        self.ready().await;
        match self.tool(caller, name) {
            Some(tool) => self.measure(caller, &tool, arguments, None).await,
            None => (
                Reply::refused(&Refusal::unknown_tool(name)),
                Usage::default(),
            ),
        }
    }

    /// Calls a tool, and says what its plugin used.
    pub async fn measure(
        &self,
        caller: &Caller,
        tool: &Tool,
        arguments: Map<String, Value>,
        progress: Option<ProgressSender>,
    ) -> (Reply, Usage) {
        let _running = Running::begin(&self.running);
        let id = self.calls.fetch_add(1, Ordering::Relaxed).to_string();
        let mut usage = Usage::default();
        let reply = match self
            .answer(caller, tool, arguments, progress, &id, &mut usage)
            .await
        {
            Ok(reply) => reply,
            Err(refusal) => Reply::refused(&refusal),
        };
        (reply, usage)
    }

    /// Calls a tool once and shapes its answer for each of these callers, in their order: what each would get. The callers
    /// are of one tenant, that of the first; none get nothing.
    pub async fn preview(
        &self,
        callers: &[Caller],
        tool: &Tool,
        arguments: Map<String, Value>,
    ) -> Vec<Reply> {
        let Some(first) = callers.first() else {
            return Vec::new();
        };
        let _running = Running::begin(&self.running);
        let id = self.calls.fetch_add(1, Ordering::Relaxed).to_string();
        let taken = self
            .take_in(first, tool, arguments, None, &id, &mut Usage::default())
            .await;
        let (ask, intake) = match taken {
            Ok(taken) => taken,
            Err(refusal) => return callers.iter().map(|_| Reply::refused(&refusal)).collect(),
        };
        let readers: Vec<Reader<'_>> = callers
            .iter()
            .map(|caller| self.reader(caller, ask.max_tokens()))
            .collect();
        let replies = shape_each(intake, &self.shaping(tool, &ask, readers[0]), &readers);
        for reply in &replies {
            self.remember(tool, &ask, reply, &id).await;
        }
        replies
    }

    /// Keeps the query of a page that is followed by another where its cursor is too short for it.
    async fn remember(&self, tool: &Tool, ask: &Ask, reply: &Reply, id: &str) {
        if let Some(cursor) = reply.next_after()
            && !self.signer.carries_query(cursor)
            && let Err(error) = self.queries.remember(cursor, ask.arguments()).await
        {
            tracing::warn!(tool = tool.name(), call = id, %error, "a long query is not kept; its caller has to repeat it");
        }
    }

    /// What decides over an answer.
    fn shaping<'a>(&'a self, tool: &'a Tool, ask: &'a Ask, reader: Reader<'a>) -> Call<'a> {
        Call {
            policy: &tool.policy,
            tool: &tool.facts,
            ask,
            signer: &self.signer,
            budget: reader.budget,
            gates: reader.gates,
        }
    }

    async fn answer(
        &self,
        caller: &Caller,
        tool: &Tool,
        arguments: Map<String, Value>,
        progress: Option<ProgressSender>,
        id: &str,
        usage: &mut Usage,
    ) -> Result<Reply, Refusal> {
        let (ask, intake) = self
            .take_in(caller, tool, arguments, progress, id, usage)
            .await?;
        let reader = self.reader(caller, ask.max_tokens());
        let reply = shape(intake, &self.shaping(tool, &ask, reader));
        self.remember(tool, &ask, &reply, id).await;
        Ok(reply)
    }

    /// Reads the arguments, waits for a permit, and runs the plugin.
    async fn take_in(
        &self,
        caller: &Caller,
        tool: &Tool,
        arguments: Map<String, Value>,
        progress: Option<ProgressSender>,
        id: &str,
        usage: &mut Usage,
    ) -> Result<(Ask, Intake), Refusal> {
        let arguments = self.complete(tool, arguments).await;
        let ask = tool.read(&self.signer, &caller.tenant, arguments)?;
        let _permit = tool
            .admission
            .admit(tool.plugin.name(), tool.plugin.limits().deadline)
            .await?;
        let intake = Intake::new(&tool.policy, &ask, tool.intake_bytes);
        let called = tool.plugin.call(request(tool, &ask), intake, progress, &caller.tenant, id).await.map_err(|failed: Failed| {
            tracing::info!(tool = tool.name(), call = id, error = failed.refusal.error.as_str(), elapsed = ?failed.usage.elapsed, "call failed");
            *usage = failed.usage;
            failed.refusal
        })?;
        *usage = called.usage;
        tracing::debug!(tool = tool.name(), call = id, usage = ?called.usage, "call ended");
        Ok((ask, called.intake))
    }

    /// The arguments of a call with the query that its cursor continues, where the cursor is too short to carry it. What
    /// the call passes itself stays, and is compared with the cursor as ever.
    async fn complete(&self, tool: &Tool, mut arguments: Map<String, Value>) -> Map<String, Value> {
        let cursor = tool
            .policy
            .published(HostArgument::After)
            .and_then(|name| arguments.get(name))
            .and_then(Value::as_str)
            .filter(|cursor| !self.signer.carries_query(cursor));
        if let Some(cursor) = cursor
            && let Some(query) = self.queries.recall(cursor).await
        {
            for (name, value) in query {
                arguments.entry(name).or_insert(value);
            }
        }
        arguments
    }
}

/// What the plugin is asked.
fn request(tool: &Tool, ask: &Ask) -> Request {
    match &tool.target {
        Target::Handler(name) => Request::Tool {
            name: name.clone(),
            arguments: Value::Object(ask.for_handler(&tool.policy)).to_string(),
        },
        Target::List(collection) => {
            let pushed = ask.pushed_down(&tool.policy);
            let condition = |(field, values): (String, Vec<Value>)| Condition {
                field,
                values: values.iter().map(Value::to_string).collect(),
            };
            let selection = BackendSelection {
                limit: pushed.limit,
                after: pushed.after,
                conditions: pushed.conditions.into_iter().map(condition).collect(),
                fields: pushed.fields,
            };
            Request::Query {
                collection: collection.clone(),
                selection,
            }
        }
        Target::Get(collection) => {
            let key = ask
                .arguments()
                .get("key")
                .map(Value::to_string)
                .unwrap_or_default();
            Request::Get {
                collection: collection.clone(),
                key,
            }
        }
    }
}
