"""The five seams at which reinforcement learning of language models breaks: each has a test that
fails where it is open.

One: acting and learning see the same log-probabilities. Two: padding and masks change nothing.
Three: a loss does not depend on how the batch was cut. Four: the tokens that were drawn are the
tokens that are trained on. Five: the ending is learned.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, largest, widths
from torch import Tensor

from rlbook.agent import Step
from rlbook.data.rollout import Batch, Rollout
from rlbook.fast.flat_adam import FlatAdam
from rlbook.fast_forms import use_plain_forms
from rlbook.functional.advantages import group_advantage
from rlbook.functional.averages import Weighting, constant, per_sequence, per_token
from rlbook.functional.policy_losses import clipped_surrogate_loss
from rlbook.llm.environments.token_env import Addition, AdditionVector, TokenVectorEnv
from rlbook.llm.generation.generate import generate
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.sources import folder_model, small_llama
from rlbook.llm.tokenizers.tokenizer import IDS
from rlbook.networks.build import PolicySettings, build_policy
from rlbook.networks.optimizer import Group

EOS, PAD = IDS["<eos>"], IDS["<pad>"]


def built(env: Any, **settings: Any) -> Any:
    return build_policy(env, np.random.default_rng(0), PolicySettings(**settings))


def collect(
    policy: LanguageModelPolicy, env: TokenVectorEnv, seed: Any, rng: np.random.Generator
) -> Rollout:
    """One whole episode in each stream, stepped token by token."""
    obs, _ = env.reset(seed=seed)
    state, rollout = policy.initial_state(), Rollout(policy.stores)
    live = np.ones(env.num_envs, dtype=bool)
    while live.any():
        action, log_prob = policy.act(obs, rng, state)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rollout.add(Step(obs, action, reward, next_obs, terminated, truncated, live), log_prob)
        obs, live = next_obs, ~(terminated | truncated)
    return rollout


def ragged_batch(rows: int = 8, time: int = 6) -> Batch:
    """Prompts of 1 to 9 tokens and completions of 1 to `time`, two of them after one prompt."""
    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(rng.integers(0, len(IDS), (rows, 9)))
    length = torch.from_numpy(rng.integers(1, 10, rows))
    tokens[1], length[1] = tokens[0], length[0]
    action = torch.from_numpy(rng.integers(0, len(IDS), (rows, time)))
    ends = torch.from_numpy(rng.integers(1, time + 1, rows))
    return Batch(
        {"tokens": tokens, "length": length},
        action,
        torch.zeros(rows, time),
        torch.arange(time) < ends[:, None],
    )


def alone(model: Any, batch: Batch, row: int) -> Tensor:
    """log π of one row's completion, by transformers' own forward pass on that text and nothing
    else: [its tokens]."""
    prompt = batch.obs["tokens"][row, : batch.obs["length"][row]]
    completion = batch.action[row][batch.mask[row]]
    logits = model(input_ids=torch.cat([prompt, completion])[None]).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(1, completion[:, None])[:, 0]


# ---- one: acting and learning agree


def test_stepped_rollout_equals_fused_generation_with_the_same_noise(
    policy: LanguageModelPolicy, folder: str | None
) -> None:
    env = AdditionVector(12, max_new_tokens=9, model=folder)
    rollout = collect(policy, env, [3] * 4 + list(range(8)), np.random.default_rng(5))
    batch = policy.batch(rollout)
    prompts = rollout.steps[0].obs
    fused = generate(
        policy,
        prompts["tokens"],
        prompts["length"],
        eos=EOS,
        max_new_tokens=9,
        rng=np.random.default_rng(5),
    )
    mask = batch.mask.numpy()
    assert (fused.mask == mask).all()
    assert mask.sum(1).min() < mask.sum(1).max()  # some ended earlier than others
    assert (fused.tokens[mask] == batch.action.numpy()[mask]).all()
    assert_near(fused.log_prob[mask], batch.log_prob[batch.mask], terms=widths(policy.model))


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_recomputed_log_probs_equal_the_sampled_ones(
    model: Any, temperature: float, folder: str | None
) -> None:
    """So PPO's ratio is 1 before the first update; without the temperature in one of the two it is
    2."""
    policy = LanguageModelPolicy(model, temperature=temperature)
    batch = policy.batch(
        collect(
            policy, AdditionVector(16, max_new_tokens=8, model=folder), 0, np.random.default_rng(0)
        )
    )
    log_prob, _, _ = policy.evaluate(batch)
    terms, size = widths(model), float(batch.log_prob.abs().max()) / min(1.0, temperature)
    assert_near(log_prob[batch.mask], batch.log_prob[batch.mask], terms=terms, size=size)
    reference, _, _ = policy.frozen_copy().evaluate(batch)
    assert_near(reference, log_prob, terms=terms, size=size)  # MKL: by alignment


def test_log_probs_of_a_bigram_model_are_its_table() -> None:
    """A Llama without attention and MLP, its embeddings unit vectors: the norm makes them e_i √d,
    so its logits are a table's row i."""
    size = len(IDS)
    model = small_llama(torch.Generator().manual_seed(0), hidden_size=32, heads=2)
    table = torch.randn(size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size, 32))
        model.lm_head.weight.zero_()
        model.lm_head.weight[:, :size] = table.T / 32**0.5
    batch = ragged_batch()
    log_prob, entropy, _ = LanguageModelPolicy(model).evaluate(batch)
    assert entropy is not None
    last = batch.obs["tokens"].gather(1, batch.obs["length"][:, None] - 1)
    before = torch.cat([last, batch.action[:, :-1]], dim=1)  # the token before each one drawn
    expected = table.log_softmax(-1)[before]
    rounded: Any = {"terms": widths(model), "size": largest([expected])}
    assert_near(
        log_prob[batch.mask],
        expected.gather(-1, batch.action[..., None])[..., 0][batch.mask],
        **rounded,
    )
    assert_near(entropy[batch.mask], -(expected.exp() * expected).sum(-1)[batch.mask], **rounded)


