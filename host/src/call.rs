//! One call, from a name and arguments to a sealed reply. Every door goes through here.

mod open;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::account::Account;
use crate::admission::Permit;
use crate::catalog::{Carried, Carrier, Catalog, Catalogs, Target, Tool};
use crate::client::{self, Profile};
use crate::contract::{BackendSelection, Condition};
use crate::ledger::Ledger;
use crate::meta::{self, Meant};
use crate::metrics::Metrics;
use crate::queries::Queries;
use crate::results::{Origin, Results};
use crate::sandbox::{Failed, Progress, Request, Usage, Window};
use crate::shape::{
    Ask, BudgetSources, Call, Code, HostArgument, Intake, Next, Policy, Reader, Refusal, Reply,
    Signer, ToolFacts, tokens,
};
use crate::tenant::{Key, Tenants};

/// Who calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// The tenant; [`SINGLE_TENANT`](crate::tenant::SINGLE_TENANT) on a host for one user.
    pub tenant: String,
    /// The key that was shown.
    pub key: Option<Arc<Key>>,
    /// Whom an identity provider says that it is, where a token was shown in place of a key.
    pub subject: Option<String>,
    /// The calling program, as it names itself.
    pub client: Option<String>,
    /// Whether it may use what is for admins.
    pub is_admin: bool,
    /// The trace that the call is part of, as W3C writes it.
    pub traceparent: Option<String>,
}

/// Where progress of a call goes.
pub type ProgressSender = mpsc::Sender<Progress>;

/// The host: what is needed to serve calls. Cheap to share.
#[derive(Debug)]
pub struct Host {
    /// The tools. Swapped whole, so that a call sees one catalog from its beginning to its end.
    catalogs: ArcSwap<Catalogs>,
    /// How often the listing has changed; zero until the plugins have been loaded for the first time.
    version: watch::Sender<u64>,
    /// Signs cursors with the key of this installation.
    signer: Signer,
    /// Queries that do not fit into their cursors.
    queries: Queries,
    /// Complete results of answers of which rows were left out.
    results: Results,
    /// Who calls, with which budget and quota.
    tenants: Arc<Tenants>,
    /// Where calls are written down.
    ledger: Ledger,
    /// Counts calls for whoever watches.
    metrics: Metrics,
    /// Tells the calls of this process from those of others.
    process: String,
    /// Whether what is known of client programs applies.
    knows_clients: bool,
    /// The cap of what the host itself sends.
    cap_bytes: u32,
    /// Numbers calls, for the log.
    calls: AtomicU64,
    /// Calls that have begun and not ended.
    running: watch::Sender<u64>,
    /// Fires when calls that still run have to end.
    ending: CancellationToken,
}

/// Counts one call as running for as long as it lives, however it ends.
struct Running<'a>(&'a watch::Sender<u64>);

