"""HAProxy in front of replicas, with the configuration that is deployed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.programs import free_ports, program, running

CONFIGURATION: Final = Path(__file__).parents[2] / "deploy" / "haproxy" / "haproxy.cfg"


def configuration_for(ports: Sequence[int], *, listen_on: int) -> str:
    """Return the deployed configuration with these replicas instead of the containers."""
    text = CONFIGURATION.read_text(encoding="utf-8")
    template = next(line for line in text.splitlines() if "server-template" in line)
    servers = [f"    server replica{port} 127.0.0.1:{port}" for port in ports]
    assert text.count("bind :8080") == 1
    return text.replace("bind :8080", f"bind 127.0.0.1:{listen_on}").replace(
        template, "\n".join(servers)
    )


@contextmanager
def balanced(ports: Sequence[int], folder: Path) -> Iterator[str]:
    """Give the URL of a load balancer in front of the replicas on these ports."""
    (port,) = free_ports(1)
    written = folder / "haproxy.cfg"
    written.write_text(configuration_for(ports, listen_on=port), encoding="utf-8")
    command = [program("haproxy", package="haproxy"), "-db", "-f", str(written)]
    with running(command, port=port, folder=folder):
        yield f"http://127.0.0.1:{port}"
