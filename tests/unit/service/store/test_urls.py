"""What a store's URL names, and that its password is shown nowhere."""

from __future__ import annotations

from contextlib import closing

import pytest

from rankfold.errors import ConfigurationError
from rankfold.rules import RuleSet
from rankfold_service.cli.main import main
from rankfold_service.store.opening import open_store
from rankfold_service.store.postgres.database import Database
from rankfold_service.store.urls import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:secret@host/db", "postgresql://***@host/db"),
        ("postgresql://u:a/b@c@host/db", "postgresql://***@host/db"),
        ("postgresql://user:secret@a:1,b:2/db", "postgresql://***@a:1,b:2/db"),
        ("postgresql://host/db?password=secret&user=u", "postgresql://host/db?password=***&user=u"),
        ("sqlite:////var/lib/a@b.db", "sqlite:////var/lib/a@b.db"),
    ],
)
def test_without_password_hides_who_and_how(url: str, shown: str) -> None:
    """A store's password is never logged."""
    assert without_password(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://u:hunter2@127.0.0.1/rankfold",
        "postgresql://u:hun%ter2@127.0.0.1/rankfold",
        "postgresql://u:hunter2/x@127.0.0.1:1/rankfold",
        "postgresql://u:hunter2/x@127.0.0.1:1,127.0.0.1:2/rankfold",
        "postgresql://u:12/hunter2@127.0.0.1:1/rankfold",
        "postgresql://u:hunter2@127.0.0.1:1/rankfold?nonsense=1",
    ],
)
def test_refused_url_does_not_tell_its_password(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is wrong with it, and whichever command it was given to."""
    with pytest.raises(ConfigurationError) as refused:
        open_store(url, RuleSet())
    assert "hunter2" not in str(refused.value)
    assert "ter2" not in str(refused.value)
    for command in (
        ["migrate", "--from", url, "--to", "postgresql://x/y"],
        ["migrate", "--store", url],
        ["verify", "--store", url],
    ):
        assert main(command) == 2
        assert "ter2" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://u:secret@a,b:7/db", "'db' at a:5432,b:7"),
        ("postgresql:///db?host=a,b&port=7", "'db' at a:7,b:7"),
        ("postgresql:///db", "'db' at localhost:5432"),
    ],
)
def test_database_is_called_by_its_name_and_places(url: str, name: str) -> None:
    """Each host with its own port; nothing of who connects."""
    with closing(Database(url)) as database:
        assert database.name == f"PostgreSQL database {name}"
