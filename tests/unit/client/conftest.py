"""What the tests of a comparison run in: each of its forms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unit.client.comparing import FORMS, form


@pytest.fixture(scope="module", params=FORMS)
def each_form(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the tests of a module in the eager and in the compiled form."""
    with form(request.param):
        yield
