"""JSON Schema of a job description, with descriptions and defaults: editors complete keys from it."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from hvd_elastic.mpijob.description import pod_schema
from hvd_elastic.mpijob.description.job_spec import JobSpec, Toleration
from hvd_elastic.mpijob.description.keys import KEYS, docstrings
from hvd_elastic.mpijob.description.section import Section, schema_name

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _SchemaGenerator(GenerateJsonSchema):
    """Names the sections under `$defs` as users know them: `Workers`, not the class `WorkersSpec`."""

    def normalize_name(self, name: str) -> str:
        return schema_name(super().normalize_name(name))


def schema() -> dict[str, Any]:
    """The schema of a job description.

    It comes from the model that also reads descriptions, so both know the same keys and types. Contradictions between
    keys are not in it: only the reader finds those.
    """
    made = JobSpec.model_json_schema(by_alias=True, schema_generator=_SchemaGenerator)
    for model in _models():
        body = made if model is JobSpec else _object(made["$defs"][schema_name(model.__name__)])
        _describe(body, model)
        if "pod" in model.model_fields:  # pydantic knows no schema but its own models'
            description = body["properties"]["pod"]["description"]
            body["properties"]["pod"] = {"description": description, "$ref": f"#/$defs/{pod_schema.TEMPLATE}"}
    made["$defs"] |= pod_schema.definitions()
    return {"$schema": DIALECT, **made, "title": "hvd-elastic job"}


def _models() -> list[type[Section]]:
    found: dict[str, type[Section]] = {JobSpec.__name__: JobSpec, Toleration.__name__: Toleration}
    for key in KEYS.values():
        if key.section is not None:
            found[key.section.__name__] = key.section
    return list(found.values())


def _object(definition: dict[str, Any]) -> dict[str, Any]:
    """The mapping form of a section, which may have a short form beside it."""
    long_form: dict[str, Any] = next(
        (choice for choice in definition.get("anyOf", [definition]) if "properties" in choice), definition
    )
    return long_form


def _describe(body: dict[str, Any], model: type[Section]) -> None:
    docs = docstrings(model)
    for field, info in model.model_fields.items():
        entry = body["properties"][info.alias or field]
        entry.pop("title", None)
        if field in docs:
            entry["description"] = docs[field]
