"""TLS and users of the clients."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketpy.base.names import check_type
from rocketpy.base.text import CONTROL, printable
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    import os

__all__ = ["Credentials", "Tls"]


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings of a client.

    A server must show a certificate that a trusted authority signed and that names its host: the name or address of
    the name server, and the addresses of brokers in routes (`brokerIP1`). `rocketpy.ConnectionFailedError` says what is
    wrong.

    Examples:
        >>> Tls(ca_file="/etc/rocketpy/ca.pem")
        Tls(ca_file='/etc/rocketpy/ca.pem', cert_file=None, key_file=None, verify=True)
    """

    ca_file: str | None = None
    """PEM file of the authorities to trust; None for those of the system."""
    cert_file: str | None = None
    """PEM file of the client certificate."""
    key_file: str | None = None
    """PEM file of the private key of that certificate."""
    verify: bool = True
    """Whether to check the certificate and the host of a server. Without it any program may pose as the server."""
    key_password: str | None = field(default=None, repr=False)
    """Password of an encrypted key (PKCS#8, PBES2)."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Identity of a client: a user of the brokers and name servers, and its secret.

    Every request is signed. Neither `repr` nor errors nor logs show the secret.

    Raises:
        InvalidArgumentError: The name or the secret is empty, or the name has control characters.

    Examples:
        >>> Credentials("billing", "secret of billing")
        Credentials(access_key='billing')
    """

    access_key: str
    """Name of the user."""
    secret_key: str = field(repr=False)
    """Secret of the user, which signs requests and is never sent."""
    security_token: str | None = field(default=None, repr=False)
    """Token of temporary credentials; RocketPy's servers ignore it."""

    def __post_init__(self) -> None:
        check_type("access_key", self.access_key, str, "text")
        check_type("secret_key", self.secret_key, str, "text")
        check_type("security_token", self.security_token, str | None, "text or None")
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise InvalidArgumentError(f"{name} must not be empty")
        if CONTROL.search(self.access_key):
            raise InvalidArgumentError(f"access_key must not contain control characters: {printable(self.access_key)}")

    @classmethod
    def from_file(cls, path: "str | os.PathLike[str]") -> "Credentials":
        r"""Reads a file with the lines `accessKey=NAME` and `secretKey=SECRET`.

        The file may also be a JSON object with these keys, or Apache's `tools.yml`. `securityToken` is optional.

        Raises:
            InvalidArgumentError: The file cannot be read, other users can read it, or a key is missing or unknown.

        Examples:
            >>> path = getfixture("tmp_path") / "billing.credentials"
            >>> path.touch(mode=0o600)
            >>> _ = path.write_text("accessKey=billing\nsecretKey=secret of billing\n")
            >>> Credentials.from_file(path)
            Credentials(access_key='billing')
        """
        from rocketpy.base import credential_file

        return credential_file.of_file(path)
