"""GAE against a hand-computed case and against its own definition; group advantages and
normalisation."""

import math
import warnings

import pytest
import torch
from closeness import assert_near, near
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook.functional.advantages import (
    explained_variance,
    gae,
    group_advantage,
    leave_one_out_advantage,
    normalize,
    reward_to_go_advantage,
)
from rlbook.functional.returns import discounted_returns, td_target

NAN = float("nan")


def flags(*values):
    return torch.tensor(values, dtype=torch.bool)


def scripted(case, dtype=torch.float64):
    """Rewards, V, V(true successor) and flags of the fixture: terminated at t = 2, truncated at t =
    4, still running at t = 5."""
    reward, value = (torch.tensor(case[name], dtype=dtype) for name in ("rewards", "values"))
    next_value = torch.cat([value[1:], torch.tensor([case["last_value"]], dtype=dtype)])
    next_value[4] = case["V_final_obs_at_t4"]
    return reward, value, next_value, flags(*case["terminated"]), flags(*case["truncated"])


def test_gae_is_the_hand_computed_one(fixtures):
    # δ = 1.4, 2.35, 1.5, 4.25, 8.8, 6.15 and γλ = .72; A_0 = 1.4 + .72 (2.35 + .72 · 1.5), A_3 =
    # 4.25 + .72 · 8.8
    expected = torch.tensor(
        [1.4 + 0.72 * (2.35 + 0.72 * 1.5), 2.35 + 0.72 * 1.5, 1.5, 4.25 + 0.72 * 8.8, 8.8, 6.15],
        dtype=torch.float64,
    )
    result = gae(*scripted(fixtures["losses"]["gae"]), gamma=0.9, gae_lambda=0.8)
    assert_near(result, expected, terms=4)
    assert_near(result, fixtures["losses"]["gae"]["advantages"]["correct"], terms=4)


@pytest.mark.parametrize(
    "bug",
    [
        "trunc_as_term",
        "trunc_bootstrap_from_reset_obs",
        "trunc_leak",
        "mask_off_by_one",
        "ignore_done",
    ],
)
def test_gae_does_not_show_the_signature_of_a_classic_bug(fixtures, bug):
    case = fixtures["losses"]["gae"]
    signature = torch.tensor(case["advantages"][bug], dtype=torch.float64)
    assert (gae(*scripted(case), gamma=0.9, gae_lambda=0.8) - signature).abs().max() > 0.5


def test_advantage_plus_value_is_the_critics_target(fixtures):
    case = fixtures["losses"]["gae"]
    reward, value, *rest = scripted(case)
    target = gae(reward, value, *rest, gamma=0.9, gae_lambda=0.8) + value
    assert_near(target, case["returns_correct"], terms=5)


def direct_sum(reward, value, next_value, terminated, truncated, gamma, gae_lambda):
    """Σ_k (γλ)^k δ_{t+k}, summed forwards until the episode ends: the definition, one stream, plain
    Python."""
    result = []
    for start in range(len(reward)):
        total, weight = 0.0, 1.0
        for t in range(start, len(reward)):
            bootstrap = 0.0 if terminated[t] else gamma * next_value[t]
            total += weight * (reward[t] + bootstrap - value[t])
            weight *= gamma * gae_lambda
            if terminated[t] or truncated[t]:
                break
        result.append(total)
    return result


step = st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5), st.booleans(), st.booleans())
fraction = st.floats(0, 1)


@settings(deadline=None, max_examples=150)
@given(steps=st.lists(step, min_size=1, max_size=12), gamma=fraction, gae_lambda=fraction)
def test_gae_is_the_discounted_sum_of_td_errors(steps, gamma, gae_lambda):
    reward, value, next_value, terminated, truncated = map(list, zip(*steps, strict=True))
    tensors = [torch.tensor(column, dtype=torch.float64) for column in (reward, value, next_value)]
    result = gae(
        *tensors, flags(*terminated), flags(*truncated), gamma=gamma, gae_lambda=gae_lambda
    )
    expected = direct_sum(reward, value, next_value, terminated, truncated, gamma, gae_lambda)
    assert_near(result, expected, terms=3 * len(steps), size=15 * len(steps))  # |δ| ≤ 5 + 5 + 5


