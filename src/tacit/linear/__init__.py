"""Regression and classification of tables by linear models, in a few passes over the rows.

- `LinearRegression`, `LogisticRegression`: estimators after scikit-learn's conventions.
- `fit_table`: the same for a `tacit.datasets.tables.Table`, whose rows never lie in memory as a whole.
- Methods: `Functional` (pure guarantee), `SufficientStatistics`, `AdaSSP`, `Newton`; `choose_method` picks one by
  public facts.
"""

from tacit.linear.adassp import AdaSSP as AdaSSP
from tacit.linear.choosing import METHODS as METHODS
from tacit.linear.choosing import choose_method as choose_method
from tacit.linear.estimators import LinearRegression as LinearRegression
from tacit.linear.estimators import LogisticRegression as LogisticRegression
from tacit.linear.fitting import LinearModel as LinearModel
from tacit.linear.functional import Functional as Functional
from tacit.linear.guarantee import Guarantee as Guarantee
from tacit.linear.guarantee import Terms as Terms
from tacit.linear.newton import Newton as Newton
from tacit.linear.problem import Method as Method
from tacit.linear.sufficient import SufficientStatistics as SufficientStatistics
from tacit.linear.tables import fit_table as fit_table
