"""Lines that a server prints when it is ready."""

from parley.core.installation import fetch_command
from parley.serving.gateway.auth.admin_token import AdminToken


def banner(
    names: dict[str, object], address: str, token: AdminToken | None = None, exposure: str = ""
) -> str:
    """Return the lines that the server prints when it is ready.

    Args:
        names: names of its engines (``Engines.describe``).
        address: address for a browser on this machine.
        token: token of the operator; shown when it was generated.
        exposure: description of the clients that may begin calls.
    """
    lines = [
        f"Parley is ready: {address}",
        "  recogniser {stt}, turn detection {turn}, language model {llm}, voice {tts} (deployment "
        "{deployment!r})".format(**names),
    ]
    if exposure:
        lines.append(f"  {exposure}")
    if names.get("omni"):
        lines.append(f"  full duplex: {names['omni']}, {address}/duplex")
    if token is not None and token.generated:
        # In the fragment, which is sent to no server: the page logs in with it and removes it.
        kept = f"kept in {token.path}" if token.path is not None else "until this process ends"
        lines.append(f"  operator: {address}/admin#token={token.text} ({kept})")
    if names["stt"] == "pocketsphinx":
        lines.append(
            "  pocketsphinx understands clear, simple English only. "
            f"The neural recogniser: {fetch_command('moonshine_tiny')}"
        )
    return "\n".join(lines)