@settings(deadline=None, max_examples=100)
@given(
    steps=st.lists(step, min_size=1, max_size=8),
    gaps=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    gamma=fraction,
    lam=fraction,
)
def test_gae_passes_over_gaps_as_if_they_were_absent(steps, gaps, gamma, lam):
    rows, columns = [], []
    for number, (reward, value, _, terminated, truncated) in enumerate(steps):
        behind = steps[number + 1][1] if number + 1 < len(steps) else 1.5
        ended = terminated or truncated
        gap = 0 if ended else gaps[number]
        rows.append((reward, value, behind if not ended else 2.5, terminated, truncated, True))
        columns.append(len(rows) - 1)
        rows += [(NAN, NAN, behind if number + 1 == len(steps) else NAN, False, False, False)] * gap
        if gap:
            # it looks into the gap: of no use
            rows[columns[-1]] = (
                reward,
                value,
                NAN,
                False,
                False,
                True,
            )
    *numbers, terminated, truncated, valid = zip(*rows, strict=True)
    valid = flags(*valid)
    five = [
        *(torch.tensor(column, dtype=torch.float64) for column in numbers),
        flags(*terminated),
        flags(*truncated),
    ]
    dense = [column[columns].clone() for column in five]
    dense[2] = torch.tensor(
        [
            2.5 if s[3] or s[4] else (steps[i + 1][1] if i + 1 < len(steps) else 1.5)
            for i, s in enumerate(steps)
        ],
        dtype=torch.float64,
    )
    result = gae(*five, gamma=gamma, gae_lambda=lam, valid=valid)
    assert_near(
        result[columns],
        gae(*dense, gamma=gamma, gae_lambda=lam),
        terms=3 * len(steps),
        size=15 * len(steps),
    )
    assert (result[~valid] == 0).all()


@pytest.mark.parametrize("terminated, bootstrap", [(True, 0.0), (False, 7.0)])
def test_an_episode_that_ends_inside_a_gap_does_not_leak_into_the_next(terminated, bootstrap):
    value, next_value = torch.tensor([1.0, NAN, NAN, 50.0]), torch.tensor([NAN, NAN, 7.0, 60.0])
    ends = flags(False, False, True, False)
    nothing = torch.zeros(4, dtype=torch.bool)
    result = gae(
        torch.tensor([2.0, NAN, NAN, 3.0]),
        value,
        next_value,
        ends if terminated else nothing,
        nothing if terminated else ends,
        gamma=0.5,
        gae_lambda=1.0,
        valid=flags(True, False, False, True),
    )
    assert_near(result, [2 + 0.5 * bootstrap - 1, 0.0, 0.0, 3 + 0.5 * 60 - 50], size=50)


def test_streams_are_independent_and_waiting_ones_get_nothing():
    generator = torch.Generator().manual_seed(1)
    reward, value, next_value = torch.randn(3, 9, 4, generator=generator, dtype=torch.float64)
    terminated = torch.zeros(9, 4, dtype=torch.bool)
    truncated = torch.zeros_like(terminated)
    lengths = [9, 3, 1, 6]
    valid = torch.arange(9)[:, None] < torch.tensor(lengths)
    for stream, length in enumerate(lengths):
        (terminated if stream % 2 else truncated)[length - 1 :, stream] = True
    result = gae(
        reward, value, next_value, terminated, truncated, gamma=0.9, gae_lambda=0.7, valid=valid
    )
    for n, length in enumerate(lengths):
        alone = [
            column[:length, n] for column in (reward, value, next_value, terminated, truncated)
        ]
        assert_near(result[:length, n], gae(*alone, gamma=0.9, gae_lambda=0.7), terms=3 * 9)
        assert (result[length:, n] == 0).all()