def test_our_llama_is_the_llama_of_transformers(lively_llama: Callable[..., Any]) -> None:
    """Logits and gradients of both, on one batch: the general path computes them with transformers
    alone."""
    policy = LanguageModelPolicy(lively_llama(kv_heads=2, layers=3))
    batch, parameters = ragged_batch(), list(policy.model.parameters())
    results = []
    for fast in (True, False):
        with use_plain_forms(not fast):
            logits = policy.logits(batch)
        loss = (logits.log_softmax(-1)[..., 0] * batch.mask).sum()
        results.append((logits[batch.mask].detach(), *torch.autograd.grad(loss, parameters)))
    (logits, *gradients), (expected, *expected_gradients) = results
    assert_near(logits, expected, terms=widths(policy.model))
    terms = 2 * widths(policy.model) + batch.action.numel()  # there and back
    assert_near(gradients, expected_gradients, terms=terms, size=largest(expected_gradients))


def test_our_decoder_is_the_llama_of_transformers(model: Any) -> None:
    """Every logit along a stepped rollout of ragged prompts, against a fresh pass over each text so
    far."""
    policy, batch = LanguageModelPolicy(model), ragged_batch()
    tokens = torch.cat([batch.obs["tokens"], torch.zeros_like(batch.action)], dim=1).numpy()
    length, state = batch.obs["length"].numpy().copy(), policy.initial_state()
    for t in range(batch.action.shape[1]):
        logits = state.logits(tokens, length)
        for row in range(len(tokens)):
            fresh = model(input_ids=torch.from_numpy(tokens[row, : length[row]])[None]).logits[
                0, -1
            ]
            assert_near(logits[row], fresh, terms=widths(model))
        tokens = tokens.copy()
        tokens[np.arange(len(tokens)), length] = batch.action[:, t].numpy()
        length = length + 1


# ---- two: padding and masks


def test_batched_equals_unbatched_with_ragged_prompts(model: Any) -> None:
    policy, batch = LanguageModelPolicy(model, critic=True), ragged_batch()
    assert policy.critic is not None
    torch.nn.init.normal_(policy.critic.weight, std=0.1, generator=torch.Generator().manual_seed(2))
    log_prob, entropy, value = policy.evaluate(batch)
    assert value is not None
    assert entropy is not None
    rounded: Any = {"terms": widths(policy), "size": largest([log_prob])}
    for row in range(len(batch)):
        written = batch.mask[row]
        assert_near(log_prob[row][written], alone(model, batch, row), **rounded)
        _, single_entropy, single_value = policy.evaluate(batch[row : row + 1])
        assert single_entropy is not None and single_value is not None
        assert_near(entropy[row][written], single_entropy[0][written], **rounded)
        assert_near(value[row][written], single_value[0][written], **rounded)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("extra", range(1, 8))
