"""Every statement of the PostgreSQL store; arrays go in, so that each is sent once a commit."""

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

# Holds books in one order for all aggregators; a head comes only where it is not known yet.
HOLD_BOOKS = """
SELECT b.run_id, b.rank, b.version, CASE WHEN b.version <> k.version THEN b.head END
  FROM unnest(%b::bigint[], %b::integer[], %b::bigint[]) AS k (run_id, rank, version)
  JOIN book b ON b.run_id = k.run_id AND b.rank = k.rank
 ORDER BY b.run_id, b.rank
   FOR UPDATE OF b
"""

# Pages that are not known: of a book that others have written to, or that were let go of.
FETCH_PAGES = """
SELECT p.run_id, p.rank, p.attempt, p.iteration, p.body
  FROM unnest(%b::bigint[], %b::integer[], %b::integer[], %b::integer[], %b::bigint[])
    AS k (run_id, rank, attempt, iteration, version)
  JOIN book b ON b.run_id = k.run_id AND b.rank = k.rank AND b.version <> k.version
  JOIN page p ON p.run_id = k.run_id AND p.attempt = k.attempt
             AND p.iteration = k.iteration AND p.rank = k.rank
"""

SAVE_BOOKS = """
UPDATE book b SET version = b.version + 1, head = k.head
  FROM unnest(%b::bigint[], %b::integer[], %b::bytea[]) AS k (run_id, rank, head)
 WHERE b.run_id = k.run_id AND b.rank = k.rank
"""

SAVE_PAGES = """
INSERT INTO page (run_id, attempt, iteration, rank, body)
SELECT * FROM unnest(%b::bigint[], %b::integer[], %b::integer[], %b::integer[], %b::bytea[])
ON CONFLICT (run_id, attempt, iteration, rank) DO UPDATE SET body = excluded.body
"""

# What a rank reported from an iteration on: who reads one mostly reads on.
PAGES_OF_RANK = """
SELECT iteration, body FROM page
 WHERE run_id = %b AND attempt = %b AND rank = %b AND iteration BETWEEN %b AND %b
"""

PAGES = """
SELECT iteration, body FROM page
 WHERE run_id = %b AND attempt = %b AND iteration BETWEEN %b AND %b
"""

NAMES = "SELECT project, name FROM run ORDER BY project, name"

READ_RUN = "SELECT id, version, facts FROM run WHERE project = %b AND name = %b"

READ_BOOKS = """
SELECT b.rank, b.version, b.head
  FROM run r
  JOIN book b ON b.run_id = r.id
  LEFT JOIN unnest(%b::integer[], %b::bigint[]) AS k (rank, version) ON k.rank = b.rank
 WHERE r.project = %b AND r.name = %b AND b.version IS DISTINCT FROM k.version
"""

# Holding the books waits for who writes to them.
DELETE_RUN = (
    "SELECT FROM book WHERE run_id = %b ORDER BY rank FOR UPDATE",
    "DELETE FROM page WHERE run_id = %b",
    "DELETE FROM book WHERE run_id = %b",
    "DELETE FROM run WHERE id = %b",
)

SIZE = """
SELECT pg_total_relation_size('run') + sum(pg_total_relation_size(part.relid))::bigint
  FROM unnest(ARRAY['book', 'page']::regclass[]) AS tables (id),
       pg_partition_tree(tables.id) AS part
"""

PROBE = "UPDATE probe SET at = now()"
