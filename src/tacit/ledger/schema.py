"""The tables of a ledger. Rows are only ever added: a reservation's later life is a list of records beside
it.

Nothing is updated or deleted, so the history of an account can be read back as it happened.
"""

import sqlalchemy as sa

SCHEMA_VERSION = 1

metadata = sa.MetaData()

ledger_table = sa.Table(
    "tacit_ledger",
    metadata,
    sa.Column("schema_version", sa.Integer, primary_key=True),
    sa.Column("created", sa.Text, nullable=False),
)

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False, unique=True),
    sa.Column("epsilon", sa.Float),
    sa.Column("delta", sa.Float),
    sa.Column("neighbours", sa.Text, nullable=False),
    sa.Column("unit_name", sa.Text, nullable=False),
    sa.Column("unit_max_examples", sa.Integer, nullable=False),
    sa.Column("created", sa.Text, nullable=False),
    sa.CheckConstraint("(epsilon IS NULL) = (delta IS NULL)", name="budget_whole_or_absent"),
)

reservations = sa.Table(
    "reservations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("account_id", sa.ForeignKey("accounts.id"), nullable=False, index=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("created", sa.Text, nullable=False),
)

# What became of a reservation: "drawn" raises the mark below which noise may exist, "committed" and
# "released" close it.
records = sa.Table(
    "records",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("reservation_id", sa.ForeignKey("reservations.id"), nullable=False, index=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("event", sa.Text),
    sa.Column("created", sa.Text, nullable=False),
    sa.CheckConstraint("kind IN ('drawn', 'committed', 'released')", name="known_kind"),
    sa.CheckConstraint("(kind = 'committed') = (event IS NOT NULL)", name="commits_carry_their_event"),
)

closing_kinds = ("committed", "released")

# Two closing records for one reservation cannot be stored, whatever the code above does.
sa.Index(
    "closed_once",
    records.c.reservation_id,
    unique=True,
    sqlite_where=records.c.kind.in_(closing_kinds),
    postgresql_where=records.c.kind.in_(closing_kinds),
)