def test_padding_by_one_to_seven_tokens_changes_nothing(
    policy: LanguageModelPolicy, extra: int
) -> None:
    """On either side of a row: more PAD behind the prompt in the observation, more masked columns
    behind the completion."""
    batch = ragged_batch()
    pad = torch.full((len(batch), extra), PAD)
    wider = Batch(
        {"tokens": torch.cat([batch.obs["tokens"], pad], 1), "length": batch.obs["length"]},
        torch.cat([batch.action, pad], 1),
        torch.zeros(len(batch), batch.action.shape[1] + extra),
        torch.cat([batch.mask, pad.bool() & False], 1),
    )
    losses = []
    for one in (batch, wider):
        log_prob, _, _ = policy.evaluate(one)
        old = log_prob.detach()
        losses.append(
            clipped_surrogate_loss(log_prob, old, torch.full_like(old, 0.7), mask=one.mask)
            + log_prob[one.mask].mean()
        )
    gradients = [torch.autograd.grad(loss, list(policy.model.parameters())) for loss in losses]
    terms = 2 * widths(policy.model) + batch.action.numel()  # there and back
    assert_near(*losses, terms=terms, size=largest([log_prob]))
    assert_near(*gradients, terms=terms, size=largest(gradients[0]))


def test_a_longer_prompt_beside_it_changes_no_row(policy: LanguageModelPolicy) -> None:
    """A long neighbour pads all other prompts on the left; positions and attention must not
    notice."""
    batch = ragged_batch()
    long = Batch(
        {"tokens": torch.arange(24).repeat(1, 1), "length": torch.tensor([24])},
        batch.action[:1],
        batch.log_prob[:1],
        batch.mask[:1],
    )
    tokens = torch.cat(
        [
            torch.cat([batch.obs["tokens"], torch.zeros(len(batch), 15, dtype=torch.int64)], 1),
            long.obs["tokens"],
        ]
    )
    length = torch.cat([batch.obs["length"], long.obs["length"]])
    rest = (
        torch.cat([getattr(batch, name), getattr(long, name)])
        for name in ("action", "log_prob", "mask")
    )
    both = Batch({"tokens": tokens, "length": length}, *rest)
    log_prob, beside = policy.evaluate(batch)[0], policy.evaluate(both)[0][:-1]
    assert_near(log_prob[batch.mask], beside[batch.mask], terms=widths(policy))
    greedy = [policy.act({k: v.numpy() for k, v in one.obs.items()}, None) for one in (batch, both)]
    assert (greedy[0][0] == greedy[1][0][:-1]).all()
    assert_near(greedy[0][1], greedy[1][1][:-1], terms=widths(policy), size=largest([log_prob]))


# ---- three: how the batch was cut


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    "average",
    [per_token, per_sequence, constant(6.0)],
    ids=["per token", "per sequence", "constant"],
)
@pytest.mark.parametrize("size", [1, 3, 5])
def test_the_gradient_does_not_depend_on_the_micro_batch_split(
    policy: LanguageModelPolicy, average: Weighting, size: int
) -> None:
    batch = ragged_batch()
    advantage = torch.linspace(-1.0, 1.0, len(batch))[:, None].expand(batch.action.shape)
    old = policy.evaluate(batch)[0].detach() + 0.1 * torch.sin(
        torch.arange(batch.action.numel())
    ).view(batch.action.shape)
    weights = average(batch.mask)

    def gradient(rows: int) -> Tensor:
        total = 0
        for cut in range(0, len(batch), rows):
            part = slice(cut, cut + rows)
            log_prob = policy.evaluate(batch[part])[0]
            loss = clipped_surrogate_loss(
                log_prob,
                old[part],
                advantage[part],
                mask=batch.mask[part],
                average=weights[part],
            )
            total = total + torch.cat(
                [g.reshape(-1) for g in torch.autograd.grad(loss, list(policy.model.parameters()))]
            )
        assert isinstance(total, Tensor)
        return total

    whole, cut = gradient(len(batch)), gradient(size)
    assert whole.norm() > 1e-3
    assert_near(cut, whole, terms=2 * widths(policy.model) + batch.action.numel())


