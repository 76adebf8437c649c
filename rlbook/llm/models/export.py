"""Exports a trained language model to files for transformers and peft: a policy, only its adapter,
or a reward model."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlbook.agent import Agent
from rlbook.errors import RequestError
from rlbook.llm.environments.token_env import TokenEnv, TokenVectorEnv
from rlbook.llm.environments.token_rows import NEW
from rlbook.llm.models.adapters import is_peft, save_adapter, trains_adapters_alone
from rlbook.llm.models.causal_lm import LanguageModel
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.lora import lora_layers, merge_lora, remove_lora
from rlbook.llm.models.model_folder import WEIGHTS, has_weights
from rlbook.llm.models.reward_head import CompletionReward
from rlbook.llm.models.sources import hide_progress_bars
from rlbook.llm.tokenizers.tokenizer import fast_tokenizer
from rlbook.networks.policy import module_device


def export_language_model(
    network: nn.Module,
    env: Any,
    folder: Path,
    home: Path,
    *,
    merge: bool,
    shard_size: int | None = None,
) -> dict[str, Any]:
    """Writes the model with its tokenizer, chat template and generation config.

    Args:
        network: a `LanguageModelPolicy` or a `CompletionReward`; changed, and of no use afterwards.
        env: the token environment that it was trained in.
        folder: an empty one.
        home: what that will be called.
        merge: add the adapter to the model for good.
        shard_size: bytes of the largest file of weights; None is transformers' limit.

    Returns:
        What was written: `kind`, `parameters`, `shards`, and the folder of an adapter's `base`.

    Raises:
        RequestError: there is no such form of it.
    """
    tokenizer, named = _tokenizer(env)
    model: Any = network.model if isinstance(network, LanguageModelPolicy) else network.score.trunk  # type: ignore[union-attr]
    adapted = is_peft(model) or any(lora_layers(model))
    if merge and not adapted:
        raise RequestError(
            "merge adds an adapter to the model, and this run trained none; leave it out"
        )
    if isinstance(network, CompletionReward):
        if adapted and not merge:
            raise RequestError(
                "a reward model is exported whole: give --merge (merge=True), which adds its adapter to the"
                " model"
            )
        written: Any = _classifier(network, tokenizer)
        facts = {"kind": "reward model"}
    elif adapted and not merge:
        unchanged = named is not None and trains_adapters_alone(model)
        base = str(Path(str(named)).resolve()) if unchanged else str((home / "base").absolute())
        facts = {
            "kind": "adapter",
            "base": base,
            "parameters": _count(p for p in model.parameters() if p.requires_grad),
        }
        below = _write_adapter(model, folder, base)
        if not unchanged:
            _write(below, tokenizer, env, folder / "base", shard_size)
        tokenizer.save_pretrained(folder)
        return facts
    else:
        written = merge_peft(model) if is_peft(model) else model
        merge_lora(written)
        facts = {"kind": "model"}
    _write(written, tokenizer, env, folder, shard_size)
    shards = len(list(folder.glob("*.safetensors")))
    return facts | {"parameters": _count(written.parameters()), "shards": shards}


SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB)", re.IGNORECASE)
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def check_size(text: str) -> int:
    """The bytes of a size such as "500MB".

    Raises:
        RequestError: it is none.
    """
    found = SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(float(found[1]) * UNITS[found[2].upper()])
    if size < 1:
        raise RequestError(
            f"shard_size must be a number of bytes with its unit, such as 500MB or 2GB, got {text!r}"
        )
    return size


def export_base(
    network: LanguageModelPolicy | CompletionReward, env: TokenEnv | TokenVectorEnv, folder: Path
) -> None:
    """Writes the model of a network that is about to be trained, without a new adapter; a reward
    network as a classifier.

    Args:
        network: a `LanguageModelPolicy` or a `CompletionReward`; changed, and of no use afterwards.
        env: the token environment that it is to be trained in.
        folder: the one to write.
    """
    tokenizer = chat_tokenizer(env)
    if isinstance(network, CompletionReward):
        remove_lora(network)
        _write(_classifier(network, tokenizer), tokenizer, env, folder)
        return
    model: Any = network.model
    if is_peft(model):
        model = model.unload()
    remove_lora(model)
    _write(model, tokenizer, env, folder)


def chat_tokenizer(env: TokenEnv | TokenVectorEnv) -> Any:
    """The environment's tokenizer with the chat template that its prompts are made with. For plain
    prompts, the template concatenates messages."""
    tokenizer, codec = _tokenizer(env)[0], env.codec
    plain = getattr(codec, "plain", False) or codec.template_text is None
    begins = codec.encode_prompts([""])[0] == [codec.bos]
    if plain:
        head = "{{ bos_token }}" if begins else ""
        tokenizer.chat_template = (
            head + "{% for message in messages %}{{ message['content'] }}"
            "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
        )
    else:
        tokenizer.chat_template = codec.template_text
    tokenizer.backend_tokenizer.no_truncation()  # which a tokenizer.json may ask for
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def language_model_of(agent: Agent) -> LanguageModelPolicy | CompletionReward | None:
    """The network that an agent trains: its policy, or the network of a reward model; None if it is
    not a language model."""
    network = getattr(agent, "policy", getattr(agent, "network", None))
    return network if isinstance(network, LanguageModelPolicy | CompletionReward) else None


def merged_model(model: LanguageModel) -> Any:
    """The model with its adapter merged in; a copy if it has an adapter, otherwise the model
    itself."""
    if is_peft(model):
        return merge_peft(copy.deepcopy(model))
    if not any(lora_layers(model)):
        return model
    merged = copy.deepcopy(model)
    merge_lora(merged)
    return merged


def merge_peft(model: Any) -> Any:
    """The model with peft's adapter merged in, in place. An output layer with an adapter gets
    weights of its own: peft adds to those that it may share with the embedding."""
    layer = getattr(model.get_output_embeddings(), "base_layer", None)
    if layer is not None and layer.weight is model.get_input_embeddings().weight:
        layer.weight = nn.Parameter(layer.weight.detach().clone(), requires_grad=False)
        model.get_base_model().config.tie_word_embeddings = False
    return model.merge_and_unload()


def write_weights(model: LanguageModel, folder: str) -> None:
    """Writes a model's config and weights, without progress bars and without its tokenizer."""
    from safetensors.torch import save_file

    state = model.state_dict()
    tied = {  # but for an output layer that has got weights of its own
        name
        for name, source in (getattr(model, "all_tied_weights_keys", None) or {}).items()
        if name in state and state[name].data_ptr() == state[source].data_ptr()
    }
    weights = {
        name: tensor.detach().contiguous() for name, tensor in state.items() if name not in tied
    }
    model.config.save_pretrained(folder)
    save_file(weights, Path(folder) / WEIGHTS, metadata={"format": "pt"})


