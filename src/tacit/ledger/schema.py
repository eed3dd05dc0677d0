"""The tables of a ledger: a list of records for each account, and where that list ends.

``history`` is only ever added to. Each record carries the hash of the one before it, so that an edit, a deletion or
another order is seen by whoever reads. An account's row says how long its list is and what its last hash is: the only
values that ever change.

``allowances`` remembers a decision for those who come next: so many more of these events are known to fit, all rows
together, beside what counts now. It says nothing that the history does not say, and may be emptied at any time. It
holds only while ``allowed_length`` keeps up with the length of the list: whoever knows of allowances moves both, and a
record that an older tacit added, which could not withdraw them, leaves ``allowed_length`` behind.
"""

import sqlalchemy as sa

SCHEMA_VERSION = 3

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
    sa.Column("length", sa.Integer, nullable=False),
    sa.Column("head", sa.Text, nullable=False),
    sa.Column("allowed_length", sa.Integer, nullable=False, server_default="0"),
)

history = sa.Table(
    "history",
    metadata,
    sa.Column("account_id", sa.ForeignKey("accounts.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)

allowances = sa.Table(
    "allowances",
    metadata,
    sa.Column("account_id", sa.ForeignKey("accounts.id"), primary_key=True),
    sa.Column("event", sa.Text, primary_key=True),
    sa.Column("remaining", sa.Integer, nullable=False),
)
