"""Loads the parts that a run's options name, such as folders, as agents and data."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rlbook.agent import Agent, Data, Parts, Sampler
from rlbook.errors import RequestError, request_errors
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.seeding import rng_for

if TYPE_CHECKING:
    import numpy as np

    from rlbook.interaction.environments import EnvRecipe
    from rlbook.networks.model_spec import ModelSpec
    from rlbook.runs.request import Request

AGENTS = ("expert", "teacher", "reference", "start", "reward_model")
"""The options that name a run."""


def parts_of(request: Request, load: Callable[[Path], Agent]) -> Parts:
    """The parts named by a request's options. `load` reads the agent of a run from its folder.

    Raises:
        RequestError: a name that is neither a run's folder nor an agent.
    """
    options = request.options
    expert, start = agent_of("expert", options.expert, load), agent_of("start", options.start, load)
    teacher, reference = (_agent_or_model(name, request, load) for name in ("teacher", "reference"))
    return Parts(
        expert,
        teacher,
        reference,
        start,
        model=options.model,
        device=device_of(options.device),
        replay_folder=replay_folder_of(options.replay_folder),
        sampler=_sampler_at(options.sampler),
    )


def _sampler_at(url: str | None) -> Sampler | None:
    """The client of a sampling server; no request is sent yet."""
    if url is None:
        return None
    from rlbook.llm.serving.sampler import RemoteSampler  # torch, which tables do without

    return RemoteSampler(url)


def _agent_or_model(name: str, request: Request, load: Callable[[Path], Agent]) -> Agent | None:
    """The agent that an option names: a run's, or a language model in a folder."""
    value = getattr(request.options, name)
    return (
        agent_of(name, value, load)
        if model_folder(value) is None
        else agent_of_model(name, str(value), request)
    )


def model_folder(value: object) -> str | None:
    """The Hugging Face folder that an option names; None if it names something else."""
    if isinstance(value, str | Path) and (Path(value) / "config.json").is_file():
        return str(value)
    return None


def agent_of_model(name: str, folder: str, request: Request) -> Agent:
    """A language model from a folder, as a frozen agent for the environment of a request; it
    samples at the temperature of the request.

    Raises:
        RequestError: as in `model_agent`.
    """
    temperature = getattr(request.config, "temperature", 1.0)
    return model_agent(name, folder, request.recipe, request.config, temperature=temperature)


def model_agent(
    name: str,
    folder: str,
    recipe: EnvRecipe,
    config: object = None,
    *,
    spec: ModelSpec | None = None,
    temperature: float = 1.0,
    exploration: np.random.Generator | None = None,
) -> Agent:
    """A language model from a folder, as a frozen agent for an environment.

    Args:
        name: the option that names the folder, for messages; "" where no option does.
        folder: a Hugging Face model's.
        recipe: a token environment.
        config: of the agent whose environment it is.
        spec: how the weights are read; its device is taken if it is there.
        temperature: divisor of the logits.
        exploration: what it samples with; None for an agent that only takes the most likely token.

    Raises:
        RequestError: that environment is not a token environment, or the folder holds no such model.
    """
    from rlbook.algorithms.policy.reference import FrozenPolicy  # torch, which tables do without
    from rlbook.networks.build import PolicySettings, build_policy

    where = f"{name}: " if name else ""
    if not recipe.reads_text():
        raise RequestError(
            f"{where}{folder} holds a language model, and {recipe.name} is not a token environment"
        )
    if recipe.id is None:
        raise RequestError(f"{where}a model's folder needs an environment given by its id")
    with request_errors(where):
        told = recipe.with_tokens_of({"model": folder})
        env = adapted_vector(FrozenPolicy, told, 1, config)
        settings = PolicySettings(temperature=temperature)
        policy = build_policy(env, rng_for(0, "initialisation"), settings, spec)
    if not policy.named:
        raise RequestError(f"{where}{folder} has no weights")
    device = device_of(None if spec is None else spec.device)
    return FrozenPolicy(env, policy.to(device), exploration)


def agent_of(name: str, value: object, load: Callable[[Path], Agent]) -> Agent | None:
    """An agent from an agent, a run, or a run's folder; None gives None."""
    if value is None or isinstance(value, Agent):
        return value
    if isinstance(value, str | Path):
        if model_folder(value) is not None and not (Path(value) / "config.yaml").exists():
            instead = (
                f"; its weights are where training begins with --model {value} (model={str(value)!r})"
                if name == "start"
                else ""
            )
            raise RequestError(f"{name}: {value} holds a Hugging Face model, not a run{instead}")
        try:
            return load(Path(value))
        except RequestError as error:
            raise RequestError(f"{name}: {error}") from None
    agent = getattr(value, "agent", None)
    if not isinstance(agent, Agent):
        raise RequestError(
            f"{name} must be a run, a run's folder or an agent, got {type(value).__name__}"
        )
    return agent