# ---- four: ids are what counts


def test_what_is_trained_on_are_the_ids_that_were_drawn(gpt2_folder: Path) -> None:
    """The tokenizer would read "46" as one token; two were drawn, so two are observed, trained on
    and judged."""
    env = AdditionVector(2, model=str(gpt2_folder))
    merged = env.rules.codec.encode_answer("46")
    assert merged == [len(IDS) + 1, EOS]
    first, _ = env.reset(options={"prompt_id": env.rules.texts.index("11+35=")})
    rollout = Rollout("first")
    live, obs = np.ones(2, dtype=bool), first
    for action in ([IDS["4"], merged[0]], [IDS["6"], EOS], [EOS, PAD]):
        next_obs, reward, terminated, truncated, _ = env.step(np.array(action))
        rollout.add(
            Step(obs, np.array(action), reward, next_obs, terminated, truncated, live),
            np.zeros(2, dtype=np.float32),
        )
        obs, live = next_obs, ~terminated
    assert rollout.tensor("reward").sum(0).tolist() == [1.0, 1.0]  # both spellings say 46
    policy = LanguageModelPolicy(folder_model(gpt2_folder))
    log_prob, _, _ = policy.evaluate(policy.batch(rollout))
    ids = [[*first["tokens"][0, : first["length"][0]].tolist(), IDS["4"], IDS["6"], EOS]]
    expected = (
        policy.model(input_ids=torch.tensor(ids))
        .logits[0, -4:-1]
        .log_softmax(-1)[range(3), ids[0][-3:]]
    )
    assert_near(log_prob[0], expected, terms=widths(policy))


def test_a_right_answer_with_padding_in_it_is_wrong() -> None:
    """ "46" with a PAD between reads as 46 where PADs are dropped; the reward is judged on what was
    written."""
    env = Addition()
    index = env.rules.texts.index("12+35=")
    rewards = []
    for tokens in (
        (IDS["4"], IDS["7"], EOS),
        (IDS["4"], PAD, IDS["7"], EOS),
        (IDS["4"], IDS["7"], PAD, EOS),
    ):
        env.reset(options={"prompt_id": index})
        rewards.append([env.step(token)[1] for token in tokens][-1])
    assert rewards == [1.0, 0.0, 0.0]


# ---- five: EOS is learned


