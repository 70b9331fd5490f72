-- The schema of version 8, as one migration. It never changes: add migrations to migrations.py instead.

CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- a number is never given twice
    workload TEXT NOT NULL,
    label TEXT NOT NULL,
    profile TEXT,
    state TEXT NOT NULL CHECK (state IN (
        'queued', 'starting', 'running',
        'succeeded', 'failed', 'out_of_memory', 'cancelled', 'interrupted')),
    reason TEXT,              -- why it ended so, or what it waits for
    folder TEXT NOT NULL UNIQUE,
    submitted_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    exit_code INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    gpu_request TEXT,         -- requested: NULL none, 'auto', an index or a UUID
    gpu TEXT,                 -- given: a UUID
    reserved_mib INTEGER,     -- held on that GPU while the run is starting or running
    exclusive INTEGER NOT NULL DEFAULT 0,
    predicted_mib REAL,
    peak_gpu_mib REAL,
    peak_host_mib REAL,
    phase TEXT,
    done REAL,
    total REAL,
    unit TEXT,
    rate REAL,
    reported_at REAL,
    metric TEXT,              -- the newest one reported
    metric_value REAL
) STRICT;
CREATE INDEX run_unfinished ON run (state, id) WHERE state IN ('queued', 'starting', 'running');
CREATE INDEX run_state ON run (state, id);
CREATE INDEX run_workload ON run (workload, id);
CREATE INDEX run_label ON run (label, id);
CREATE INDEX run_submitted ON run (submitted_at, id);
CREATE INDEX run_ended ON run (ended_at, id);

CREATE TABLE run_spec (
    run INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
    job TEXT NOT NULL CHECK (json_valid(job)),
    plan TEXT NOT NULL CHECK (json_valid(plan)),
    environment TEXT NOT NULL CHECK (json_valid(environment))
) STRICT;

CREATE TABLE intake (  -- how far the run's files have been read
    run INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
    events_offset INTEGER NOT NULL DEFAULT 0,
    log_offset INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE attempt (
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    outcome TEXT,             -- NULL while it goes on
    reason TEXT,
    settings TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(settings)),  -- what OOM fallbacks changed
    gpu TEXT,
    boot_id TEXT,
    worker_pid INTEGER,
    worker_started INTEGER,   -- clock ticks since boot: with boot_id and pid, an identity
    supervisor_pid INTEGER,
    adoptions INTEGER NOT NULL DEFAULT 0,
    started_at REAL NOT NULL,
    ended_at REAL,
    exit_code INTEGER,
    signal INTEGER,
    peak_gpu_mib REAL,
    peak_host_mib REAL,
    cpu_s REAL,
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    n INTEGER NOT NULL DEFAULT 0,
    last_step REAL,
    last_value REAL,
    last_at REAL,
    UNIQUE (run, name)
) STRICT;

