-- A run's books without its pages: folds, coverage, attempts.
CREATE TABLE run (
    id      INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    name    TEXT NOT NULL,
    head    BLOB NOT NULL,
    UNIQUE (project, name)
) STRICT;

-- One iteration of one attempt: commits, contents by microbatch, folds by rank.
CREATE TABLE page (
    run_id    INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    attempt   INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    body      BLOB NOT NULL,
    PRIMARY KEY (run_id, attempt, iteration)
) STRICT;

-- What was accepted since the tables above were last brought up to date, in order.
CREATE TABLE journal (
    seq     INTEGER PRIMARY KEY,
    records BLOB NOT NULL
) STRICT;

-- What a readiness probe writes.
CREATE TABLE probe (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    at REAL NOT NULL
) STRICT;
INSERT INTO probe VALUES (1, 0);
