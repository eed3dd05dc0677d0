"""Named data sets, checked by their digests, and tables with a public schema.

What needs torch is imported when it is first used: tables can be read and asked without it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tacit.datasets.catalogue import CATALOGUE as CATALOGUE
from tacit.datasets.catalogue import FileInfo as FileInfo
from tacit.datasets.catalogue import SetInfo as SetInfo
from tacit.datasets.catalogue import describe as describe
from tacit.datasets.tables import Schema as Schema
from tacit.datasets.tables import is_table as is_table
from tacit.datasets.tables import read_schema as read_schema

if TYPE_CHECKING:
    from tacit.datasets.features import with_features as with_features
    from tacit.datasets.loading import load as load
    from tacit.datasets.locating import locate_or_fetch as locate_or_fetch
    from tacit.datasets.locating import search_folders as search_folders
    from tacit.datasets.split import DataSet as DataSet
    from tacit.datasets.split import Split as Split
    from tacit.datasets.tables import load_table as load_table

_HOME_OF = {
    "with_features": "features",
    "load": "loading",
    "locate_or_fetch": "locating",
    "search_folders": "locating",
    "DataSet": "split",
    "Split": "split",
    "load_table": "tables.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tacit.datasets' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tacit.datasets.{_HOME_OF[name]}"), name)