impl<'a> Running<'a> {
    fn begin(count: &'a watch::Sender<u64>) -> Self {
        count.send_modify(|running| *running += 1);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

impl Host {
    /// A host without tools, which waits for its first catalog.
    pub fn new(
        signer: Signer,
        queries: Queries,
        results: Results,
        tenants: Arc<Tenants>,
        ledger: Ledger,
        process: String,
        cap_bytes: u32,
    ) -> Self {
        let version = watch::Sender::new(0);
        Self {
            catalogs: ArcSwap::default(),
            version,
            signer,
            queries,
            results,
            tenants,
            ledger,
            metrics: Metrics::default(),
            process,
            knows_clients: true,
            cap_bytes,
            calls: AtomicU64::new(0),
            running: watch::Sender::new(0),
            ending: CancellationToken::new(),
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

    /// For whom an answer is shaped: the budget of this caller, for a call of this tool that asks for `max_tokens`, and the
    /// gates of its program. What the operator decided for the tool goes before what is set for the whole tenant. The only place where the sources of a budget come together.
    pub fn reader(&self, caller: &Caller, tool: &Tool, max_tokens: Option<u64>) -> Reader<'static> {
        let profile = self.profile(caller);
        let (key, org) = self.tenants.budgets(caller);
        let budget = BudgetSources {
            input: max_tokens,
            key,
            org: tool.result_tokens.or(org),
            client_default: profile.and_then(|profile| profile.budget_tokens),
        }
        .resolve();
        Reader {
            budget,
            gates: profile.map(|profile| &profile.gates),
        }
    }

    /// Serves these catalogs from now on; calls that run go on with theirs. Whoever watches hears of it if a listing
    /// differs.
    ///
    /// Returns whether one does, or these are the first.
    pub fn serve(&self, catalogs: Catalogs) -> bool {
        let before = self.catalogs.swap(Arc::new(catalogs));
        let is_changed = !before.lists_the_same(&self.catalogs.load());
        self.version.send_if_modified(|version| {
            let is_news = is_changed || *version == 0;
            *version += u64::from(is_news);
            is_news
        })
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

    /// The tools of all callers as they are now.
    pub fn catalogs(&self) -> Arc<Catalogs> {
        self.catalogs.load_full()
    }

    /// The tools of a caller as they are now.
    pub fn catalog(&self, caller: &Caller) -> Arc<Catalog> {
        self.catalogs.load().of(&caller.tenant).clone()
    }

    /// How many different tools are served.
    pub fn tools(&self) -> usize {
        self.catalogs.load().count()
    }

    /// Who calls.
    pub fn tenants(&self) -> &Arc<Tenants> {
        &self.tenants
    }

    /// Where calls are written down.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The id of the next call: no other process has it, and no other call of this one.
    pub(crate) fn next_call(&self) -> String {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.process)
    }

    /// What calls are counted with.
    pub(crate) fn counters(&self) -> &Metrics {
        &self.metrics
    }

    /// What is counted, as OpenMetrics writes it.
    pub fn metrics(&self) -> String {
        self.metrics.text(self.running())
    }

    /// How many calls are running now.
    pub fn running(&self) -> u64 {
        *self.running.borrow()
    }

    /// Ends the calls that still run, as if their callers had gone, and waits until they are written down.
    pub async fn end_calls(&self) {
        self.ending.cancel();
        // The sender lives as long as the host, so that waiting cannot fail.
        let _ = self
            .running
            .subscribe()
            .wait_for(|running| *running == 0)
            .await;
    }

    /// What comes of a call; none where the host ends before it does, and the call with it.
    async fn unless_ended<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        self.ending.run_until_cancelled(call).await
    }

    /// The cap of what the host itself sends.
    pub fn cap_bytes(&self) -> u32 {
        self.cap_bytes
    }

    /// Complete results.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// The tool of that name, if the caller may see it.
    pub fn tool(&self, caller: &Caller, name: &str) -> Option<Arc<Tool>> {
        self.catalogs.load().of(&caller.tenant).tool(name).cloned()
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
        tool: &Arc<Tool>,
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

    /// Calls a tool, or the one that `invoke_tool` names, and says what its plugin used.
    pub async fn measure(
        &self,
        caller: &Caller,
        tool: &Arc<Tool>,
        arguments: Map<String, Value>,
        progress: Option<ProgressSender>,
    ) -> (Reply, Usage) {
        let _running = Running::begin(&self.running);
        let (meant, arguments) = self.meant(caller, tool, arguments);
        let mut account = Account::open(self, caller, &meant.tool);
        let span = account.span.clone();
        let callers = std::slice::from_ref(caller);
        // Boxed: it is large, and every future around it would be made by moving it.
        let answer = Box::pin(self.answer(callers, &meant, arguments, progress, &mut account));
        let answered = self.unless_ended(answer.instrument(span)).await;
        let reply = match answered {
            Some(Ok(mut replies)) => replies.pop().expect("one caller gets one reply"),
            Some(Err(refusal)) => meant.facts().refuse(refusal),
            // What is not closed is written down as cancelled.
            None => return (Reply::refused(&ended()), account.meter.usage()),
        };
        account.close(&reply);
        account.release().await;
        (reply, account.usage)
    }

    /// Calls a tool once and shapes its answer for each of these callers, in their order: what each would get. The callers
    /// are of one tenant and one key, those of the first, who makes the call; none get nothing.
    pub async fn preview(
        &self,
        callers: &[Caller],
        tool: &Arc<Tool>,
        arguments: Map<String, Value>,
    ) -> Vec<Reply> {
        let Some(first) = callers.first() else {
            return Vec::new();
        };
        let _running = Running::begin(&self.running);
        let (meant, arguments) = self.meant(first, tool, arguments);
        let mut account = Account::open(self, first, &meant.tool);
        let answer = self.answer(callers, &meant, arguments, None, &mut account);
        let answered = self.unless_ended(answer).await;
        let refuse = |refusal: Refusal| {
            let refused = callers
                .iter()
                .map(|_| meant.facts().refuse(refusal.clone()));
            refused.collect()
        };
        let Some(answered) = answered else {
            return refuse(ended());
        };
        let replies: Vec<Reply> = answered.unwrap_or_else(refuse);
        account.close(&replies[0]);
        account.release().await;
        replies
    }

    /// What a call of a tool means: that call, or the one that it stands for.
    fn meant(
        &self,
        caller: &Caller,
        tool: &Arc<Tool>,
        arguments: Map<String, Value>,
    ) -> (Meant, Result<Map<String, Value>, Refusal>) {
        let catalog = self.catalog(caller);
        Meant::of(&catalog, &self.signer, &caller.tenant, tool, arguments)
    }

    /// What decides over an answer.
    fn shaping<'a>(
        &'a self,
        tool: &'a Tool,
        facts: &'a ToolFacts,
        ask: &'a Ask,
        reader: Reader<'a>,
    ) -> Call<'a> {
        Call {
            policy: &tool.policy,
            tool: facts,
            ask,
            signer: &self.signer,
            budget: reader.budget,
            gates: reader.gates,
        }
    }

    /// Reads the arguments, waits for permits, runs the plugin, and shapes what it answered for each of the callers, of whom
    /// the first one calls.
    async fn answer(
        &self,
        callers: &[Caller],
        meant: &Meant,
        arguments: Result<Map<String, Value>, Refusal>,
        progress: Option<ProgressSender>,
        account: &mut Account<'_>,
    ) -> Result<Vec<Reply>, Refusal> {
        let (caller, tool) = (&callers[0], &*meant.tool);
        let arguments = self.complete(tool, arguments?).await;
        let ask = tool.read(&self.signer, &caller.tenant, arguments)?;
        let readers: Vec<Reader<'_>> = callers
            .iter()
            .map(|caller| self.reader(caller, tool, ask.max_tokens()))
            .collect();
        let shaping = |reader| self.shaping(tool, meant.facts(), &ask, reader);
        // Waiting is part of the call: it ends at its deadline, wherever it waits.
        let begun = tokio::time::Instant::now();
        let deadline = tool.deadline;
        let _permit_of_tenant = self.tenants.admit(caller, deadline).await?;
        let replies = if ask.kept_place().is_some() {
            account.admitted = self
                .tenants
                .reserve(caller, account.call(), deadline)
                .await?;
            let mut replies = Vec::with_capacity(readers.len());
            for reader in &readers {
                let call = shaping(*reader);
                let page = self.results.page(&call, &caller.tenant, tool.intake_bytes);
                replies.push(page.await?);
            }
            replies
        } else if let Carrier::Plugin(carried) = &tool.carrier {
            let (intake, _permit) = self
                .hand_over(caller, tool, carried, &ask, begun, progress, account)
                .await?;
            self.results
                .shape_each(
                    intake,
                    &shaping(readers[0]),
                    &readers,
                    origin(caller, tool),
                    begun + deadline,
                )
                .await
        } else {
            account.admitted = self
                .tenants
                .reserve(caller, account.call(), deadline)
                .await?;
            let catalog = self.catalog(caller);
            let answers = readers.iter().map(|reader| {
                let answer = meta::answer(tool, &shaping(*reader), &catalog);
                answer.unwrap_or_else(|refusal| meant.facts().refuse(refusal))
            });
            answers.collect()
        };
        for reply in &replies {
            self.remember_query(reply, &ask, tool, account.call()).await;
        }
        Ok(replies)
    }

    /// Waits for a permit of the plugin and runs it, as often as a whole answer takes pages. What it handed over comes with
    /// the permit, which is held until the answer is shaped or kept: what answers hold in memory is bounded by how many
    /// there are.
    #[expect(clippy::too_many_arguments, reason = "each is another thing")]
    async fn hand_over(
        &self,
        caller: &Caller,
        tool: &Tool,
        carried: &Carried,
        ask: &Ask,
        begun: tokio::time::Instant,
        progress: Option<ProgressSender>,
        account: &mut Account<'_>,
    ) -> Result<(Intake, Permit), Refusal> {
        tokens::begin();
        let id = account.call().to_owned();
        let deadline = tool.deadline;
        let window = Window { begun, deadline };
        let patience = deadline.saturating_sub(begun.elapsed());
        let permit = carried.admission.admit(&caller.tenant, patience).await?;
        account.admitted = self.tenants.reserve(caller, &id, deadline).await?;
        let empty = |ask: &Ask| {
            let spool = self.results.spool().filter(|_| !ask.is_continuation());
            Intake::new(&tool.policy, ask, tool.intake_bytes).spooling(spool)
        };
        let (mut ask, mut intake) = (ask.clone(), empty(ask));
        loop {
            let called = carried
                .plugin
                .call_within(
                    window,
                    account.meter.clone(),
                    request(&carried.target, &tool.policy, &ask),
                    intake,
                    progress.clone(),
                    &caller.tenant,
                    &id,
                )
                .await;
            let elapsed = begun.elapsed();
            account.usage = Usage {
                elapsed,
                ..account.meter.usage()
            };
            intake = called
                .map_err(|failed: Failed| {
                    tracing::info!(
                        tool = tool.name(),
                        call = id,
                        error = failed.refusal.error.as_str(),
                        ?elapsed,
                        "call failed"
                    );
                    failed.refusal
                })?
                .intake;
            let next = intake.next_page();
            ask = ask.going_on(&next);
            match next {
                Next::End => break,
                Next::Behind(_) => {}
                Next::AllAtOnce => intake = empty(&ask),
            }
        }
        tracing::debug!(tool = tool.name(), call = id, usage = ?account.usage, "call ended");
        Ok((intake, permit))
    }

    /// Keeps the query of a reply's cursor, where the cursor is too short to carry it.
    async fn remember_query(&self, reply: &Reply, ask: &Ask, tool: &Tool, id: &str) {
        if let Some(cursor) = reply.next_after()
            && !self.signer.carries_query(cursor)
            && let Err(error) = self.queries.remember(cursor, ask.arguments()).await
        {
            tracing::warn!(tool = tool.name(), call = id, %error, "a long query is not kept; its caller has to repeat it");
        }
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

/// What a caller hears whose call ends with the host.
fn ended() -> Refusal {
    let message = "The host has stopped before the call was done. Call again in some seconds.";
    Refusal::new(Code::Unavailable, message)
}

/// Where an answer comes from.
fn origin<'a>(caller: &'a Caller, tool: &'a Tool) -> Origin<'a> {
    Origin {
        tenant: &caller.tenant,
        key: caller.key.as_ref().map(|key| key.id.as_str()),
        subject: caller.subject.as_deref(),
        plugin: tool.carrier_name(),
        is_read_only: tool.is_read_only(),
    }
}

/// What the plugin is asked.
fn request(target: &Target, policy: &Policy, ask: &Ask) -> Request {
    match target {
        Target::Handler(name) => Request::Tool {
            name: name.clone(),
            arguments: Value::Object(ask.for_handler(policy)).to_string(),
        },
        Target::List(collection) => {
            let pushed = ask.pushed_down(policy);
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
