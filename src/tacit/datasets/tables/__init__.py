"""Tables: CSV and Parquet files, read by a schema of public facts."""

from tacit.datasets.tables.loading import load_table as load_table
from tacit.datasets.tables.reading import is_table as is_table
from tacit.datasets.tables.schema import BooleanColumn as BooleanColumn
from tacit.datasets.tables.schema import CategoryColumn as CategoryColumn
from tacit.datasets.tables.schema import NumberColumn as NumberColumn
from tacit.datasets.tables.schema import Schema as Schema
from tacit.datasets.tables.schema import read_schema as read_schema
