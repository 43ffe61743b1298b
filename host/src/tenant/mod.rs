//! Who calls: tenants, their keys, and tokens of identity providers; what each may see and spend.
//!
//! Owns: authentication, budgets and quotas by caller, the permits of a tenant. A host without tenants is for one user, who
//! needs no key and has no quota.

mod directory;
mod key;
mod quotas;
mod token;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

pub use key::{Key, NewKey, hash};
pub use quotas::{Amounts, Quotas, utc};
pub(crate) use token::check_url;
pub use token::{Issuer, Issuers};

use self::directory::Directory;
use crate::admission::{Admission, Permit};
use crate::call::Caller;
use crate::shape::{Code, KeyBudget, Refusal};
use crate::store::{Charge, Period, Reservation, Spent, Store, Taken, now_ms};

/// The tenant of a host without tenants.
pub const SINGLE_TENANT: &str = "";

/// Calls of one tenant that run at the same time by default: half of what one plugin runs, so that no single tenant takes
/// it from the others.
pub const DEFAULT_TENANT_CALLS: u32 = 8;

/// Calls of one tenant that wait by default: as many rounds as calls of one plugin may wait.
pub const DEFAULT_TENANT_QUEUE: u32 = 32;

/// What a caller hears where the store does not answer.
const UNCOUNTED: &str = "Quotas cannot be counted now, since the host's store does not answer. Call again in some seconds; nothing was run.";

/// How much longer than its deadline a running call is counted where its host was killed.
const GRACE: Duration = Duration::from_secs(10);

/// One tenant, as it is configured.
#[derive(Debug)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its budget, where nothing else was set at run time.
    pub result_tokens: Option<u64>,
    /// What it may spend.
    pub quotas: Quotas,
    /// Its permits.
    pub admission: Arc<Admission>,
}

/// Why a caller is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// No bearer token came.
    Missing,
    /// What came is not valid: unknown, expired, revoked, for another audience. The text says which and what to do.
    Invalid(String),
    /// The token is valid, and its scopes do not reach. The scope that is needed.
    Scope(String),
    /// The store does not answer, so that an unknown key cannot be looked up.
    Unavailable,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(
                "this host has tenants: send `Authorization: Bearer KEY`; an operator makes a key with `plimsoll keys add`",
            ),
            Self::Invalid(why) => f.write_str(why),
            Self::Scope(scope) => write!(f, "the token needs the scope `{scope}`"),
            Self::Unavailable => {
                f.write_str("keys cannot be looked up now; try again in some seconds")
            }
        }
    }
}

/// All who may call.
#[derive(Debug)]
pub struct Tenants {
    /// By name; empty on a host for one user.
    tenants: ArcSwap<BTreeMap<String, Arc<Tenant>>>,
    /// The budget of a host for one user.
    single_user_tokens: Option<u64>,
    directory: Directory,
    issuers: Issuers,
    store: Store,
}

/// What a call that was let in holds and owes.
#[derive(Debug, Default)]
pub struct Admitted {
    /// Scopes in which the call counts as running.
    running: Vec<String>,
    /// Windows to which is added what the call uses.
    windows: Vec<(String, Period, i64)>,
}

impl Admitted {
    /// Scopes in which the call counts as running, and from now on does not.
    pub fn end(&mut self) -> Vec<String> {
        std::mem::take(&mut self.running)
    }

    /// What has to be added to quotas for a call that used this.
    pub fn charges(&self, spent: Spent) -> impl Iterator<Item = Charge> {
        self.windows
            .iter()
            .map(move |(scope, period, starts_ms)| Charge {
                scope: scope.clone(),
                period: *period,
                starts_ms: *starts_ms,
                spent,
            })
    }
}