def test_lambda_zero_is_the_td_error_and_lambda_one_the_return_minus_the_value(fixtures):
    reward, value, next_value, terminated, truncated = scripted(fixtures["losses"]["gae"])
    td_error = td_target(reward, terminated, next_value, 0.9) - value
    assert_near(
        gae(reward, value, next_value, terminated, truncated, gamma=0.9, gae_lambda=0.0),
        td_error,
        terms=3,
    )
    whole = discounted_returns(reward, terminated, truncated, 0.9, next_value=next_value) - value
    assert_near(
        gae(reward, value, next_value, terminated, truncated, gamma=0.9, gae_lambda=1.0),
        whole,
        terms=3 * 3,
        size=20,
    )


def test_nothing_behind_an_end_changes_an_earlier_advantage(fixtures):
    reward, value, next_value, terminated, truncated = scripted(fixtures["losses"]["gae"])
    before = gae(reward, value, next_value, terminated, truncated, gamma=0.9, gae_lambda=0.8)
    reward[3:], value[3:], next_value[3:] = 99.0, -99.0, 99.0
    after = gae(reward, value, next_value, terminated, truncated, gamma=0.9, gae_lambda=0.8)
    assert before[:3].tolist() == after[:3].tolist()


def test_gae_carries_no_gradient_and_refuses_other_shapes():
    ones, never = torch.ones(3, 2), torch.zeros(3, 2, dtype=torch.bool)
    assert not gae(
        ones, ones.clone().requires_grad_(), ones, never, never, gamma=0.9, gae_lambda=0.8
    ).requires_grad
    with pytest.raises(
        ValueError, match=r"value must have the shape of reward, \[3, 2\], got \[3\]"
    ):
        gae(ones, torch.ones(3), ones, never, never, gamma=0.9, gae_lambda=0.8)


def test_group_advantage_is_trls_and_its_other_forms_are_the_peers(fixtures):
    case, peers = fixtures["losses"]["grpo"], fixtures["language_model_losses"]
    reward = torch.tensor(case["rewards"], dtype=torch.float64).flatten()
    for key, options in (
        ("adv_ddof1_eps1e-4", {}),
        ("adv_ddof0_eps1e-8", {"ddof": 0, "eps": 1e-8}),
    ):
        expected = [number for group in case[key] for number in group]
        assert group_advantage(reward, 4, **options).tolist() == near(expected, decimals=10)
    assert_near(
        group_advantage(reward, 4, scale="none"),
        [number for group in case["adv_no_std(dr_grpo)"] for number in group],
        terms=4,
    )
    assert group_advantage(reward, 4)[0].item() == near(peers["group_trl"], decimals=6)
    assert group_advantage(reward, 4, eps=1e-6)[0].item() == near(peers["group_verl"], decimals=6)
    # others' mean of the first is (0 + 0 + 1) / 3, so 1 - 1/3 = 2/3
    assert_near(leave_one_out_advantage(reward, 4)[:4], [2 / 3, -2 / 3, -2 / 3, 2 / 3], terms=4)


def test_the_mean_of_the_others_is_further_away_than_the_mean_of_all():
    """Returns 4, 1, 1: the others' means are 1, 2.5, 2.5, so 3, -1.5, -1.5 = 3/2 · (2, -1, -1); the
    deviation is √(6 / 2) = √3."""
    reward = torch.tensor([4.0, 1.0, 1.0], dtype=torch.float64)
    expected = torch.tensor(
        [4 - (1 + 1) / 2, 1 - (4 + 1) / 2, 1 - (4 + 1) / 2], dtype=torch.float64
    )
    assert_near(leave_one_out_advantage(reward, 3), expected, terms=3)
    assert_near(
        group_advantage(reward, 3, scale="none", baseline="leave-one-out"), expected, terms=3
    )
    assert_near(
        group_advantage(reward, 3, baseline="leave-one-out", eps=0.0), expected / 3**0.5, terms=3
    )
    assert_near(group_advantage(reward, 3, scale="none"), expected * 2 / 3, terms=3)
    with pytest.raises(
        ValueError,
        match="baseline must be one of 'mean', 'leave-one-out', 'batch', 'none', got 'others'",
    ):
        group_advantage(reward, 3, baseline="others")


