"""Private statistics of tables: exact integers of the rows, exact integer noise, an entry in the ledger.

```python
table = Table.open("people.parquet", "people.toml")
answer = ask(Histogram("age", bins=10), table, Terms(epsilon=0.5))
answer.value, answer.reading.interval, str(answer.statement())
```

`Count`, `Histogram`, `Sum`, `Mean` and `Variance` add discrete Laplace or rounded Gaussian noise; `Quantile` and `Top`
choose with pure epsilon. A `Session` asks several and says what they cost together.
"""

from tacit.queries.answer import Answer as Answer
from tacit.queries.choosing import Quantile as Quantile
from tacit.queries.choosing import Top as Top
from tacit.queries.counting import Count as Count
from tacit.queries.counting import Histogram as Histogram
from tacit.queries.moments import Mean as Mean
from tacit.queries.moments import Variance as Variance
from tacit.queries.query import Query as Query
from tacit.queries.rows import Where as Where
from tacit.queries.session import Session as Session
from tacit.queries.session import ask as ask
from tacit.queries.sums import Sum as Sum
from tacit.queries.terms import Terms as Terms
