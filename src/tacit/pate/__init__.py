"""PATE: teachers on disjoint parts of the private data vote, noise hides each of them, and a student learns from that.

The order of things, one module each: `partition` the records, train the `teachers`, count their `votes`, answer
questions by an `aggregation` while the budget lasts (`answering`), and teach a student.
"""

from tacit.pate.aggregation import ConfidentGNMax as ConfidentGNMax
from tacit.pate.aggregation import GNMax as GNMax
from tacit.pate.aggregation import LNMax as LNMax
from tacit.pate.partition import partition as partition
from tacit.pate.partition import partition_by_identity as partition_by_identity
from tacit.pate.teachers import Teachers as Teachers
from tacit.pate.teachers import TeacherTraining as TeacherTraining
from tacit.pate.votes import count_votes as count_votes
