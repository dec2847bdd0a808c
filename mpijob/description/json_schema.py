"""JSON Schema of a job description, with descriptions and defaults: what editors complete from."""

from typing import Any

from hvd_elastic.mpijob.description.job_spec import JobSpec, Toleration
from hvd_elastic.mpijob.description.keys import KEYS, docstrings
from hvd_elastic.mpijob.description.section import Section

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema. It is made from the model, so it knows what the reader knows; contradictions need the reader."""
    made = JobSpec.model_json_schema(by_alias=True)
    for model in _models():
        body = made if model is JobSpec else _object(made["$defs"][model.__name__])
        _describe(body, model)
    return {"$schema": DIALECT, **made, "title": "hvd-elastic job"}


def _models() -> list[type[Section]]:
    found: dict[str, type[Section]] = {JobSpec.__name__: JobSpec, Toleration.__name__: Toleration}
    for key in KEYS.values():
        if key.section is not None:
            found[key.section.__name__] = key.section
    return list(found.values())


def _object(definition: dict[str, Any]) -> dict[str, Any]:
    """The long form of a section that has a short one too."""
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
