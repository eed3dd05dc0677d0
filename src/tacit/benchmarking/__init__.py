"""Benchmarks: tacit beside plain training and its peers, in one run, with the machine they ran on."""

from tacit.benchmarking.accounting import benchmark_accounting as benchmark_accounting
from tacit.benchmarking.pate import PateSettings as PateSettings
from tacit.benchmarking.pate import benchmark_pate as benchmark_pate
from tacit.benchmarking.results import merged as merged
from tacit.benchmarking.results import read_result as read_result
from tacit.benchmarking.results import write_result as write_result
from tacit.benchmarking.stepping import StepSettings as StepSettings
from tacit.benchmarking.stepping import benchmark_step as benchmark_step
