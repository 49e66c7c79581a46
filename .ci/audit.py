"""Three looks at what could harm a user: calls in the source, known holes of what is installed, and a list of it.

A tool or database that cannot be reached is said and is no failure; a finding is (exit code 1).
"""

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SBOM = ROOT / "sbom.cdx.json"


def run(module: str, *words: str) -> subprocess.CompletedProcess[str] | None:
    """None where the tool is not installed."""
    if importlib.util.find_spec(module) is None:
        print(f"{module.replace('_', '-')}: not available: it is not installed")
        return None
    return subprocess.run([sys.executable, "-m", module, *words], cwd=ROOT, capture_output=True, text=True, check=False)


def source() -> bool:
    """Of medium severity and above."""
    found = run("bandit", "-q", "-r", "src", "lab", "-ll", "-f", "json")
    if found is None:
        return True
    results = json.loads(found.stdout)["results"]
    for each in results:
        print(f"bandit: {each['filename']}:{each['line_number']}: {each['test_id']} {each['issue_text']}")
    print(f"bandit: {len(results)} findings of medium severity or above")
    return not results


def installed() -> bool:
    found = run("pip_audit", "--format", "json", "--progress-spinner", "off")
    if found is None:
        return True
    try:
        packages: list[dict[str, Any]] = json.loads(found.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (found.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"pip-audit: not available: its database cannot be reached ({last[:120]})")
        return True
    known = [package for package in packages if "skip_reason" not in package]
    holes = [(package["name"], hole["id"]) for package in known for hole in package["vulns"]]
    for name, hole in holes:
        print(f"pip-audit: {name}: {hole}")
    if not known:
        print(f"pip-audit: not available: none of {len(packages)} packages could be looked up")
    else:
        print(f"pip-audit: {len(holes)} known holes in {len(known)} of {len(packages)} packages that were looked up")
    return not holes


def listed() -> None:
    """In the form of CycloneDX 1.5."""
    components = []
    for package in sorted(importlib.metadata.distributions(), key=lambda each: each.name.lower()):
        about = package.metadata
        licence = about.get("License-Expression") or (about.get("License") or "").partition("\n")[0]
        components.append({
            "type": "library", "name": package.name, "version": package.version,
            "purl": f"pkg:pypi/{package.name.lower().replace('_', '-')}@{package.version}",
            **({"licenses": [{"license": {"name": licence[:100]}}]} if licence else {}),
        })  # fmt: skip
    own = {"type": "application", "name": "shardwise", "version": importlib.metadata.version("shardwise")}
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": own},
                "components": [each for each in components if each["name"] != "shardwise"]}  # fmt: skip
    SBOM.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"sbom: {len(document['components'])} packages in {SBOM.name} (CycloneDX 1.5)")


if __name__ == "__main__":
    listed()
    sys.exit(not all([source(), installed()]))
