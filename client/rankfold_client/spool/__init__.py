"""The spool: a directory where items wait that outlive the process which reported them."""