@pytest.mark.thorough
def test_eos_is_learnt(warm: LanguageModelPolicy) -> None:
    """With the weights that ship, completions end; where they have unlearned it, the reward of
    right endings teaches it again."""
    policy, rng = copy.deepcopy(warm), np.random.default_rng(0)
    env = AdditionVector(256)
    seeds = [i // 8 for i in range(256)]  # groups of 8 completions of one prompt
    batch = policy.batch(collect(policy, env, seeds, rng))
    assert env.rows.terminated.mean() > 0.95
    ends = (batch.action == EOS) & batch.mask
    # the mask covers EOS, and nothing behind it
    assert (ends.sum(1) == torch.from_numpy(env.rows.terminated)).all()
    with torch.no_grad():
        policy.model.lm_head.weight[EOS] *= 0.1
    optimizer, ended = FlatAdam([Group([policy.model])], 3e-4), []
    for _ in range(24):
        rollout = collect(policy, env, seeds, rng)
        ended.append(env.rows.terminated.mean())
        batch, reward = (
            policy.batch(rollout),
            rollout.tensor("reward").sum(0).float(),
        )
        advantage = group_advantage(reward, 8)[:, None].expand(batch.action.shape)
        optimizer.step(
            clipped_surrogate_loss(
                policy.evaluate(batch)[0], batch.log_prob, advantage, mask=batch.mask
            )
        )
    assert ended[0] < 0.8 and ended[-1] > ended[0] + 0.1


def test_padding_is_never_learnt(policy: LanguageModelPolicy) -> None:
    """What stands behind an ending has no gradient, whatever it is: the same gradient with PAD,
    EOS, a token or no token at all there."""
    batch, gradients = ragged_batch(), []
    for filler in (PAD, EOS, IDS["7"], -1, 10**9):
        filled = Batch(
            batch.obs, batch.action.where(batch.mask, filler), batch.log_prob, batch.mask
        )
        log_prob, _, _ = policy.evaluate(filled)
        loss = clipped_surrogate_loss(
            log_prob, log_prob.detach(), torch.ones_like(log_prob), mask=batch.mask
        )
        gradients.append(
            torch.cat(
                [g.reshape(-1) for g in torch.autograd.grad(loss, list(policy.model.parameters()))]
            )
        )
    assert all(torch.equal(gradients[0], other) for other in gradients[1:])


# ---- the cache


def test_acting_does_not_depend_on_the_cache(
    policy: LanguageModelPolicy, folder: str | None
) -> None:
    """Twice the same text, finished rows that wait, rows that begin anew, new weights: always what
    a fresh start gives."""
    env, state = AdditionVector(6, max_new_tokens=6, model=folder), policy.initial_state()
    obs, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)

    def check() -> None:
        kept, fresh = policy.act(obs, None, state), policy.act(obs, None)
        assert (kept[0] == fresh[0]).all()
        # log-probabilities of the least likely tokens
        assert_near(kept[1], fresh[1], terms=widths(policy), size=8.0)

    for turn in range(14):
        check()
        if turn == 5:
            with torch.no_grad():
                for parameter in policy.model.parameters():
                    parameter.add_(
                        0.02 * torch.sin(torch.arange(parameter.numel())).view(parameter.shape)
                    )
            check()
        action = rng.integers(0, len(IDS), 6)
        if turn % 4 == 1:
            action[turn % 6] = EOS
        obs, *_ = env.step(action)
        if turn in (7, 10):
            obs, _ = env.reset(options={"reset_mask": np.arange(6) % 2 == turn % 2})


def test_any_sequence_of_texts_gets_its_own_logits(model: Any) -> None:
    """Rows that wait a turn and then grow, rows whose text is replaced by another of the right
    length, rows that do both."""
    policy, rng = LanguageModelPolicy(model), np.random.default_rng(0)
    state = policy.initial_state()
    tokens, length = rng.integers(0, len(IDS), (4, 40)), np.array([3, 5, 5, 9])
    for turn in range(25):
        assert_near(
            state.logits(tokens, length),
            policy.initial_state().logits(tokens, length),
            terms=widths(model),
        )
        tokens = tokens.copy()
        if turn % 6 == 5:
            tokens[rng.integers(4), 1] = (tokens[0, 1] + 1 + rng.integers(len(IDS) - 1)) % len(IDS)
        length = length + (rng.random(4) < 0.6)


def test_a_saved_cache_goes_on_bit_for_bit(policy: LanguageModelPolicy, folder: str | None) -> None:
    """Stopped after two tokens and taken up by another policy with the same weights: the same
    logits to the last bit."""
    env = AdditionVector(8, max_new_tokens=6, model=folder)
    obs, _ = env.reset(seed=[1, 1, 2, 2, 3, 4, 5, 6])
    state, rng = policy.initial_state(), np.random.default_rng(0)
    assert state.state_dict() == {}
    for turn in range(6):
        if turn == 2:
            other = copy.deepcopy(policy)
            resumed = other.initial_state()
            resumed.load_state_dict(state.state_dict())
        kept = state.logits(obs["tokens"], obs["length"])
        if turn >= 2:
            assert torch.equal(kept, resumed.logits(obs["tokens"], obs["length"]))
        obs, *_ = env.step(policy.draw(kept, rng)[0])


# ---- the critic


