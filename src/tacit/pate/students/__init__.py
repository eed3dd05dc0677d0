"""Students: whoever learns from the answers. Only they leave the building, and nothing they do costs privacy."""

from tacit.pate.students.ensemble import StudentEnsemble as StudentEnsemble
from tacit.pate.students.fixmatch import FixMatch as FixMatch
from tacit.pate.students.gan import GAN as GAN
from tacit.pate.students.perceptrons import Perceptron as Perceptron
from tacit.pate.students.running_targets import RunningTargets as RunningTargets
from tacit.pate.students.self_training import SelfTraining as SelfTraining
from tacit.pate.students.student import Lesson as Lesson
from tacit.pate.students.student import Student as Student
from tacit.pate.students.supervised import Supervised as Supervised
