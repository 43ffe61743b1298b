//! Keys, and what was changed of tenants at run time.

use anyhow::Context;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::{Store, counted, now_ms, stored, within};

/// A key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// What it is called by in listings, logs and the ledger.
    pub id: String,
    /// The hash of its text, in hex.
    pub hash: String,
    /// Whose it is.
    pub tenant: String,
    /// Its name, which only one live key of a tenant has.
    pub name: String,
    /// Whether it may use what is for admins.
    pub is_admin: bool,
    /// How its budget combines with the tenant's.
    pub budget_mode: String,
    /// Its budget, in tokens.
    pub result_tokens: Option<u64>,
    /// Its quotas, as JSON.
    pub quotas: String,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: i64,
    /// When it ends.
    pub expires_ms: Option<i64>,
    /// When it was revoked.
    pub revoked_ms: Option<i64>,
    /// When a call came with it last, to within half a minute.
    pub last_used_ms: Option<i64>,
}

/// Keys and changes of tenants at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counts changes.
    pub revision: i64,
    /// Every key, revoked ones too.
    pub keys: Vec<KeyRow>,
    /// Budgets of tenants that were changed at run time.
    pub tenant_tokens: Vec<(String, u64)>,
}

/// What of a key is changed at run time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// How its budget combines with the tenant's.
    pub budget_mode: Option<String>,
    /// Its budget; `Some(None)` takes it away.
    pub result_tokens: Option<Option<u64>>,
    /// Its quotas, as JSON.
    pub quotas: Option<String>,
}

impl Store {
    /// Adds a key. False where a live key of the tenant has that name.
    pub async fn add_key(&self, key: &KeyRow) -> anyhow::Result<bool> {
        let mut transaction = self.pool.begin().await?;
        let added = sqlx::query(
            "INSERT INTO keys (id, hash, tenant, name, is_admin, budget_mode, result_tokens, quotas, created_ms, expires_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING",
        )
        .bind(&key.id)
        .bind(&key.hash)
        .bind(&key.tenant)
        .bind(&key.name)
        .bind(i64::from(key.is_admin))
        .bind(&key.budget_mode)
        .bind(key.result_tokens.map(stored))
        .bind(&key.quotas)
        .bind(key.created_ms)
        .bind(key.expires_ms)
        .execute(&mut *transaction)
        .await?;
        bump(&mut transaction).await?;
        transaction.commit().await?;
        Ok(added.rows_affected() == 1)
    }

    /// Revokes a live key by its id. False where there is none.
    pub async fn revoke_key(&self, id: &str) -> anyhow::Result<bool> {
        let mut transaction = self.pool.begin().await?;
        let revoked =
            sqlx::query("UPDATE keys SET revoked_ms = $2 WHERE id = $1 AND revoked_ms IS NULL")
                .bind(id)
                .bind(now_ms())
                .execute(&mut *transaction)
                .await?;
        bump(&mut transaction).await?;
        transaction.commit().await?;
        Ok(revoked.rows_affected() == 1)
    }

    /// Changes a key by its id. False where there is none.
    pub async fn change_key(&self, id: &str, change: &Change) -> anyhow::Result<bool> {
        let mut transaction = self.pool.begin().await?;
        let changed = sqlx::query(
            "UPDATE keys SET budget_mode = COALESCE($2, budget_mode), quotas = COALESCE($3, quotas),
             result_tokens = CASE WHEN $4 = 1 THEN $5 ELSE result_tokens END WHERE id = $1 AND revoked_ms IS NULL",
        )
        .bind(id)
        .bind(&change.budget_mode)
        .bind(&change.quotas)
        .bind(i64::from(change.result_tokens.is_some()))
        .bind(change.result_tokens.flatten().map(stored))
        .execute(&mut *transaction)
        .await?;
        bump(&mut transaction).await?;
        transaction.commit().await?;
        Ok(changed.rows_affected() == 1)
    }

    /// Sets the budget of a tenant in place of what the config file says; none gives that back.
    pub async fn set_tenant_tokens(&self, tenant: &str, tokens: Option<u64>) -> anyhow::Result<()> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query(
            "INSERT INTO tenants (name, result_tokens) VALUES ($1, $2)
             ON CONFLICT (name) DO UPDATE SET result_tokens = excluded.result_tokens",
        )
        .bind(tenant)
        .bind(tokens.map(stored))
        .execute(&mut *transaction)
        .await?;
        bump(&mut transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Counts changes of keys and tenants.
    pub async fn revision(&self) -> anyhow::Result<i64> {
        within(async {
            let number = sqlx::query_scalar("SELECT number FROM revision WHERE id = 1")
                .fetch_one(&self.pool)
                .await?;
            Ok(number)
        })
        .await
    }

    /// Everything that decides who may call and with which budget.
    pub async fn snapshot(&self) -> anyhow::Result<Snapshot> {
        // Read first: a change in between is then seen again at the next look, and never missed.
        let revision = self.revision().await?;
        let keys = sqlx::query("SELECT * FROM keys ORDER BY created_ms, id")
            .fetch_all(&self.pool)
            .await?;
        let tenants = sqlx::query(
            "SELECT name, result_tokens FROM tenants WHERE result_tokens IS NOT NULL ORDER BY name",
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(Snapshot {
            revision,
            keys: keys
                .iter()
                .map(key)
                .collect::<Result<_, _>>()
                .context("reading keys")?,
            tenant_tokens: tenants
                .iter()
                .map(|row| Ok((row.try_get(0)?, counted(row.try_get(1)?))))
                .collect::<Result<_, sqlx::Error>>()
                .context("reading tenants")?,
        })
    }

    /// Takes note of when keys were used last. This is no change that replicas have to hear of.
    pub async fn used_keys(&self, used: &[(String, i64)]) -> anyhow::Result<()> {
        let mut transaction = self.pool.begin().await?;
        for (id, at) in used {
            sqlx::query(
                "UPDATE keys SET last_used_ms = $2 WHERE id = $1 AND (last_used_ms IS NULL OR last_used_ms < $2)",
            )
            .bind(id)
            .bind(at)
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}

/// Tells every replica that keys or tenants have changed.
async fn bump(transaction: &mut sqlx::Transaction<'_, sqlx::Any>) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE revision SET number = number + 1 WHERE id = 1")
        .execute(&mut **transaction)
        .await
        .map(|_| ())
}

fn key(row: &AnyRow) -> Result<KeyRow, sqlx::Error> {
    Ok(KeyRow {
        id: row.try_get("id")?,
        hash: row.try_get("hash")?,
        tenant: row.try_get("tenant")?,
        name: row.try_get("name")?,
        is_admin: row.try_get::<i64, _>("is_admin")? != 0,
        budget_mode: row.try_get("budget_mode")?,
        result_tokens: row.try_get::<Option<i64>, _>("result_tokens")?.map(counted),
        quotas: row.try_get("quotas")?,
        created_ms: row.try_get("created_ms")?,
        expires_ms: row.try_get("expires_ms")?,
        revoked_ms: row.try_get("revoked_ms")?,
        last_used_ms: row.try_get("last_used_ms")?,
    })
}
