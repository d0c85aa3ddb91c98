"""A server with users and policies, which tests and examples share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import rocketpy
from rocketpy.testing import SMALL_FILES, PatientServer, fresh_name

if TYPE_CHECKING:
    from collections.abc import Iterator

ADMIN = rocketpy.Credentials("admin", "secret of the administrator")
PEER = {"accessKey": "servers", "secretKey": "secret of the servers"}
USERS_ON = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps(PEER),
}


class ClosedServer(PatientServer):
    """A server whose clients are the administrator, unless they are given another user."""

    def admin(self, **options: Any) -> rocketpy.Admin:
        options.setdefault("credentials", ADMIN)
        return super().admin(**options)

    def producer(self, group: str, **options: Any) -> rocketpy.Producer:
        options.setdefault("credentials", ADMIN)
        return super().producer(group, **options)

    def new_user(self, *policies: tuple[str, str], is_super: bool = False) -> rocketpy.Credentials:
        """Creates a user with policies, such as `("Topic:orders", "Pub")`."""
        name = fresh_name("user")
        with self.admin() as admin:
            admin.create_user(name, f"secret of {name}", is_super=is_super)
            for resource, actions in policies:
                admin.grant(name, resource, actions)
        return rocketpy.Credentials(name, f"secret of {name}")


@pytest.fixture(scope="session")
def closed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedServer]:
    """A server that wants a user and a policy for every request."""
    folder = tmp_path_factory.mktemp("closed") / "store"
    with ClosedServer(folder, settings={**SMALL_FILES, **USERS_ON}) as server:
        yield server