def device_of(name: str | None) -> str:
    """ "cpu", "cuda" or "cuda:N": the device for networks on this machine.

    A run that was trained on a GPU acts without one as well, and without that one; `check_device`
    is for training.
    """
    if name in (None, "cpu"):
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    # else cuBLAS sums in an order of its own
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return closest_device(str(name), torch.cuda.device_count())


def replay_folder_of(folder: str | Path | None) -> Path | None:
    """The folder of a replay buffer's frames; None, which means in memory, if there is none.

    A run that was trained with one acts without it; `check_replay_folder` is for training.
    """
    return None if folder is None or not Path(folder).is_dir() else Path(folder)


def check_replay_folder(folder: str | Path | None) -> None:
    """Raises RequestError if the requested folder for a replay buffer cannot be written to."""
    if folder is not None and not (Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise RequestError(
            f"replay_folder must be a folder that exists and can be written to, got '{folder}'"
        )


def closest_device(name: str, count: int) -> str:
    """The device of this name, or the closest one on a machine with `count` GPUs: "cpu" without
    one, and "cuda", torch's current one, for a number that does not exist."""
    if not count or name == "cpu":
        return "cpu"
    number = name.partition(":")[2]
    return name if number and int(number) < count else "cuda"


def check_device(name: str | None) -> None:
    """Raises RequestError if the requested training device is not available."""
    if name not in (None, "auto", device_of(name)):
        import torch

        here = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        allowed = ", ".join(["cpu", *(["cuda", *here] if here else []), "auto"])
        raise RequestError(f"device {name!r} is not available here; allowed: {allowed}")


def digests_of(request: Request, data: Data | None) -> dict[str, str]:
    """Option → sha256 of the content that it names: the rows of the data, those of the environment,
    each run's last checkpoint, a model's files."""
    found = {} if data is None else {"data": data.digest()}
    for name in AGENTS:
        folder = getattr(request.options, name)
        if isinstance(folder, str | Path):
            found[name] = (
                _digest_of_model(folder) if model_folder(folder) else _digest_of_run(Path(folder))
            )
    named = {
        "model": model_folder(request.recipe.kwargs.get("model")),
        "adapter": _adapter_folder(request),
    }
    found |= {
        name: _digest_of_model(folder) for name, folder in named.items() if folder is not None
    }
    if not {"data", "tokenizer"} & request.recipe.kwargs.keys():
        return found
    # an environment whose examples lie in a file, or whose tokens were learned
    rules = getattr(request.recipe.make().unwrapped, "rules", None)
    return found | getattr(rules, "digests", {})


def _adapter_folder(request: Request) -> str | None:
    """The adapter folder that a `ModelSpec` names."""
    adapter = getattr(request.options.model, "adapter", None)
    return (
        adapter
        if isinstance(adapter, str) and (Path(adapter) / "adapter_config.json").is_file()
        else None
    )


def _digest_of_model(folder: str | Path) -> str:
    from rlbook.llm.models.model_folder import folder_digest  # which tables do without

    return folder_digest(folder)


def _digest_of_run(folder: Path) -> str:
    from rlbook.runs.storage.checkpoints import load_checkpoint
    from rlbook.runs.storage.state_encoding import encode

    _, state = load_checkpoint(folder)
    skeleton, arrays = encode(state["agent"])
    digest = hashlib.sha256(repr(skeleton).encode())
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    return digest.hexdigest()


def check_digests(stored: dict[str, str], current: dict[str, str]) -> None:
    """Raises RequestError if the inputs of a run have changed since it started."""
    for name, digest in stored.items():
        if current.get(name, digest) != digest:
            raise RequestError(
                f"{name} has changed since the run was started: its sha256 was {digest[:12]}…, now"
                f" {current[name][:12]}…"
            )


def check_saveable(agent: Agent) -> None:
    """Raises RequestError if a user-defined agent cannot be saved in a folder."""
    missing = [
        name
        for name in ("state_dict", "load_state_dict")
        if getattr(type(agent), name) is getattr(Agent, name)
    ]
    if missing:
        raise RequestError(
            f"{type(agent).__name__} cannot be saved in a folder: it has no {missing[0]}; such as"
            " def state_dict(self): return {'values': self.values} and"
            " def load_state_dict(self, state): self.values = state['values'], with all that it"
            " learns and its generators"
        )
