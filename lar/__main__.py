"""python -m lar"""

from lar.cli.main import run_from_shell

run_from_shell()
