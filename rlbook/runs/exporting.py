"""`rlbook export`: writes the language model that a run has trained as a Hugging Face folder."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from rlbook.errors import RequestError, system_reason
from rlbook.interaction.environments import EnvRecipe
from rlbook.runs.run import load_policy


def export(
    folder: str | Path,
    out: str | Path,
    *,
    merge: bool = False,
    shard_size: str | None = None,
    checkpoint: int | str | None = None,
    allow_import: bool = False,
) -> dict[str, Any]:
    """Writes a run's model, its tokenizer with the chat template, and a generation config;
    implements `rlbook export`.

    A run that trained an adapter gives the adapter alone, in peft's format; a reward model on texts
    a sequence classifier of one label.

    Args:
        folder: a run's.
        out: a folder that is not there yet.
        merge: add the adapter to the model, and write that whole.
        shard_size: the largest file of weights, such as "500MB"; where there are more, they become
            several files with an index, model.safetensors.index.json. None is transformers' own
            limit.
        checkpoint, allow_import: as in `rlbook.load`.

    Returns:
        Facts: `kind` ("model", "adapter" or "reward model"), the number of parameters written and
            of the files that hold them, the folder.

    Raises:
        RequestError: one sentence; nothing was written.
    """
    out = Path(out)
    if os.path.lexists(out):
        raise RequestError(f"{out} exists already; name a new folder")
    from rlbook.llm.models.export import check_size, export_language_model, language_model_of
    from rlbook.networks.reward_network import Ensemble

    limit = None if shard_size is None else check_size(shard_size)
    run = load_policy(folder, checkpoint=checkpoint, allow_import=allow_import)
    network, env = language_model_of(run.agent), token_env_of(run.request.recipe)
    if isinstance(getattr(run.agent, "network", None), Ensemble):
        raise RequestError(
            f"{folder} holds several reward models, but a sequence classifier is a single one;"
            " train with"
            " --members 1 (members=1) to export it"
        )
    if network is None or env is None:
        raise RequestError(
            f"{folder} holds {run.request.algorithm} on {run.request.recipe.name}, but only a"
            " language model trained on a token environment can be exported"
        )
    part = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        part.mkdir(parents=True)
        facts = export_language_model(network, env, part, out, merge=merge, shard_size=limit)
        part.rename(out)
    except OSError as error:
        raise RequestError(f"{out} cannot be written ({system_reason(error)})") from None
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(part)
    return {
        "run": str(folder),
        "algorithm": run.request.algorithm,
        "env": run.request.recipe.name,
        **facts,
        "folder": str(out),
    }


def token_env_of(recipe: EnvRecipe) -> Any:
    """The environment, if it is a token environment."""
    env: Any = recipe.make().unwrapped
    return env if getattr(env, "policy_kind", None) == "language_model" else None