def test_the_mean_of_the_batch_and_none_at_all_are_taken_off_every_group_alike():
    """0, 2, 10, 12 have the mean 6, the sample variance (36 + 16 + 16 + 36) / 3."""
    reward = torch.tensor([0.0, 2.0, 10.0, 12.0], dtype=torch.float64)
    expected = torch.tensor([-6.0, -4.0, 4.0, 6.0], dtype=torch.float64)
    assert_near(group_advantage(reward, 2, scale="none", baseline="batch"), expected, terms=4)
    assert_near(
        group_advantage(reward, 2, scale="batch", baseline="batch", eps=0.0),
        expected / (104 / 3) ** 0.5,
        terms=4,
    )
    assert_near(group_advantage(reward, 2, scale="none", baseline="none"), reward)
    assert_near(group_advantage(reward, 2, baseline="none", eps=0.0), reward / 2**0.5, terms=2)


def test_batch_scale_divides_every_group_by_the_spread_of_the_whole_batch():
    reward = torch.tensor([0.0, 2.0, 10.0, 10.0], dtype=torch.float64)
    spread = torch.tensor([0.0, 2.0, 10.0, 10.0], dtype=torch.float64).std()
    expected = torch.tensor([-1.0, 1.0, 0.0, 0.0], dtype=torch.float64) / (spread + 1e-4)
    assert_near(group_advantage(reward, 2, scale="batch"), expected, terms=4)


@pytest.mark.parametrize("reward", [0.35, 0.1, 1e6 + 1 / 3, -7.7])
@pytest.mark.parametrize("size", [2, 3, 7, 8])
def test_equal_rewards_have_no_advantage_at_all(reward, size):
    equal = torch.full((2 * size,), reward)
    for scale in ("std", "batch", "none"):
        assert group_advantage(equal, size, scale=scale, eps=1e-8).tolist() == [0.0] * (2 * size)
    assert leave_one_out_advantage(equal, size).tolist() == [0.0] * (2 * size)


def test_one_odd_reward_in_eight_stays_bounded():
    result = group_advantage(torch.tensor([0.35] * 7 + [0.3]), 8)
    # (G - 1) / √G, the largest z-score that G numbers can have; eps lowers it
    assert result.abs().max() <= 7 / 8**0.5
    assert result[:7].unique().numel() == 1


def test_permuting_groups_permutes_their_advantages():
    reward = torch.rand(6, 4, generator=torch.Generator().manual_seed(2))
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    permuted = group_advantage(reward[order].flatten(), 4)
    assert_near(permuted, group_advantage(reward.flatten(), 4).view(6, 4)[order].flatten(), terms=4)


def test_groups_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"\[B\] with B a multiple of group_size 4, got \[6\]"):
        group_advantage(torch.zeros(6), 4)
    with pytest.raises(ValueError, match="group_size must be an integer of at least 2"):
        leave_one_out_advantage(torch.zeros(6), 1)
    with pytest.raises(ValueError, match="scale must be one of"):
        group_advantage(torch.zeros(4), 2, scale="group")


def test_normalised_advantages_have_mean_zero_and_variance_one():
    advantage = torch.tensor([1.0, -1.0, 0.5, -2.0], dtype=torch.float64)
    result = normalize(advantage)
    assert result.mean().item() == near(0.0, terms=4, size=2.0)
    for ddof in (0, 1):
        std = advantage.std(correction=ddof).item()
        variance = normalize(advantage, ddof=ddof).var(correction=ddof).item()
        assert variance == near((std / (std + 1e-8)) ** 2, terms=4)
        assert variance != near(1.0, terms=4), "without ε"


def test_fewer_than_two_advantages_stay_as_they_are():
    assert normalize(torch.tensor([3.0])).tolist() == [3.0]
    assert normalize(torch.tensor([3.0, NAN]), flags(True, False)).tolist() == [3.0, 0.0]
    assert normalize(torch.tensor([3.0, 4.0]), flags(False, False)).tolist() == [0.0, 0.0]
    assert normalize(torch.tensor([])).tolist() == []


def test_equal_advantages_become_zero_and_not_amplified_rounding():
    for count in (3, 7, 10, 1000):
        assert not normalize(torch.full((count,), 0.35)).any()


