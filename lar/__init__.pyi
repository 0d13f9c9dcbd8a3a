"""The public API: the module of each name, for `lar` itself and for type checkers."""

from lar.dumps.binary import load_tensor_binary as load_tensor_binary
from lar.dumps.index import open_dump as open_dump
from lar.engines.operator_times import read_profile as read_profile
from lar.errors import DumpError as DumpError
from lar.errors import EngineMissing as EngineMissing
from lar.errors import LarError as LarError
from lar.errors import UsageError as UsageError
from lar.profiles.ranges import range as range
from lar.records.bench import BenchResult as BenchResult
from lar.records.bench import read_bench as read_bench
from lar.records.comparison import Comparison as Comparison
from lar.records.comparison import ComparisonOfSides as ComparisonOfSides
from lar.records.comparison import read_comparison as read_comparison
from lar.records.comparison import read_comparison_of_sides as read_comparison_of_sides
from lar.records.profile import Profile as Profile
from lar.records.run import RunResult as RunResult
from lar.records.run import RunSpec as RunSpec
from lar.records.run import read_result as read_result
from lar.records.tuning import TuneResult as TuneResult
from lar.records.tuning import read_tune as read_tune
from lar.results.reading import read_results as read_results
from lar.results.reading import schema_of_result as schema_of_result
from lar.results.store import save as save
from lar.running.api import read_info as read_info
from lar.running.api import run as run
from lar.running.bench import bench as bench
from lar.running.compared_sides import compare as compare
from lar.running.isolation import find_devices as find_devices
from lar.tuning.outcome import Tuning as Tuning
from lar.tuning.search import tune as tune

__version__: str
