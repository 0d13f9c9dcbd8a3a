"""The lite driver: MegEngine's inference interface, called through its C functions."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from lar.engines.driver import LateOutputs
from lar.engines.megengine import LITE_LIBRARY
from lar.engines.megengine.driver import MegEngineDriver, import_package, info_of, resized_inputs
from lar.engines.megengine.packed_model import graph_in, is_packed, open_packed
from lar.errors import UsageError
from lar.files.libraries import load_lazily
from lar.options.option import flag_of
from lar.options.table import MULTITHREAD
from lar.records.run import TensorInfo, format_shape


def import_lite() -> Any:
    """Import megenginelite.

    Raises:
        EngineMissing: megenginelite is not installed, or does not load on this machine.
    """
    load_lazily(LITE_LIBRARY)
    megenginelite = import_package("megenginelite")
    # megenginelite's table lacks float16, so it would refuse such a tensor. Any type of two bytes
    # is right here, as the type for NumPy comes from another table.
    types = megenginelite.tensor._lite_dtypes_to_ctype
    types.setdefault(megenginelite.LiteDataType.LITE_HALF, ctypes.c_ushort)
    return megenginelite


def find_devices() -> tuple[str, ...]:
    """Return the devices of this machine on which MegEngine can run, the CPU first."""
    lite = import_lite()
    count = lite.LiteGlobal.get_device_count(lite.LiteDeviceType.LITE_CUDA)
    return ("cpu", *(f"cuda:{index}" for index in range(count)))


class LiteDriver(MegEngineDriver):
    """A driver with a LiteNetwork, which lives as long as the driver."""

    name: Literal["lite"] = "lite"
    first: LiteDriver
    calls = {"forward": "LITE_forward", "wait": "LITE_wait", "outputs": "LiteTensor.to_numpy"}

    def set_up(self) -> None:
        self.lite = self.package = import_lite()
        self.config = self.lite.LiteConfig(device_type=self.lite.LiteDeviceType.LITE_CPU)
        self.network: Any = None
        # With --multithread the calling thread only waits for the engine's own threads.
        self.computes_in_caller = not MULTITHREAD.is_given(self.spec.settings)
        self.infos: tuple[TensorInfo, ...] = ()
        # The hooks of the options set these attributes.
        self.lite_options: dict[str, int] = {}
        self.network_setup: list[Callable[[Any], None]] = []
        self.load_file: Callable[[LiteDriver], None] = load_from_path
        self.mapping: Any = None  # the mapped model file, if the network computes on it in place
        self.algorithms_chosen = False
        self.choices: list[bytes] = []  # the engine's messages about algorithms that it chose
        self.profile_clock: Any = None

    def choose_cuda(self, device_id: int) -> None:
        """Have the network run on a CUDA device.

        Raises:
            UsageError: the machine has no CUDA device with this number.
        """
        devices = find_devices()
        if f"cuda:{device_id}" not in devices:
            problem = f"MegEngine finds no device cuda:{device_id} on this machine"
            hint = f"devices: {', '.join(devices)}; check the NVIDIA driver (`lar engines`)"
            raise UsageError(problem, hint, flag="--cuda")
        self.config.device_type = self.lite.LiteDeviceType.LITE_CUDA
        self.config.device_id = device_id

    def set_log_level_verbose(self) -> None:
        self.lite.set_log_level(self.lite.LiteLogLevel.DEBUG)

    def load(self) -> None:
        self.fire_hooks("before_load")
        fields = {name for name, _ in self.lite.LiteOptions._fields_}
        for name, value in self.lite_options.items():
            # ctypes would accept a name that is not a field, and ignore it.
            assert name in fields, name
            setattr(self.config.options, name, value)
        self.network = self.lite.LiteNetwork(config=self.config)
        for set_up in self.network_setup:
            set_up(self.network)
        if is_packed(self.model_file):
            from lar.engines.megengine.packing import check_packed_model

            if check_packed_model(self, self.lite_options) and not self.algorithms_chosen:
                # lite reads the cache in the model only if the policy has PROFILE.
                strategies = self.lite.LiteAlgoSelectStrategy
                cached = strategies.LITE_ALGO_PROFILE | strategies.LITE_ALGO_HEURISTIC
                self.network.set_network_algo_policy(cached)
        self.load_file(self)
        self.check_device()
        self.fire_hooks("after_load")
        self.read_tensors()

    def read_tensors(self) -> None:
        """Read the inputs, in the order of the file, and check that the outputs can be read.

        Raises:
            RuntimeError: a tensor has a type that lite's Python package lacks.
        """
        names = self.network.get_all_input_name() or ()
        if len(names) > 1:
            from lar.engines.megengine.graph_operators import sort_inputs  # few runs need it

            names = sort_inputs(names, self.model_file)
        try:
            layouts = [(name, self.network.get_io_tensor(name).layout) for name in names]
            self.infos = tuple(info_of(name, it.dtype, it.shapes) for name, it in layouts)
            for name in self.outputs():
                self.network.get_io_tensor(name)  # fails if the name is damaged
        except KeyError as error:
            # lite's Python tables lack only this type; the message is like lite's own.
            raise RuntimeError("unsupport dtype in lite : { Uint16}") from error

    def check_device(self) -> None:
        """Check that the network is on the requested device.

        A packed model can ask for a device that the user has not requested.

        Raises:
            UsageError: the network is on another device.
        """
        number = ctypes.c_int()
        self.call("LITE_get_device_type", self.network._network, ctypes.byref(number))
        names = {0: "cpu", 1: f"cuda:{self.network.device_id}"}  # LiteDeviceType
        device = names.get(number.value, f"device type {number.value}")
        if device != self.spec.device:
            problem = f"the model is on {device}, not on {self.spec.device}: its file asks for that"
            hint = "give --cuda" if device.startswith("cuda") else "pack it again for this device"
            raise UsageError(problem, hint, subject=self.spec.model)

    def inputs(self) -> tuple[TensorInfo, ...]:
        return self.infos

    def feed(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.note_shapes(arrays)
        if self.lite_options.get("const_shape"):
            self.check_shapes()
        for name, array in arrays.items():
            tensor = self.network.get_io_tensor(name)
            # From a NumPy array lite would look up the type in a table without float16.
            layout = self.lite.LiteLayout(array.shape, array.dtype.type)
            data = np.ascontiguousarray(array)
            with self.recorder.copy("LiteTensor.set_data_by_copy", array.nbytes, name):
                tensor.set_data_by_copy(data.ctypes.data_as(ctypes.c_void_p), data.nbytes, layout)
        api, handle = self.network._api, self.network._network
        # These functions return their status; a check in Python would be part of the timed region.
        self.start = partial(api["LITE_forward"], handle)
        self.wait = partial(api["LITE_wait"], handle)
        if self.profile_clock is not None:
            self.wait = self.profile_clock.around(self.wait)
        self.fire_hooks("before_run")

    def check_shapes(self) -> None:
        """Check that a network with constant shapes is fed with the shapes of its model file.

        Raises:
            UsageError: a fed shape differs from the shape in the file. Without this check, the
                engine would crash, or print a misleading message.
        """
        key = next(key for key in ("const_shape", "record_comp_seq2") if key in self.spec.settings)
        for info, shape in resized_inputs(self.infos, self.fed_shapes):
            own, fed = format_shape(info.shape), format_shape(shape)
            fixed = f"{flag_of(key)} fixes the shape of input {info.name} to {own}"
            problem = f"{fixed}, the shape in the model file, but {fed} is fed"
            raise UsageError(problem, "feed data of the model file's shape, or leave the flag out")

    def bind_threads(self, cores: Sequence[int]) -> None:
        """Bind each thread of the loaded network to a core.

        Raises:
            UsageError: this process may not use one of the cores.
        """
        usable = os.sched_getaffinity(0)
        for core in (core for core in cores if core not in usable):
            problem, hint = f"there is no core {core} to use", ", ".join(map(str, sorted(usable)))
            raise UsageError(problem, f"cores: {hint}", flag="--multi-thread-core-ids")

        def bind(thread: int) -> int:
            os.sched_setaffinity(0, {cores[thread % len(cores)]})
            return 0

        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
        self._bind = kind(bind)  # kept alive, as the engine calls it later
        self.call("LITE_set_runtime_thread_affinity", self.network._network, self._bind)

    def outputs(self) -> Mapping[str, np.ndarray[Any, Any]]:
        names = self.network.get_all_output_name() or ()
        return LateOutputs(names, lambda name: self.network.get_io_tensor(name).to_numpy())

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of lite's C interface that lite's Python package lacks, or calls wrongly.

        Raises:
            RuntimeError: the function failed.
        """
        if self.lite.base._lib.lib[name](*arguments):
            raise self.failure()

    def failure(self) -> Exception:
        return RuntimeError(self.lite.base._lib.lib.LITE_get_last_error().decode(errors="replace"))


