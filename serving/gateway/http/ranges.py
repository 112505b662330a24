"""Bounds of numbers in request bodies, both of which a refusal names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True, slots=True)
class Range:
    """Annotation of a number of a request body: ``Annotated[float | None, Range(1, 60)]``.

    pydantic names the bound that a value exceeds, and none where the value is a text. NaN is not in any
    range; texts and booleans are not converted.

    Attributes:
        ge: least value.
        le: greatest value.
    """

    ge: int
    le: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        kinds = get_args(source) or (source,)
        kind = "whole number" if int in kinds else "number"

        def check(value: object, inner: Callable[[object], float | None]) -> float | None:
            try:
                found = None if isinstance(value, bool | str | bytes) else inner(value)
            except ValidationError:
                found = None
            if (found is None and value is None and type(None) in kinds) or self._has(found):
                return found
            raise PydanticCustomError("out_of_range", f"expected a {kind} from {self.ge} to {self.le}")

        return core_schema.no_info_wrap_validator_function(check, handler(source))

    def _has(self, number: float | None) -> bool:
        return number is not None and self.ge <= number <= self.le
