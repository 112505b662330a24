"""Settings of a deployment, completed by values that no deployment sets.

A part needs more values than users should have to set: bounds, waits and thresholds that were measured. Those
that a deployment can set are fields of its ``...Settings``. Its ``...Tuning`` derives from that and adds the
rest, each with its value and reason. A part accepts the former and uses the latter. A test or an evaluation
that needs another value passes a tuning itself.
"""

from typing import TypeVar

from pydantic import BaseModel

Tuned = TypeVar("Tuned", bound=BaseModel)


def tuned(model: type[Tuned], settings: BaseModel | None) -> Tuned:
    """Return the settings of a deployment, completed by the values that it cannot set.

    Args:
        model: the tuning, a subclass of the settings' model.
        settings: as given. None: the defaults. A tuning is returned unchanged.
    """
    if isinstance(settings, model):
        return settings
    if settings is None:
        return model()
    # Fields that were left out stay unset.
    return model.model_validate({name: getattr(settings, name) for name in settings.model_fields_set})
