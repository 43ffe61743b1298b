//! Opening a complete result: a page of it as a resource, and making it first where it is promised.

use tracing::Instrument;

use super::{Caller, Host, Running, ended, origin};
use crate::account::Account;
use crate::results::{Held, Stored, TenantFolder, Unavailable};
use crate::shape::{Code, Refusal, Reply, ResultId, ToolFacts, other_result};
use crate::tenant::Denied;

impl Host {
    /// The kept result of that id of a tenant, made first where it is promised. None where there is none, or none any more.
    /// The refusal says why a promise cannot be kept now; it stays for a later try.
    pub async fn open_result(
        &self,
        tenant: TenantFolder,
        id: ResultId,
    ) -> Result<Option<Stored>, Refusal> {
        let unavailable = |unavailable: Unavailable| unavailable.refusal();
        self.ready().await;
        let promised = match self.results.held(tenant, id).await.map_err(unavailable)? {
            None => return Ok(None),
            Some(Held::Kept(stored)) => return Ok(Some(*stored)),
            Some(Held::Promised(promised)) => promised,
        };
        if let Some(made) = promised.promise.made()
            && let Some(stored) = self.results.kept(tenant, made).await.map_err(unavailable)?
        {
            return Ok(Some(stored));
        }
        let making = self.results.making(tenant, id);
        let made = making.get_or_init(|| self.keep_promise(tenant, id)).await;
        let made = made.clone()?;
        self.results.kept(tenant, made).await.map_err(unavailable)
    }

    /// Makes the complete result that was promised: runs the call to its end for who made it, as any call is run, and keeps
    /// what it hands over.
    async fn keep_promise(&self, tenant: TenantFolder, id: ResultId) -> Result<ResultId, Refusal> {
        let gone = || {
            Refusal::new(
                Code::StaleCursor,
                "This result is no longer kept. Call the tool again: its answer has a new link.",
            )
        };
        let unavailable = |unavailable: Unavailable| unavailable.refusal();
        // Somebody else may have made it in between.
        let held = self.results.held(tenant, id).await.map_err(unavailable)?;
        let Some(Held::Promised(promised)) = held else {
            return Err(gone());
        };
        let promise = &promised.promise;
        if let Some(made) = promise.made()
            && self
                .results
                .kept(tenant, made)
                .await
                .map_err(unavailable)?
                .is_some()
        {
            return Ok(made);
        }
        let caller = self
            .tenants
            .again(&promise.tenant, promise.key.as_deref(), promise.subject.as_deref())
            .await
            .map_err(|denied| match denied {
                Denied::Unavailable => Refusal::new(Code::Unavailable, denied.to_string()),
                denied => Refusal::new(
                    Code::Forbidden,
                    format!("The complete result is made for the key that called, and cannot be: {denied}"),
                ),
            })?;
        // What has changed since into a tool that may change something is not run by a link.
        let tool = self.tool(&caller, &promise.tool);
        let tool = tool.filter(|tool| tool.is_read_only()).ok_or_else(gone)?;
        let carried = tool.carried().ok_or_else(gone)?;
        let _running = Running::begin(&self.running);
        let mut account = Account::open(self, &caller, &tool);
        let span = account.span.clone();
        let making = async {
            let ask = tool
                .read(&self.signer, &caller.tenant, promise.arguments.clone())?
                .whole(&tool.policy, tool.is_of_backend());
            let reader = self.reader(&caller, &tool, None);
            let call = self.shaping(&tool, &tool.facts, &ask, reader);
            let begun = tokio::time::Instant::now();
            let deadline = tool.deadline;
            let _permit_of_tenant = self.tenants.admit(&caller, deadline).await?;
            let (intake, _permit) = self
                .hand_over(&caller, &tool, carried, &ask, begun, None, &mut account)
                .await?;
            account.took(&intake);
            let origin = origin(&caller, &tool);
            let made = self
                .results
                .keep_whole(intake, &call, origin, begun + deadline)
                .await?;
            self.results.fulfil(&promised, made).await?;
            Ok(made)
        };
        let Some(made) = self.unless_ended(making.instrument(span)).await else {
            return Err(ended());
        };
        account.end(made.as_ref().err());
        account.release().await;
        made
    }

    /// Reads a page of a kept result as a resource: facts and body as a call of its tool would have them, from its first
    /// row or from where `after` says. None where the caller's tenant has no such result, or its tool is gone.
    pub async fn read_result(
        &self,
        caller: &Caller,
        id: ResultId,
        after: Option<&str>,
    ) -> Option<Reply> {
        self.ready().await;
        let _running = Running::begin(&self.running);
        let folder = TenantFolder::of(&caller.tenant);
        let stored = match self.open_result(folder, id).await {
            Ok(stored) => stored?,
            Err(refusal) => return Some(Reply::refused(&refusal)),
        };
        let is_promised = stored.id != id;
        let tool = self.tool(caller, &stored.description.tool)?;
        let mut account = Account::open(self, caller, &tool);
        let call = account.call().to_owned();
        let read = async {
            let mut ask = tool.read(&self.signer, &caller.tenant, stored.description.arguments)?;
            let mut read = stored.id;
            if let Some(after) = after {
                let (continued, of) =
                    ask.continued(&self.signer, &tool.policy, tool.name(), after)?;
                // Two replicas may have made of one promise what differs: a cursor goes on in what it comes from.
                if of != stored.id && !is_promised {
                    return Err(other_result(&tool.policy));
                }
                (ask, read) = (continued, of);
            }
            let ask = ask.reading(read, stored.start);
            let deadline = tool.deadline;
            let _permit_of_tenant = self.tenants.admit(caller, deadline).await?;
            account.admitted = self.tenants.reserve(caller, &call, deadline).await?;
            let facts = ToolFacts {
                has_structured_copy: false,
                ..tool.facts.clone()
            };
            let reader = self.reader(caller, &tool, ask.max_tokens());
            let call = self.shaping(&tool, &facts, &ask, reader);
            self.results
                .page(&call, &caller.tenant, tool.intake_bytes)
                .await
        };
        let Some(read) = self.unless_ended(read).await else {
            return Some(Reply::refused(&ended()));
        };
        let reply = read.unwrap_or_else(|refusal: Refusal| Reply::refused(&refusal));
        account.close(&reply);
        account.release().await;
        Some(reply)
    }
}