def test_padding_does_not_change_the_normalisation_and_gets_zero():
    advantage = torch.tensor([[1.0, 2.0, NAN], [5.0, NAN, NAN]])
    mask = flags(*[[1, 1, 0], [1, 0, 0]])
    result = normalize(advantage, mask)
    assert_near(result[mask], normalize(torch.tensor([1.0, 2.0, 5.0])), terms=3)
    assert (result[~mask] == 0).all()


def test_one_target_has_no_variance_to_explain() -> None:
    with warnings.catch_warnings(action="error"):
        found = explained_variance(torch.zeros(3), torch.ones(3), flags(False, True, False))
    assert math.isnan(found)


def test_explained_variance_by_hand() -> None:
    """Targets 1, 2, 3 of variance 1; V = 2 misses by -1, 0, 1: nothing is explained. V = 1, 2, 2
    misses by 0, 0, 1, of variance 1/3."""
    target, mask = torch.tensor([1.0, 2.0, 3.0, NAN]), flags(True, True, True, False)
    for value, expected in (
        (target, 1.0),
        (torch.full((4,), 2.0), 0.0),
        (torch.tensor([1.0, 2.0, 2.0, 0.0]), 1 - 1 / 3),
    ):
        assert explained_variance(target - value, target, mask) == near(
            expected, dtype="float32", terms=3, size=1.0
        )
    assert explained_variance(torch.zeros(2), torch.ones(2), flags(True, True)) == 1.0, (
        "nothing to explain, and no division by zero"
    )


# ---- REINFORCE++


def test_reward_to_go_is_whitened_over_the_steps_of_all_episodes() -> None:
    """Rewards less 0.1 KL: 1 - 0.04 at the end of the first, 0.5 - 0.01 at that of the second.

    G = (.95, .97, .96) and (.46, .49): mean .766, variance .28292 / 4 = .07073 with ddof 1.
    """
    reward = torch.tensor([[-0.02, 0.01, 1 - 0.04], [-0.03, 0.5 - 0.01, 7.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    expected = [
        [0.6918564008662378, 0.7670581835690898, 0.7294572922176638],
        [-1.150587275353635, -1.037784601299357, 0.0],
    ]
    found = reward_to_go_advantage(reward, mask)
    for row, other in zip(found.tolist(), expected, strict=True):
        assert row == near(other, dtype="float64", terms=10, size=1 / 0.07073**0.5)
    assert found[1, 2] == 0.0


def transcribed(reward: list[list[float]], mask: list[list[bool]]) -> list[list[float]]:
    """verl's `compute_reinforce_plus_plus_outcome_advantage` and `masked_whiten` with γ = 1, number
    by number."""
    to_go = []
    for paid, counts in zip(reward, mask, strict=True):
        running, row = 0.0, [0.0] * len(paid)
        for t in reversed(range(len(paid))):
            running = (paid[t] if counts[t] else 0.0) + running
            row[t] = running
            running *= counts[t]
        to_go.append(row)
    counted = [
        g
        for row, counts in zip(to_go, mask, strict=True)
        for g, counts_here in zip(row, counts, strict=True)
        if counts_here
    ]
    mean = sum(counted) / len(counted)
    variance = sum((g - mean) ** 2 for g in counted) / (len(counted) - 1)
    return [
        [(g - mean) / (variance + 1e-8) ** 0.5 * here for g, here in zip(*both, strict=True)]
        for both in zip(to_go, mask, strict=True)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_reward_to_go_is_verls(seed):
    """And far from one number an episode, standardised over episodes."""
    numbers = torch.Generator().manual_seed(seed)
    length = torch.randint(1, 12, (8,), generator=numbers)
    mask = torch.arange(12) < length[:, None]
    reward = -0.3 * torch.randn(8, 12, generator=numbers, dtype=torch.float64).abs()
    reward[torch.arange(8), length - 1] += torch.rand(8, generator=numbers, dtype=torch.float64)
    found = reward_to_go_advantage(reward, mask)
    expected = torch.tensor(transcribed(reward.tolist(), mask.tolist()), dtype=torch.float64)
    assert_near(found, expected, dtype="float64", terms=8 * 12 + 12)
    episodes = group_advantage((reward * mask).sum(1), 8, baseline="batch", scale="batch")
    assert (found - episodes[:, None])[mask].abs().max() > 0.5
