"""Every error that Rankfold raises on purpose.

RankfoldError
├── RequestError              what was sent cannot be taken
│   ├── MalformedBody         it is not JSON, or nested too deep
│   ├── Unauthenticated       no token, or an unknown one
│   ├── Forbidden             the token does not reach that far
│   ├── NotFound              nothing of that name is known
│   ├── TooLarge              over a limit
│   ├── UnsupportedMedia      a content type or encoding that is not known
│   └── Inconsistent          fields that are missing, wrong or contradict each other
├── Unavailable               try the same again later
│   ├── Overloaded            too much at once
│   └── StoreUnavailable      the store does not answer or cannot write
│       └── StoreDamaged      what it has of something cannot be read
├── ConfigurationError        settings or files that cannot be used
│   ├── InvalidRules          the rules file
│   ├── InvalidTokens         the tokens file
│   └── StoreRefused          a store that must not be opened
└── Unreachable               no aggregator answered
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple


class FieldError(NamedTuple):
    """One fault of a request: a JSON pointer (RFC 6901) and the reason in words."""

    pointer: str
    reason: str


class RankfoldError(Exception):
    """The root: `code` is a stable word for programs, `retryable` says whether to send again."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False


class RequestError(RankfoldError):
    """What was sent cannot be taken, now or later."""

    code = "bad_request"


class MalformedBody(RequestError):
    """The body is not JSON, or is nested too deep."""

    code = "malformed_body"


class Unauthenticated(RequestError):
    """The request carries no token, or one that is not known."""

    code = "unauthenticated"


class Forbidden(RequestError):
    """The token lacks the scope or the project."""

    code = "forbidden"


class NotFound(RequestError):
    """No project, run or attempt of that name is known."""

    code = "not_found"


class TooLarge(RequestError):
    """A body or a list is over its limit."""

    code = "too_large"


class UnsupportedMedia(RequestError):
    """The content type or the content encoding is not known."""

    code = "unsupported_media"


class Inconsistent(RequestError):
    """A field is missing, of the wrong type, or contradicts another.

    Attributes:
        errors: each fault with its JSON pointer.
    """

    code = "inconsistent"

    def __init__(self, errors: list[FieldError]) -> None:
        self.errors = errors
        super().__init__("; ".join(f"{e.pointer or '/'}: {e.reason}" for e in errors[:3]))


class Unavailable(RankfoldError):
    """Nothing was applied; the same request may be sent again.

    Attributes:
        retry_after: seconds to wait before that.
    """

    code = "unavailable"
    retryable = True

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class Overloaded(Unavailable):
    """More arrives than can be written."""

    code = "overloaded"


class StoreUnavailable(Unavailable):
    """The store does not answer, or cannot make a write durable."""

    code = "store_unavailable"


class StoreDamaged(StoreUnavailable):
    """What the store has of one thing cannot be read; of others it may be whole."""

    code = "store_damaged"


class ConfigurationError(RankfoldError):
    """A setting or a file that cannot be used; the message says what to do."""

    code = "configuration"


class InvalidRules(ConfigurationError):
    """The rules file cannot be used."""

    code = "invalid_rules"


class InvalidTokens(ConfigurationError):
    """The tokens file cannot be used."""

    code = "invalid_tokens"


class StoreRefused(ConfigurationError):
    """The store must not be opened: damaged, foreign, newer, locked or on the wrong disk."""

    code = "store_refused"


class Unreachable(RankfoldError):
    """No aggregator answered at that address."""

    code = "unreachable"
    retryable = True