def load_from_path(driver: LiteDriver) -> None:
    """Load the model from its path.

    `LiteNetwork.load` is not used, since it would keep two copies of the model in memory.
    """
    network = driver.network
    with driver.recorder.call("LITE_load_model_from_path"):
        network._api.LITE_load_model_from_path(network._network, driver.model_file.encode())


# `--share-param-mem`: the weights are in memory only once.
#
# The model file is mapped, and lite computes on the mapped file, so all processes that run it share
# its pages. The copies of `--thread N` share the weights of the first network. Some weights are
# still copied, once for all networks: weights that the engine transforms, and weights that are not
# aligned in a file of the older format.


def share_weights(driver: LiteDriver, _: bool) -> None:
    """Have the driver load the model without copying its weights."""
    driver.load_file = load_shared


def load_shared(driver: LiteDriver) -> None:
    """Load the first runner's network from the mapped file; later runners share its weights.

    Raises:
        UsageError: the model is encrypted, or its file contains settings or a cache. lite reads
            settings and a cache only if lite loads the whole file, and then lite copies the graph.
    """
    if driver.runner:
        driver.network.share_weights_with(driver.first.network)
        return
    model = driver.model_file
    packed = open_packed(model) if is_packed(model) else None
    if packed and (packed.info is not None or packed.cache is not None):
        problem = "MegEngine cannot share the weights of a model that contains settings or a cache"
        hint = "run the unpacked model, or leave the flag out"
        raise UsageError(problem, hint, flag="--share-param-mem", subject=model)
    # The pages are read-only: the engine would crash if it wrote to them.
    driver.mapping = graph = graph_in(model)
    address = np.frombuffer(graph, np.uint8).ctypes.data
    with driver.recorder.call("LITE_load_model_from_mem"):
        driver.network._api.LITE_load_model_from_mem(driver.network._network, address, len(graph))
