"""python -m lar"""

from lar.cli import run_from_shell

run_from_shell()
