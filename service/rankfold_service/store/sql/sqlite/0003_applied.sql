-- Up to which row of the journal a run's head and pages say everything already; a start replays
-- only what comes after it. The numbers of rows never go back, even when the journal is empty.
ALTER TABLE run ADD COLUMN applied INTEGER NOT NULL DEFAULT 0;
