import pytest

ROWS = 200


@pytest.fixture
def table(tmp_path):
    """A small table with its schema."""
    lines = ["age,city,employed"]
    lines += [f"{18 + i % 60},{('Bonn', 'Köln')[i % 2]},{i % 3 == 0:d}" for i in range(ROWS)]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "people.toml").write_text(
        """
[columns.age]
type = "number"
lower = 18
upper = 90

[columns.city]
type = "category"
categories = ["Bonn", "Köln"]

[columns.employed]
type = "boolean"
""",
        encoding="utf-8",
    )
    return tmp_path
