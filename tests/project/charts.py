"""The Helm chart, rendered without Helm's command and without a cluster."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import yaml

REPOSITORY: Final = Path(__file__).parents[2]
CHART: Final = REPOSITORY / "deploy" / "helm" / "foldline"


def rendered(values: Mapping[str, Any] | None = None, *, name: str = "foldline") -> dict[str, str]:
    """Return the text of each template, by its path below `templates`."""
    with helm.Chart.load(str(CHART)) as chart:
        texts = chart.render(dict(values or {}), name=name, namespace="foldline")
    return {path.partition("/templates/")[2]: text for path, text in sorted(texts.items())}


def objects(values: Mapping[str, Any] | None = None, *, name: str = "foldline") -> list[Any]:
    """Return every rendered object."""
    return [
        found
        for path, text in rendered(values, name=name).items()
        if path.endswith(".yaml")
        for found in yaml.safe_load_all(text)
        if found is not None
    ]


def of_kind(found: list[Any], kind: str) -> dict[str, Any]:
    """Return the objects of a kind, by name."""
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def pod_specs(found: list[Any]) -> Iterator[Any]:
    """Yield the pod that each object makes."""
    for each in found:
        if each["kind"] == "Pod":
            yield each["spec"]
        elif "template" in each.get("spec", {}):
            yield each["spec"]["template"]["spec"]


def manifests() -> dict[str, str]:
    """Return the plain manifests, file name to text: the chart with its defaults, less its test."""
    parts = [
        text.strip()
        for path, text in rendered().items()
        if path.endswith(".yaml") and not path.startswith("tests/") and text.strip()
    ]
    note = (
        "# Rendered from deploy/helm/foldline with its defaults; a test holds the two equal.\n"
        "# `pytest tests/project/test_chart.py --update-golden` writes it anew.\n"
    )
    return {"foldline.yaml": note + "\n---\n".join(["", *parts]).lstrip("\n") + "\n"}