def test_values_are_those_of_the_texts_one_by_one(model: Any, folder: str | None) -> None:
    policy = LanguageModelPolicy(model, critic=True)
    assert policy.critic is not None
    env = AdditionVector(5, max_new_tokens=4, model=folder)
    rollout = collect(policy, env, 0, np.random.default_rng(3))
    value, next_value = policy.values(rollout)
    assert not value.any() and not next_value.any()  # a new critic says 0 everywhere
    torch.nn.init.normal_(policy.critic.weight, std=0.1, generator=torch.Generator().manual_seed(2))
    value, next_value = policy.values(rollout)
    # of h ≈ ±1
    size = float(policy.critic.weight.detach().norm() * policy.critic.weight.numel() ** 0.5)
    rounded: Any = {"terms": widths(policy), "size": size}
    batch = policy.batch(rollout)
    tokens, length = batch.obs["tokens"].clone(), batch.obs["length"].clone()
    for t in range(len(rollout.steps)):
        valid = batch.mask[:, t]
        assert_near(
            policy.value({"tokens": tokens, "length": length})[valid], value[t][valid], **rounded
        )
        tokens[torch.arange(5), length] = batch.action[:, t]
        length = length + 1
        assert_near(
            policy.value({"tokens": tokens, "length": length})[valid],
            next_value[t][valid],
            **rounded,
        )


# ---- a folder of one's own


def test_any_local_folder_is_a_policy(gpt2_folder: Path) -> None:
    env = AdditionVector(16, model=str(gpt2_folder))
    policy = built(env, critic=True)
    assert policy.model.config.model_type == "gpt2"
    batch = policy.batch(collect(policy, env, 0, np.random.default_rng(0)))
    assert batch.obs["length"].min() < batch.obs["length"].max()  # "12" is one token, "13" two
    assert_near(
        policy.evaluate(batch)[0][batch.mask], batch.log_prob[batch.mask], terms=widths(policy)
    )


def test_a_tokenizer_whose_pad_is_eos_gets_a_pad_of_its_own(
    gpt2_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(gpt2_folder, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "pad_token": "<eos>"}))
    env = AdditionVector(2, model=str(folder))
    codec = env.rules.codec
    assert (codec.eos, codec.vocabulary_size) == (EOS, len(IDS) + 3)
    assert codec.pad == codec.vocabulary_size  # the first id the model does not know
    obs, _ = env.reset(seed=0)
    assert (obs["tokens"][:, -1] == codec.pad).all() and env.observation_space.contains(obs)
    policy = built(env)
    batch = policy.batch(collect(policy, env, 0, np.random.default_rng(0)))
    assert_near(
        policy.evaluate(batch)[0][batch.mask], batch.log_prob[batch.mask], terms=widths(policy)
    )


def test_the_right_answer_is_right_whatever_spaces_a_decoder_adds(
    gpt2_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(gpt2_folder, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "decoder": None}))
    env = Addition(model=str(folder), split="held_out")
    codec = env.rules.codec
    prompt = next(text for text in env.rules.texts if env.rules.task.answer(text) == "74")
    # two tokens, and nothing that joins them
    assert codec.decode(codec.encode_answer("74")[:-1]) == "7 4"
    for answer, reward in (("74", 1.0), ("47", 0.0), ("774", 0.0)):
        env.reset(options={"prompt_id": env.rules.texts.index(prompt)})
        assert [env.step(token)[1] for token in codec.encode_answer(answer)][-1] == reward


def test_a_folder_that_cannot_serve_is_refused_in_one_sentence(
    gpt2_folder: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    def changed(name: str) -> Path:
        return Path(shutil.copytree(gpt2_folder, tmp_path / name))

    def refusal(folder: Path) -> str:
        with pytest.raises(ValueError) as error:
            built(Addition(model=str(folder)))
        return str(error.value)

    short = changed("short")
    settings = json.loads((short / "config.json").read_text())
    (short / "config.json").write_text(json.dumps({**settings, "n_positions": 8}))
    assert re.fullmatch(
        r"model: .* reads 8 tokens, and a prompt and its completion need \d+ \(a prompt has up to \d+,"
        r" and max_new_tokens is \d+\); give max_new_tokens \d or less",
        refusal(short),
    )
    mute = changed("mute")
    for file in mute.glob("tokenizer*"):
        file.unlink()
    assert re.fullmatch(r"model: the tokenizer in .* must have tokens for '.*='", refusal(mute))
    broken = changed("broken")
    weights = load_file(broken / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    assert re.fullmatch(r"model: .* has weights that are NaN or infinite", refusal(broken))
    pickled = changed("pickled")
    (pickled / "model.safetensors").unlink()
    torch.save(weights, pickled / "pytorch_model.bin")
    assert "no file named model.safetensors" in refusal(pickled)
