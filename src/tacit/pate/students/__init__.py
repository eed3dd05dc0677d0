"""Students: whoever learns from the answers. Only they leave the building, and nothing they do costs privacy."""

from tacit.pate.students.fixmatch import FixMatch as FixMatch
from tacit.pate.students.student import Student as Student
from tacit.pate.students.supervised import Supervised as Supervised
