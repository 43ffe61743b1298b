-- One schema for SQLite and PostgreSQL: text, and 64-bit integers. Times are milliseconds since 1970 in UTC.

-- What all replicas of one installation share, such as the key that signs cursors.
CREATE TABLE installation (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Counts changes of keys and tenants, so that a replica sees with one read whether it has to read them again.
CREATE TABLE revision (
    id BIGINT PRIMARY KEY,
    number BIGINT NOT NULL
);
INSERT INTO revision (id, number) VALUES (1, 0);

-- What was changed of a tenant at run time; what is null here is as the config file says.
CREATE TABLE tenants (
    name TEXT PRIMARY KEY,
    result_tokens BIGINT
);

CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    is_admin BIGINT NOT NULL,
    budget_mode TEXT NOT NULL,
    result_tokens BIGINT,
    -- JSON, as `keys add --quota` made it.
    quotas TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT,
    revoked_ms BIGINT,
    last_used_ms BIGINT
);
-- A name can be given again once its key is revoked.
CREATE UNIQUE INDEX keys_by_name ON keys (tenant, name) WHERE revoked_ms IS NULL;

-- What a tenant or a key has used in one minute or day.
CREATE TABLE quota_windows (
    scope TEXT NOT NULL,
    period TEXT NOT NULL,
    starts_ms BIGINT NOT NULL,
    calls BIGINT NOT NULL,
    fuel BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    PRIMARY KEY (scope, period, starts_ms)
);

-- Calls that run now, of tenants and keys with a quota of concurrent calls. One that a killed host left behind ends by
-- itself.
CREATE TABLE running_calls (
    scope TEXT NOT NULL,
    call TEXT NOT NULL,
    ends_ms BIGINT NOT NULL,
    PRIMARY KEY (scope, call)
);

-- One row a call. Never arguments, never results.
CREATE TABLE ledger (
    call TEXT PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    tenant TEXT NOT NULL,
    key_id TEXT NOT NULL,
    client TEXT NOT NULL,
    plugin TEXT NOT NULL,
    tool TEXT NOT NULL,
    outcome TEXT NOT NULL,
    rows_in BIGINT NOT NULL,
    rows_matched BIGINT NOT NULL,
    rows_on_page BIGINT NOT NULL,
    rows_out BIGINT NOT NULL,
    bytes_in BIGINT NOT NULL,
    bytes_out BIGINT NOT NULL,
    tokens_in BIGINT NOT NULL,
    tokens_out BIGINT NOT NULL,
    fuel BIGINT NOT NULL,
    memory_peak_bytes BIGINT NOT NULL,
    milliseconds BIGINT NOT NULL
);
CREATE INDEX ledger_by_time ON ledger (at_ms);
CREATE INDEX ledger_by_tenant ON ledger (tenant, at_ms);
