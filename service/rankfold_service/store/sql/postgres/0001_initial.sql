-- What is known of a run as a whole; the version counts how often that changed.
CREATE TABLE run (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    facts   bytea NOT NULL,
    UNIQUE (project, name)
);

-- The books of one rank of a run without their pages, as they were at version "saved"; the
-- journal has what came after it. Who writes to any of them holds this row. Rank -1 has what
-- belongs to no rank.
CREATE TABLE book (
    run_id  bigint NOT NULL REFERENCES run (id),
    rank    integer NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    saved   bigint NOT NULL DEFAULT 0,
    head    bytea NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, rank)
) PARTITION BY HASH (run_id);

-- What one commit added to the books of a rank.
CREATE TABLE journal (
    run_id  bigint NOT NULL,
    rank    integer NOT NULL,
    version bigint NOT NULL,
    records bytea NOT NULL,
    PRIMARY KEY (run_id, rank, version)
) PARTITION BY HASH (run_id);

-- One iteration of one attempt as one rank reported it: commit and folds.
CREATE TABLE page (
    run_id    bigint NOT NULL,
    attempt   integer NOT NULL,
    iteration integer NOT NULL,
    rank      integer NOT NULL,
    folded    bytea NOT NULL,
    PRIMARY KEY (run_id, attempt, iteration, rank)
) PARTITION BY HASH (run_id);

-- What it reported by microbatch, as long as it is new: rows come and go, so their room is used
-- again and again.
CREATE TABLE content (
    run_id    bigint NOT NULL,
    attempt   integer NOT NULL,
    iteration integer NOT NULL,
    rank      integer NOT NULL,
    contents  bytea NOT NULL,
    PRIMARY KEY (run_id, attempt, iteration, rank)
) PARTITION BY HASH (run_id);

-- Room in each block for the next version of a row, so that no index changes. What is packed
-- does not become smaller.
DO $$
BEGIN
    FOR n IN 0..7 LOOP
        EXECUTE format('CREATE TABLE book_%s PARTITION OF book '
            'FOR VALUES WITH (MODULUS 8, REMAINDER %s) WITH (fillfactor = 60)', n, n);
        EXECUTE format('CREATE TABLE journal_%s PARTITION OF journal '
            'FOR VALUES WITH (MODULUS 8, REMAINDER %s)', n, n);
        EXECUTE format('CREATE TABLE page_%s PARTITION OF page '
            'FOR VALUES WITH (MODULUS 8, REMAINDER %s) WITH (fillfactor = 90)', n, n);
        EXECUTE format('CREATE TABLE content_%s PARTITION OF content '
            'FOR VALUES WITH (MODULUS 8, REMAINDER %s)', n, n);
        EXECUTE format('ALTER TABLE book_%s ALTER head SET STORAGE EXTERNAL', n);
        EXECUTE format('ALTER TABLE journal_%s ALTER records SET STORAGE EXTERNAL', n);
        EXECUTE format('ALTER TABLE page_%s ALTER folded SET STORAGE EXTERNAL', n);
        EXECUTE format('ALTER TABLE content_%s ALTER contents SET STORAGE EXTERNAL', n);
    END LOOP;
END $$;

-- What a readiness probe writes.
CREATE TABLE probe (
    id integer PRIMARY KEY CHECK (id = 1),
    at timestamptz NOT NULL
);
INSERT INTO probe VALUES (1, now());
