"""What `rankfold serve` warns of at its start: likely mistakes that are no reason to refuse."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import fields

from rankfold_service.cli.usage import near
from rankfold_service.settings import PREFIX, Settings

# What the commands and the client read.
OTHERS = ("URL", "TOKEN", "PROJECT", "ATTEMPT", "SPOOL_DIR", "SPOOL_BYTES")
KNOWN = [*(setting.name.upper() for setting in fields(Settings)), *OTHERS]

# Kubernetes sets these in the neighbourhood of a service that is called rankfold.
_OF_A_CLUSTER = re.compile(r"SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_\w+)?")


def unknown_variables(variables: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with each environment variable that looks like a setting but is none."""
    for variable in sorted(variables):
        name = variable.removeprefix(PREFIX)
        if name in (variable, *KNOWN) or _OF_A_CLUSTER.fullmatch(name):
            continue
        meant = near(name, KNOWN)
        hint = f": did you mean {PREFIX}{meant}?" if meant else ""
        yield f"{variable} is no setting and is ignored{hint}"


def open_to_others(listener: socket.socket) -> bool:
    """Whether other machines may reach a socket."""
    host = str(listener.getsockname()[0]).partition("%")[0]
    return not ipaddress.ip_address(host).is_loopback
