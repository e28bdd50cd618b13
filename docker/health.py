"""The image's health check: exit 0 where the aggregator says that it lives."""

import contextlib
import http.client
import os
import sys

TIMEOUT = 4.0


def healthy(listen: str) -> bool:
    """Ask the aggregator that listens at `HOST:PORT`; any address of this machine will do."""
    host, _, port = listen.rpartition(":")
    here = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "::1"}  # noqa: S104 - to ask
    asked = http.client.HTTPConnection(here.get(host, host.strip("[]")), int(port), timeout=TIMEOUT)
    try:
        with contextlib.closing(asked):
            asked.request("GET", "/-/healthy")
            return asked.getresponse().status == http.HTTPStatus.OK
    except OSError as error:
        sys.stderr.write(f"{listen}: {error}\n")
        return False


if __name__ == "__main__":
    sys.exit(0 if healthy(os.environ["RANKFOLD_LISTEN"]) else 1)
