"""What a run was made with: its machine, engine and model file."""

from __future__ import annotations

from dataclasses import field

from lar.records.record import Record

MOST_COPIES = 1024  # of a model that run at once, as `--thread` takes them


class MachineFacts(Record):
    """The machine that ran it, when the run began. Unknown facts are empty or None.

    Attributes:
        affinity: the numbers of the CPUs that the process may use.
        threads_per_core: how many CPUs share one core: 2 with SMT (hyper-threading) on.
        smt: the kernel's word for it: on, off, notsupported.
        load: how many threads computed or wanted to, on average over the last minute.
        cpu_limit: the limit of CPU time of the process's cgroup, in CPUs.
        variables: the environment variables of the worker that libraries heed.
        architecture: of its instructions, as the system names it: x86_64, aarch64.
    """

    system: str = ""
    processor: str = ""
    cores: int = 0
    usable_cores: int = 0
    memory_bytes: int | None = None
    governor: str = ""
    python: str = ""
    affinity: tuple[int, ...] = ()
    threads_per_core: int | None = None
    smt: str = ""
    load: float | None = None
    cpu_limit: float | None = None
    variables: dict[str, str] = field(default_factory=dict)
    architecture: str = ""

    @property
    def described(self) -> str:
        """The processor, the cores that may be used, and the memory."""
        if not self.cores:  # named by hand
            return self.processor
        usable = "" if self.usable_cores == self.cores else f"{self.usable_cores} of "
        size = [] if self.memory_bytes is None else [f"{self.memory_bytes / 2**30:.0f} GiB"]
        return ", ".join([self.processor, f"{usable}{self.cores} cores", *size])


class ModelFile(Record):
    """The model file that ran; its SHA-256 distinguishes two models of one name.

    `weights` are the SHA-256 of the files beside it that hold its weights, by their paths, where
    somebody has asked for them.
    """

    path: str
    size_bytes: int
    sha256: str
    weights: dict[str, str] = field(default_factory=dict)


class EngineFacts(Record):
    """The engine that really ran: its version, driver and device, and the libraries beside it.

    `products` is the type that factors of float32 products are rounded to, empty for none.
    `threads` is how many threads of the CPU compute a copy of the model; None if not known.
    `spin_seconds` is how much CPU time one of them spends at most while it waits for work; 0 if it
    sleeps, or if that is not known.
    """

    name: str
    version: str
    driver: str
    device: str
    libraries: dict[str, str] = field(default_factory=dict)
    threads: int | None = None
    spin_seconds: float = 0.0
    products: str = ""
