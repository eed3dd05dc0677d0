"""Tables: CSV and Parquet files and frames in memory, read by a schema of public facts.

`load_table`, which makes tensors, is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

from tacit.datasets.tables.draft import Draft as Draft
from tacit.datasets.tables.draft import draft_schema as draft_schema
from tacit.datasets.tables.encoding import Cells as Cells
from tacit.datasets.tables.header import is_table as is_table
from tacit.datasets.tables.schema import BooleanColumn as BooleanColumn
from tacit.datasets.tables.schema import CategoryColumn as CategoryColumn
from tacit.datasets.tables.schema import NumberColumn as NumberColumn
from tacit.datasets.tables.schema import Schema as Schema
from tacit.datasets.tables.schema import as_schema as as_schema
from tacit.datasets.tables.schema import read_schema as read_schema
from tacit.datasets.tables.table import Chunk as Chunk
from tacit.datasets.tables.table import Table as Table

if TYPE_CHECKING:
    from tacit.datasets.tables.loading import load_table as load_table


def __getattr__(name: str) -> Any:
    if name != "load_table":
        raise AttributeError(f"module 'tacit.datasets.tables' has no attribute {name!r}")
    from tacit.datasets.tables.loading import load_table

    return load_table
