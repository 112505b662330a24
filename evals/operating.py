"""The operator's credential, for evaluations that list or delete sessions of a server on this machine."""

from parley.configs.load import PROJECT_DIR
from parley.serving.gateway.auth.admin_token import operator_token


def operator_headers() -> dict[str, str]:
    """Return the headers of the operator: the token of the environment, or that of this checkout's servers.

    Raises:
        ConfigError: the file with the token could be read by others.
    """
    token = operator_token(PROJECT_DIR / "data").text
    return {"Authorization": f"Bearer {token}"}
