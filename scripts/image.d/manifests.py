"""Validates rendered manifests: manifests.py FOLDER [FOLDER OF CUSTOM RESOURCE DEFINITIONS]

Resources of Kubernetes are validated with the schemas of the oldest version that has all their fields, and of the newest one
known; unknown fields are refused. Custom resources are validated with their definitions, if these are given.
"""

import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

OLDEST = "1.31"


def strict(schema):
    """Refuses unknown fields, as the server does in strict mode."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        known.setdefault("additionalProperties", False)
    return known


def definitions(folder):
    """Returns the schemas of the definitions, by kind and version."""
    found = {}
    for path in folder.rglob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                spec = document["spec"]
                for version in spec["versions"]:
                    schema = version["schema"]["openAPIV3Schema"]
                    # The definition leaves out the fields that every object has.
                    schema["properties"]["metadata"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                    found[(f"{spec['group']}/{version['name']}", spec["names"]["kind"])] = strict(schema)
    return found


def main(manifests, custom):
    schemas = definitions(pathlib.Path(custom)) if custom else {}
    wrong, unchecked = 0, set()
    for path in sorted(pathlib.Path(manifests).glob("*.yaml")):
        resources = [document for document in yaml.safe_load_all(path.read_text()) if document]
        if not resources:
            sys.exit(f"{path.name} has no resources")
        for resource in resources:
            kind = (resource["apiVersion"], resource["kind"])
            try:
                if "." in kind[0].split("/")[0] and not kind[0].split("/")[0].endswith(".k8s.io"):
                    if kind in schemas:
                        jsonschema.validate(resource, schemas[kind])
                    else:
                        unchecked.add(kind[1])
                else:
                    for version in (OLDEST, kubernetes_validate.latest_version()):
                        kubernetes_validate.validate(resource, version, strict=True)
            except jsonschema.ValidationError as error:
                place = ".".join(str(part) for part in error.path)
                print(f"{path.name}: {kind[1]} {resource['metadata']['name']}: {place}: {error.message}", file=sys.stderr)
                wrong += 1
        print(f"kubernetes-validate: {len(resources)} resources of {path.name}")
    for kind in sorted(unchecked):
        print(f"NOT CHECKED: {kind}: HATCHERY_CRDS names no definition of it")
    sys.exit(1 if wrong else 0)


main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
