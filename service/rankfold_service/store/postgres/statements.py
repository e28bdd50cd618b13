"""Every statement of the PostgreSQL store; arrays go in, so that each is sent once a commit.

What is looked up by keys is a subquery for each key, which OFFSET 0 keeps one: a plan then uses
the whole key whatever the planner knows of the tables.
"""

from __future__ import annotations

# Makes what is not there and holds all of them, in one order for all aggregators. To update a
# row that is there to itself is what holds it.
HOLD_RUNS = """
INSERT INTO run (project, name, facts)
SELECT k.project, k.name, %b
  FROM unnest(%b::text[], %b::text[]) AS k (project, name)
 ORDER BY k.project COLLATE "C", k.name COLLATE "C"
ON CONFLICT (project, name) DO UPDATE SET version = run.version
RETURNING project, name, id, version, facts
"""

FIND_RUNS = """
SELECT r.project, r.name, r.id, r.version, r.facts
  FROM unnest(%b::text[], %b::text[]) AS k (project, name)
  JOIN run r ON r.project = k.project AND r.name = k.name
"""

HOLD_RUN = """
SELECT id, version, facts FROM run WHERE project = %b AND name = %b FOR UPDATE
"""

SAVE_RUNS = """
UPDATE run r SET version = r.version + 1, facts = k.facts
  FROM unnest(%b::bigint[], %b::bytea[]) AS k (id, facts)
 WHERE r.id = k.id
"""

# Only where the run is held: nobody else makes its books then.
ADD_BOOKS = """
INSERT INTO book (run_id, rank)
SELECT k.run_id, k.rank
  FROM unnest(%b::bigint[], %b::integer[]) AS k (run_id, rank)
 ORDER BY k.run_id, k.rank
ON CONFLICT (run_id, rank) DO NOTHING
"""

# Holds books in one order for all aggregators; a head comes only where it is newer than what is
# known.
HOLD_BOOKS = """
SELECT k.run_id, k.rank, b.saved, CASE WHEN b.saved > k.version THEN b.head END
  FROM (SELECT * FROM unnest(%b::bigint[], %b::integer[], %b::bigint[])
            AS k (run_id, rank, version) ORDER BY run_id, rank) AS k
 CROSS JOIN LATERAL (
       SELECT b.saved, b.head FROM book b
        WHERE b.run_id = k.run_id AND b.rank = k.rank FOR UPDATE) AS b
"""

# A statement of its own, after the books are held: what their writers learned is seen then.
RENEW_RUNS = """
SELECT r.id, r.version, r.facts
  FROM unnest(%b::bigint[], %b::bigint[]) AS k (id, version)
 CROSS JOIN LATERAL (
       SELECT r.* FROM run r WHERE r.id = k.id AND r.version <> k.version OFFSET 0) AS r
"""

# What others have added to books since they were known.
FETCH_JOURNAL = """
SELECT j.run_id, j.rank, j.version, j.records
  FROM unnest(%b::bigint[], %b::integer[], %b::bigint[]) AS k (run_id, rank, version)
 CROSS JOIN LATERAL (
       SELECT j.* FROM journal j
        WHERE j.run_id = k.run_id AND j.rank = k.rank AND j.version > k.version
        ORDER BY j.version OFFSET 0) AS j
"""

# Pages that are not here: of books whose head is not known, or that were let go of.
FETCH_PAGES = """
SELECT p.run_id, p.rank, p.attempt, p.iteration, p.folded, coalesce(c.contents, '')
  FROM unnest(%b::bigint[], %b::integer[], %b::integer[], %b::integer[], %b::bigint[])
    AS k (run_id, rank, attempt, iteration, version)
 CROSS JOIN LATERAL (
       SELECT FROM book b
        WHERE b.run_id = k.run_id AND b.rank = k.rank AND b.saved > k.version OFFSET 0) AS b
 CROSS JOIN LATERAL (
       SELECT p.* FROM page p
        WHERE p.run_id = k.run_id AND p.attempt = k.attempt
          AND p.iteration = k.iteration AND p.rank = k.rank OFFSET 0) AS p
  LEFT JOIN LATERAL (
       SELECT c.contents FROM content c
        WHERE c.run_id = k.run_id AND c.attempt = k.attempt
          AND c.iteration = k.iteration AND c.rank = k.rank OFFSET 0) AS c ON true
"""

# Either a commit adds to the journal of books ...
JOURNAL = (
    """
INSERT INTO journal (run_id, rank, version, records)
SELECT * FROM unnest(%b::bigint[], %b::integer[], %b::bigint[], %b::bytea[])
""",
    """
UPDATE book b SET version = k.version
  FROM unnest(%b::bigint[], %b::integer[], %b::bigint[]) AS k (run_id, rank, version)
 WHERE b.run_id = k.run_id AND b.rank = k.rank
""",
)

# ... or it writes their tables anew, and the journal begins again.
SAVE_BOOKS = (
    """
UPDATE book b SET version = k.version, saved = k.version, head = k.head
  FROM unnest(%b::bigint[], %b::integer[], %b::bigint[], %b::bytea[])
    AS k (run_id, rank, version, head)
 WHERE b.run_id = k.run_id AND b.rank = k.rank
""",
    """
DELETE FROM journal j
 USING unnest(%b::bigint[], %b::integer[]) AS k (run_id, rank)
 WHERE j.run_id = k.run_id AND j.rank = k.rank
""",
)

SAVE_PAGES = """
INSERT INTO page (run_id, rank, attempt, iteration, folded)
SELECT * FROM unnest(%b::bigint[], %b::integer[], %b::integer[], %b::integer[], %b::bytea[])
ON CONFLICT (run_id, attempt, iteration, rank) DO UPDATE SET folded = excluded.folded
"""