def _count(parameters: Any) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _tokenizer(env: Any) -> tuple[Any, str | None]:
    """The environment's tokenizer, and the folder of its model if that has weights."""
    model = None if env.model in (None, NEW) else str(env.model)
    if model is None:
        return fast_tokenizer(env.codec.backend), None
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True, trust_remote_code=False)
    return tokenizer, model if has_weights(model) else None


def _write_adapter(model: Any, folder: Path, base: str) -> Any:
    """Writes the adapter's two files in peft's format; returns the model without the adapter."""
    if is_peft(model):
        model.peft_config["default"].base_model_name_or_path = base
        model.save_pretrained(str(folder), save_embedding_layers=False)
        return model.unload()
    save_adapter(model, folder, base)
    remove_lora(model)
    return model


def _write(
    model: Any, tokenizer: Any, env: Any, folder: Path, shard_size: int | None = None
) -> None:
    """Writes a Hugging Face folder. A model without a generation config gets the one used in
    evaluation: greedy decoding."""
    settings = getattr(model, "generation_config", None)
    if settings is not None and env.model in (None, NEW):
        settings.max_new_tokens, settings.do_sample = env.rules.max_new_tokens, False
    limit = {} if shard_size is None else {"max_shard_size": shard_size}
    with hide_progress_bars():
        model.save_pretrained(str(folder), **limit)
    tokenizer.save_pretrained(str(folder))


def _classifier(network: CompletionReward, tokenizer: Any) -> Any:
    """A transformers sequence classifier with one label, which reads the last non-padding token."""
    from transformers import AutoModelForSequenceClassification

    trunk: Any = network.score.trunk
    merge_lora(trunk)
    config = copy.deepcopy(trunk.config)
    config.num_labels = 1
    config.pad_token_id = _padding(tokenizer)
    try:
        with torch.random.fork_rng(devices=[]):
            made: Any = AutoModelForSequenceClassification.from_config(
                config, dtype=next(trunk.parameters()).dtype
            )
        made.base_model.load_state_dict(trunk.state_dict())
        with torch.no_grad():
            made.score.weight.copy_(network.score.weight)
    except (ValueError, RuntimeError, AttributeError, KeyError) as error:
        what = (
            f"transformers has no sequence classifier of {type(trunk).__name__} with one label and"
            " no bias"
        )
        raise RequestError(f"{what} ({str(error)[:150]})") from None
    return made.to(module_device(trunk)).eval()


def _padding(tokenizer: Any) -> int | None:
    """A padding token that does not end a text: the tokenizer's, or else the unknown token; None if
    there is neither."""
    ends = (tokenizer.eos_token_id, tokenizer.bos_token_id)
    for name in ("pad_token", "unk_token"):
        found = getattr(tokenizer, f"{name}_id")
        if found is not None and found not in ends:
            tokenizer.pad_token = getattr(tokenizer, name)
            return found
    return None
