"""Settings of a deployment, completed by values that no deployment sets.

A part reads more values than people should have to know: bounds, waits and thresholds that were measured.
Those that a deployment can give are fields of its ``...Settings``; its ``...Tuning`` derives from that and
adds the rest, each with its value and reason. A part takes the former and reads the latter. A test or an
evaluation that needs another value hands over a tuning itself.
"""

from typing import TypeVar

from pydantic import BaseModel

Tuned = TypeVar("Tuned", bound=BaseModel)


def tuned(model: type[Tuned], settings: BaseModel | None) -> Tuned:
    """Return the settings of a deployment, completed by the values that it cannot set.

    Args:
        model: the tuning, a subclass of the settings' model.
        settings: as given; None: the defaults; already a tuning: returned as it is.
    """
    if isinstance(settings, model):
        return settings
    if settings is None:
        return model()
    # What was left out stays so.
    return model.model_validate({name: getattr(settings, name) for name in settings.model_fields_set})
