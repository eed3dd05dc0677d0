"""Who may spend what: budgets of data sets, reserved durably before noise is drawn and committed after.

```python
ledger = Ledger.create("ledger.db", dataset="mnist", budget=Budget(3, 1e-5))
account = ledger.account("mnist")
with account.reserve(repeated(step_event), 4_000, run="runs/1", neighbours=..., unit=...) as reservation:
    for step in range(4_000):
        reservation.before_noise(step)  # durable; only now may the noise of this step be drawn
        ...
```
"""

from tacit.ledger.account import Account as Account
from tacit.ledger.entries import Entry as Entry
from tacit.ledger.entries import EntryState as EntryState
from tacit.ledger.ledger import Ledger as Ledger
from tacit.ledger.reservation import Reservation as Reservation
from tacit.ledger.reservation import unlimited as unlimited
from tacit.ledger.spending import EventFor as EventFor
from tacit.ledger.spending import repeated as repeated
from tacit.ledger.terms import Rule as Rule
from tacit.ledger.terms import Terms as Terms