SAVE_CONTENTS = """
INSERT INTO content (run_id, rank, attempt, iteration, contents)
SELECT * FROM unnest(%b::bigint[], %b::integer[], %b::integer[], %b::integer[], %b::bytea[])
ON CONFLICT (run_id, attempt, iteration, rank) DO UPDATE SET contents = excluded.contents
"""

# The contents of old iterations. It does not wait for who writes to one of them, so that the two
# cannot wait for each other.
FOLD_AWAY = """
DELETE FROM content c
 USING (SELECT c.run_id, c.attempt, c.iteration, c.rank
          FROM unnest(%b::bigint[], %b::integer[], %b::integer[], %b::integer[])
            AS k (run_id, attempt, first, last)
          JOIN content c ON c.run_id = k.run_id AND c.attempt = k.attempt
                        AND c.iteration BETWEEN k.first AND k.last
           FOR UPDATE OF c SKIP LOCKED) AS old
 WHERE c.run_id = old.run_id AND c.attempt = old.attempt
   AND c.iteration = old.iteration AND c.rank = old.rank
"""

# What a rank reported from an iteration on: who reads one mostly reads on.
PAGES_OF_RANK = """
SELECT p.iteration, p.folded, coalesce(c.contents, '')
  FROM page p
  LEFT JOIN LATERAL (
       SELECT c.contents FROM content c
        WHERE c.run_id = p.run_id AND c.attempt = p.attempt
          AND c.iteration = p.iteration AND c.rank = p.rank OFFSET 0) AS c ON true
 WHERE p.run_id = %b AND p.attempt = %b AND p.rank = %b AND p.iteration BETWEEN %b AND %b
"""

# For readers, who need no contents.
PAGES = """
SELECT rank, iteration, folded, ''::bytea FROM page
 WHERE run_id = %b AND attempt = %b AND iteration BETWEEN %b AND %b
"""

NAMES = "SELECT project, name FROM run ORDER BY project, name"

# The sum of what only grows is another one once any of it has grown.
VERSIONS = """
SELECT r.project, r.name, r.id, r.version, b.version
  FROM run r
  LEFT JOIN (SELECT run_id, sum(version)::bigint AS version FROM book GROUP BY run_id) AS b
    ON b.run_id = r.id
 ORDER BY r.project, r.name
"""

# Books of some runs that are newer than what is known of them ...
READ_BOOKS = """
SELECT b.run_id, b.rank, b.saved,
       CASE WHEN k.version IS NULL OR b.saved > k.version THEN b.head END
  FROM unnest(%b::text[], %b::text[]) AS n (project, name)
  JOIN run r ON r.project = n.project AND r.name = n.name
 CROSS JOIN LATERAL (SELECT b.* FROM book b WHERE b.run_id = r.id OFFSET 0) AS b
  LEFT JOIN unnest(%b::bigint[], %b::integer[], %b::bigint[]) AS k (run_id, rank, version)
    ON k.run_id = b.run_id AND k.rank = b.rank
 WHERE b.version IS DISTINCT FROM k.version
"""

# ... and what their journals have beyond that.
READ_JOURNAL = """
SELECT j.run_id, j.rank, j.version, j.records
  FROM unnest(%b::text[], %b::text[]) AS n (project, name)
  JOIN run r ON r.project = n.project AND r.name = n.name
 CROSS JOIN LATERAL (SELECT b.* FROM book b WHERE b.run_id = r.id OFFSET 0) AS b
  LEFT JOIN unnest(%b::bigint[], %b::integer[], %b::bigint[]) AS k (run_id, rank, version)
    ON k.run_id = b.run_id AND k.rank = b.rank
 CROSS JOIN LATERAL (
       SELECT j.* FROM journal j
        WHERE j.run_id = b.run_id AND j.rank = b.rank
          AND j.version > greatest(coalesce(k.version, 0), b.saved) OFFSET 0) AS j
 WHERE b.version IS DISTINCT FROM k.version
 ORDER BY j.run_id, j.rank, j.version
"""

# Holding the books waits for who writes to them.
DELETE_RUN = (
    "SELECT FROM book WHERE run_id = %b ORDER BY rank FOR UPDATE",
    "DELETE FROM journal WHERE run_id = %b",
    "DELETE FROM content WHERE run_id = %b",
    "DELETE FROM page WHERE run_id = %b",
    "DELETE FROM book WHERE run_id = %b",
    "DELETE FROM run WHERE id = %b",
)

SIZE = """
SELECT pg_total_relation_size('run') + sum(pg_total_relation_size(part.relid))::bigint
  FROM unnest(ARRAY['book', 'journal', 'page', 'content']::regclass[]) AS tables (id),
       pg_partition_tree(tables.id) AS part
"""

# All aggregators have one row for it, and a session that stopped amid its probe would hold up the
# others': so it is left to who has it, and a word in the log makes the commit durable all the same.
# A row that is there is written over without more room on the disk, which reports need: a sort
# that does not fit into memory needs it too, and leaves nothing behind.
PROBE = (
    "UPDATE probe SET at = now() WHERE ctid IN (SELECT ctid FROM probe FOR UPDATE SKIP LOCKED)",
    "SELECT pg_logical_emit_message(true, 'rankfold', 'probe')",
    "SELECT set_config('work_mem', '64kB', true), set_config('temp_tablespaces', '', true)",
    """
SELECT count(*)
  FROM (SELECT (repeat('x', 8192) || n) COLLATE "C" AS filling FROM generate_series(1, 64) AS n
         ORDER BY filling DESC OFFSET 0) AS sorted
""",
)
