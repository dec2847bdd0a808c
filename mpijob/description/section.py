"""What every mapping of a job description has in common."""

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


class Section(BaseModel):
    """A mapping whose keys are known, and which may have a short form (`workers: 1:4`).

    Keys are checked, values are frozen. The docstring under a field is its help on the command line and in the schema.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    short_form: ClassVar[str | None] = None
    """What may stand in place of the mapping, for help and messages; None where only the mapping may."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """The mapping that a short form stands for; anything else unchanged, for validation to judge."""
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
