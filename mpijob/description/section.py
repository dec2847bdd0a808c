"""What all mappings of a job description have in common."""

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


def schema_name(class_name: str) -> str:
    """The name of a section's class in the JSON Schema: `WorkersSpec` is `Workers` there."""
    return class_name.removesuffix("Spec")


class Section(BaseModel):
    """A mapping with a fixed set of keys. It may have a short form (`workers: 1:4`).

    Unknown keys are errors and values are frozen. The docstring under a field is its help on the command line and in
    the schema.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        defer_build=True,
        model_title_generator=lambda model: schema_name(model.__name__),
    )

    short_form: ClassVar[str | None] = None
    """What a user may write instead of the mapping, for help and messages. None: only the mapping is accepted."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """The mapping that a short form stands for. Any other value is returned as it is, for validation to judge."""
        return value

    @model_validator(mode="before")
    @classmethod
    def _expanded(cls, value: Any) -> Any:
        return cls.expand(value)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.short_form is None:
            return schema
        short = {"type": ["string", "integer"], "description": f"Short form: {cls.short_form}"}
        return {"anyOf": [short, schema]}
