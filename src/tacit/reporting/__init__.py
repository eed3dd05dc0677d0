"""Figures and pages from run records: what a run folder says, and nothing that it does not."""

from tacit.reporting.page import write_report as write_report
from tacit.reporting.record import RunRecord as RunRecord
from tacit.reporting.record import read_run as read_run