impl Tenants {
    /// Those of a configuration, with the keys of a store.
    pub async fn open(
        tenants: Vec<Tenant>,
        single_user_tokens: Option<u64>,
        issuers: Issuers,
        store: Store,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            tenants: ArcSwap::from_pointee(by_name(tenants)),
            single_user_tokens,
            directory: Directory::open(store.clone()).await?,
            issuers,
            store,
        })
    }

    /// Keeps up with what is changed in the store, for as long as the host serves.
    pub async fn follow(&self) {
        self.directory.follow().await;
    }

    /// Writes down what has not been yet, before the host ends.
    pub async fn flush(&self) {
        if let Err(error) = self.directory.write_used().await {
            tracing::warn!("when keys were used last is not written down: {error:#}");
        }
    }

    /// Takes the tenants of a configuration that has changed. One whose permits have not changed keeps them.
    pub fn replace(&self, mut tenants: Vec<Tenant>) {
        let before = self.tenants.load();
        for tenant in &mut tenants {
            if let Some(before) = before.get(&tenant.name)
                && before.admission.is_same(&tenant.admission)
            {
                tenant.admission = before.admission.clone();
            }
        }
        self.tenants.store(Arc::new(by_name(tenants)));
    }

    /// Whether the host is for one user, who needs no key.
    pub fn is_single_user(&self) -> bool {
        self.tenants.load().is_empty()
    }

    /// What is known of identity providers, for the metadata of the HTTP door.
    pub fn issuers(&self) -> &Issuers {
        &self.issuers
    }

    /// The caller that shows this value of the `Authorization` header.
    pub async fn authenticate(&self, authorization: Option<&str>) -> Result<Caller, Denied> {
        if self.is_single_user() {
            return Ok(Caller {
                is_admin: true,
                ..Caller::default()
            });
        }
        let token = bearer(authorization)?;
        if !key::is_key(token) {
            let (tenant, is_admin, subject) = self.issuers.verify(token).await?;
            self.check_tenant(&tenant)?;
            return Ok(Caller {
                tenant,
                subject: Some(subject),
                is_admin,
                ..Caller::default()
            });
        }
        let key = self.directory.find(token).await.map_err(|error| {
            tracing::warn!("a key cannot be looked up: {error:#}");
            Denied::Unavailable
        })?;
        let key = key.ok_or_else(|| {
            Denied::Invalid(
                "the key is not known; an operator lists keys with `plimsoll keys list`".into(),
            )
        })?;
        self.caller_of(key)
    }

    /// The caller that comes with a key, if the key is good.
    fn caller_of(&self, key: Arc<Key>) -> Result<Caller, Denied> {
        if key.is_revoked {
            return Err(Denied::Invalid(
                "the key was revoked; ask for a new one".into(),
            ));
        }
        if let Some(expired) = key.expires_ms.filter(|expires| *expires <= now_ms()) {
            return Err(Denied::Invalid(format!(
                "the key expired at {}; ask for a new one",
                utc(expired)
            )));
        }
        // An admin's key is the operator's, and of no tenant.
        if !key.is_admin {
            self.check_tenant(&key.tenant)?;
        }
        self.directory.note_use(&key);
        Ok(Caller {
            tenant: key.tenant.clone(),
            is_admin: key.is_admin,
            key: Some(key),
            ..Caller::default()
        })
    }

    fn check_tenant(&self, name: &str) -> Result<(), Denied> {
        if self.tenants.load().contains_key(name) {
            return Ok(());
        }
        Err(Denied::Invalid(
            "its tenant is not one of this host any more".into(),
        ))
    }

    /// The caller of a command or of standard input and output, where the operator says who it is.
    pub fn caller(&self, tenant: Option<&str>, key: Option<&str>) -> anyhow::Result<Caller> {
        let tenants = self.tenants.load();
        let names = || {
            let names: Vec<&str> = tenants.keys().map(String::as_str).collect();
            names.join(", ")
        };
        match tenant {
            None if tenants.is_empty() && key.is_none() => Ok(Caller {
                is_admin: true,
                ..Caller::default()
            }),
            None if tenants.is_empty() => {
                anyhow::bail!("a key needs tenants, and the config file has none")
            }
            None => anyhow::bail!(
                "this host has tenants; say whose call this is with `tenant`, one of: {}",
                names()
            ),
            Some(tenant) if !tenants.contains_key(tenant) => {
                anyhow::bail!(
                    "there is no tenant `{tenant}`; the config file has: {}",
                    names()
                )
            }
            Some(tenant) => {
                let Some(name) = key else {
                    return Ok(Caller {
                        tenant: tenant.to_owned(),
                        ..Caller::default()
                    });
                };
                let key = self.directory.named(tenant, name).ok_or_else(|| {
                    anyhow::anyhow!(
                        "tenant `{tenant}` has no live key `{name}`; `plimsoll keys list` lists them"
                    )
                })?;
                self.caller_of(key)
                    .map_err(|denied| anyhow::anyhow!("{denied}"))
            }
        }
    }

    /// Who called before with the key of that id, or without one, and makes the same call again: what has become of the key
    /// and the tenant meanwhile holds.
    pub async fn again(
        &self,
        tenant: &str,
        key: Option<&str>,
        subject: Option<&str>,
    ) -> Result<Caller, Denied> {
        let Some(id) = key else {
            if !self.is_single_user() {
                self.check_tenant(tenant)?;
            }
            return Ok(Caller {
                tenant: tenant.to_owned(),
                subject: subject.map(str::to_owned),
                ..Caller::default()
            });
        };
        let key = self.directory.with_id(id).await.map_err(|error| {
            tracing::warn!("a key cannot be looked up: {error:#}");
            Denied::Unavailable
        })?;
        let key = key.filter(|key| key.tenant == tenant);
        self.caller_of(key.ok_or_else(|| Denied::Invalid("the key is not known any more".into()))?)
    }

    /// A caller as it is now: what was changed while its connection was open holds for its next call, and a key that was
    /// revoked ends it.
    pub fn refresh(&self, caller: Caller) -> Result<Caller, Denied> {
        let Some(key) = &caller.key else {
            return Ok(caller);
        };
        let now = self.caller_of(self.directory.current(key))?;
        Ok(Caller {
            client: caller.client,
            ..now
        })
    }

    /// The budget of the caller's key, and that of its tenant.
    pub fn budgets(&self, caller: &Caller) -> (KeyBudget, Option<u64>) {
        let key = caller
            .key
            .as_ref()
            .map_or_else(KeyBudget::default, |key| key.budget);
        (key, self.tenant_tokens(&caller.tenant))
    }

    fn tenant_tokens(&self, tenant: &str) -> Option<u64> {
        if tenant == SINGLE_TENANT {
            return self.single_user_tokens;
        }
        self.directory.tenant_tokens(tenant).or_else(|| {
            let tenants = self.tenants.load();
            tenants.get(tenant).and_then(|tenant| tenant.result_tokens)
        })
    }

    /// The tenant of a caller; none on a host for one user.
    pub fn tenant(&self, caller: &Caller) -> Option<Arc<Tenant>> {
        self.tenants.load().get(&caller.tenant).cloned()
    }

    /// Waits for one of the permits of the caller's tenant; a host for one user has none.
    pub async fn admit(
        &self,
        caller: &Caller,
        patience: Duration,
    ) -> Result<Option<Permit>, Refusal> {
        match self.tenant(caller) {
            Some(tenant) => Ok(Some(tenant.admission.admit(&tenant.name, patience).await?)),
            None => Ok(None),
        }
    }

    /// Counts a call in the quotas of its tenant and its key, or refuses it.
    pub async fn reserve(
        &self,
        caller: &Caller,
        call: &str,
        deadline: Duration,
    ) -> Result<Admitted, Refusal> {
        let reservations = self.reservations(caller);
        if reservations.is_empty() {
            return Ok(Admitted::default());
        }
        let now = now_ms();
        let longest = i64::try_from((deadline + GRACE).as_millis()).unwrap_or(i64::MAX);
        let taken = self
            .store
            .reserve(&reservations, call, now, now.saturating_add(longest))
            .await
            .map_err(|error| {
                tracing::warn!("a quota cannot be counted, so a call is refused: {error:#}");
                Refusal::new(Code::Unavailable, UNCOUNTED)
            })?;
        let name = |scope: &str| match scope.split_once('/') {
            Some(("key", _)) => format!(
                "key {}",
                caller.key.as_ref().map_or("", |key| key.name.as_str())
            ),
            Some((_, tenant)) => format!("tenant {tenant}"),
            None => scope.to_owned(),
        };
        if let Some(refusal) = quotas::refusal(&taken, name) {
            return Err(refusal);
        }
        let is_limited = |reservation: &&Reservation| reservation.concurrent_calls.is_some();
        let scopes = reservations.iter().filter(is_limited);
        Ok(Admitted {
            running: scopes
                .map(|reservation| reservation.scope.clone())
                .collect(),
            windows: reservations
                .iter()
                .flat_map(|reservation| {
                    reservation.windows.iter().map(|window| {
                        let starts = window.period.start(now);
                        (reservation.scope.clone(), window.period, starts)
                    })
                })
                .collect(),
        })
    }

    /// Lets somebody see what a link of a tenant shows, as long as none of the tenant's quotas for what is handed out is spent,
    /// and says what has to be added to them. It is no call, and of no key: a link is passed on.
    pub async fn reserve_link(&self, tenant: &str) -> Result<Admitted, Refusal> {
        let configured = self.tenants.load().get(tenant).cloned();
        let scope = format!("tenant/{tenant}");
        let reservation = configured.and_then(|tenant| tenant.quotas.reservation(scope));
        let Some(reservation) = reservation else {
            return Ok(Admitted::default());
        };
        let now = now_ms();
        let spent = self
            .store
            .spent(&reservation.scope)
            .await
            .map_err(|error| {
                tracing::warn!("a quota cannot be counted, so a link is refused: {error:#}");
                Refusal::new(Code::Unavailable, UNCOUNTED)
            })?;
        for window in &reservation.windows {
            let spent = spent.iter().find(|(period, _)| *period == window.period);
            let spent = spent.map_or_else(Spent::default, |(_, spent)| *spent);
            if let Some((what, limit)) = window.handed_out(spent) {
                let taken = Taken::Window {
                    scope: reservation.scope.clone(),
                    period: window.period,
                    what,
                    limit,
                    resets_ms: window.period.start(now) + window.period.milliseconds(),
                };
                let refusal = quotas::refusal(&taken, |_| format!("tenant {tenant}"));
                return refusal.map_or_else(|| Ok(Admitted::default()), Err);
            }
        }
        let windows = reservation.windows.iter().map(|window| {
            let starts = window.period.start(now);
            (reservation.scope.clone(), window.period, starts)
        });
        Ok(Admitted {
            running: Vec::new(),
            windows: windows.collect(),
        })
    }

    /// A call has ended that counted as running.
    pub async fn release(&self, call: &str, scopes: &[String]) -> anyhow::Result<()> {
        self.store.release(call, scopes).await
    }

    fn reservations(&self, caller: &Caller) -> Vec<Reservation> {
        let tenant = self.tenant(caller);
        let of_tenant =
            tenant.and_then(|tenant| tenant.quotas.reservation(format!("tenant/{}", tenant.name)));
        let of_key = caller
            .key
            .as_ref()
            .and_then(|key| key.quotas.reservation(format!("key/{}", key.id)));
        // In the order of their scopes, as charges are: two who lock the same rows in one order do not wait for each other.
        of_key.into_iter().chain(of_tenant).collect()
    }

    /// The store behind it.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

fn by_name(tenants: Vec<Tenant>) -> BTreeMap<String, Arc<Tenant>> {
    tenants
        .into_iter()
        .map(|tenant| (tenant.name.clone(), Arc::new(tenant)))
        .collect()
}

/// The token of an `Authorization` header.
fn bearer(authorization: Option<&str>) -> Result<&str, Denied> {
    let value = authorization.ok_or(Denied::Missing)?;
    match value.split_once(' ') {
        Some((scheme, token))
            if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() =>
        {
            Ok(token.trim())
        }
        _ => Err(Denied::Invalid(
            "expected `Authorization: Bearer KEY`, found another form".into(),
        )),
    }
}