CREATE TABLE point (  -- nth point of its series, in order of arrival: a resumed run may report a step again
    series INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
    n INTEGER NOT NULL,
    step REAL NOT NULL,
    value REAL,               -- NULL: the worker reported NaN or infinity
    at REAL NOT NULL,
    PRIMARY KEY (series, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE rollup (  -- kept in the transaction that writes the points
    series INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
    width INTEGER NOT NULL,   -- points in a full bucket
    bucket INTEGER NOT NULL,
    n INTEGER NOT NULL,
    min REAL,
    max REAL,
    sum REAL,
    first_step REAL NOT NULL,
    last_step REAL NOT NULL,
    PRIMARY KEY (series, width, bucket)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL CHECK (json_valid(body))
) STRICT;
CREATE INDEX event_run ON event (run, id);

CREATE TABLE artifact (
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    path TEXT NOT NULL,       -- inside the run's folder
    kind TEXT NOT NULL,
    sha256 TEXT,
    bytes INTEGER,
    at REAL NOT NULL,
    PRIMARY KEY (run, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE metric (  -- a run's final metrics, from its result manifest
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE influence (
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    test INTEGER NOT NULL,    -- nth test triple of the run
    rank INTEGER NOT NULL,    -- 1, 2, … proponents; -1, -2, … opponents
    head TEXT NOT NULL,
    relation TEXT NOT NULL,
    tail TEXT NOT NULL,
    score REAL NOT NULL,
    PRIMARY KEY (run, test, rank)
) STRICT, WITHOUT ROWID;

CREATE TABLE tag (
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    tag TEXT NOT NULL,
    PRIMARY KEY (run, tag)
) STRICT, WITHOUT ROWID;
CREATE INDEX tag_name ON tag (tag, run);

CREATE TABLE note (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    at REAL NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX note_run ON note (run, id);

CREATE VIRTUAL TABLE run_text USING fts5 (words, tokenize = 'trigram');

CREATE TABLE test_triple (  -- of a TracIn run; their influences are in influence
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    test INTEGER NOT NULL,    -- nth test triple of the run
    head TEXT NOT NULL,
    relation TEXT NOT NULL,
    tail TEXT NOT NULL,
    candidates INTEGER,       -- training triples it was scored against
    trouble TEXT,             -- why it has no scores
    PRIMARY KEY (run, test)
) STRICT, WITHOUT ROWID;

CREATE TABLE readable (  -- readable names of entities and relations of those triples
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    label TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (run, label)
) STRICT, WITHOUT ROWID;

CREATE TABLE score (  -- of ended runs; no reference to run: checking it would need a second index
    name TEXT NOT NULL,
    run INTEGER NOT NULL,
    value REAL,               -- final, or else last
    final REAL,
    last REAL,
    best REAL,
    PRIMARY KEY (name, run)
) STRICT, WITHOUT ROWID;

CREATE TABLE gpu (  -- names of the GPUs that runs were given
    uuid TEXT PRIMARY KEY,
    name TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE fingerprint (  -- processor, GPUs, driver, versions, commit: what benchmarks belong to
    key TEXT PRIMARY KEY,     -- digest of the body, without names that change nothing
    body TEXT NOT NULL CHECK (json_valid(body))
) STRICT, WITHOUT ROWID;

CREATE TABLE bench (  -- a set of runs, compared pair by pair
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    plan TEXT NOT NULL CHECK (json_valid(plan)),  -- variants with their jobs, the baseline first; rounds
    plan_key TEXT NOT NULL,   -- digest of the plan: the same command finds its unfinished benchmark again
    command TEXT NOT NULL,    -- repeats it
    fingerprint TEXT NOT NULL REFERENCES fingerprint (key),
    begun_at REAL NOT NULL,
    ended_at REAL
) STRICT;
CREATE INDEX bench_plan ON bench (plan_key, fingerprint);

CREATE TABLE pair (  -- a run of the baseline and one of a variant, in the same round
    bench INTEGER NOT NULL REFERENCES bench (id) ON DELETE CASCADE,
    round INTEGER NOT NULL,
    variant TEXT NOT NULL,
    baseline_run INTEGER,     -- no reference: metrics outlive the runs they were read from
    variant_run INTEGER,
    baseline TEXT NOT NULL CHECK (json_valid(baseline)),
    measured TEXT NOT NULL CHECK (json_valid(measured)),
    busy REAL,                -- share of the processors that others used just before
    noted TEXT NOT NULL CHECK (json_valid(noted)),  -- what else disturbed it
    at REAL NOT NULL,
    PRIMARY KEY (bench, round, variant)
) STRICT, WITHOUT ROWID;

CREATE TABLE option (
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    name TEXT NOT NULL,
    effect TEXT NOT NULL CHECK (effect IN ('exact', 'rounding', 'changes results')),
    requested TEXT,
    applied TEXT,
    reason TEXT,
    chosen_by TEXT,
    PRIMARY KEY (run, attempt, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE acknowledged (alert TEXT PRIMARY KEY, at REAL NOT NULL) STRICT, WITHOUT ROWID;

CREATE VIEW run_summary AS
SELECT run.id, workload, label, profile, state, reason, attempts,
       datetime(submitted_at, 'unixepoch') AS submitted,
       datetime(started_at, 'unixepoch') AS started,
       datetime(ended_at, 'unixepoch') AS ended,
       round(coalesce(
           (SELECT sum(coalesce(attempt.ended_at, (julianday('now') - 2440587.5) * 86400) - attempt.started_at)
            FROM attempt WHERE attempt.run = run.id),
           coalesce(ended_at, (julianday('now') - 2440587.5) * 86400) - started_at), 1) AS seconds,
       exit_code, peak_host_mib, peak_gpu_mib, predicted_mib, metric, metric_value,
       (SELECT group_concat(tag, ' ') FROM tag WHERE tag.run = run.id) AS tags,
       folder
FROM run;
