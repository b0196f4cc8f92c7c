"""What our statements are called: by the constant that holds them.

event_log.py    _LOCK_SESSION    event_log.lock_session
"""

import pkgutil
from collections.abc import Mapping
from importlib import import_module

import app.storage


def query_names() -> Mapping[str, str]:
    """Return the name of every statement of the storage, by its text.

    Pieces of statements are among them, which does no harm: nobody runs them.
    """
    names: dict[str, str] = {}
    for module in pkgutil.iter_modules(app.storage.__path__):
        for constant, value in vars(import_module(f"app.storage.{module.name}")).items():
            if constant.isupper() and isinstance(value, str):
                # Another module may import it: then it is still called by where it comes first.
                names.setdefault(value, f"{module.name}.{constant.strip('_').lower()}")
    return names
