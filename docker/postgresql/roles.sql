-- Run once, in a new database: the role that the aggregators use, which may do no more than it needs.
-- docs/postgresql.md has the same for a server that others use too.
\getenv password STORE_PASSWORD
CREATE ROLE rankfold LOGIN PASSWORD :'password' CONNECTION LIMIT 40;
REVOKE ALL ON DATABASE rankfold FROM PUBLIC;
GRANT CONNECT ON DATABASE rankfold TO rankfold;
ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO rankfold;
