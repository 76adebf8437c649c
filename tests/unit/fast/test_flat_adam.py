"""FlatAdam is AdamW: the same numbers, in one tensor of which the parameters are views."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from closeness import assert_near, near, widths
from flat_parameters import flat_gradient
from torch import Tensor, nn
from transformers import get_constant_schedule_with_warmup

import rlbook
from rlbook.fast import flat_adam, matrix_product
from rlbook.fast.flat_adam import FlatAdam, FlatRMSprop
from rlbook.fast_forms import use_plain_forms
from rlbook.networks.optimizer import Adam, Group, RMSprop, adam, rmsprop


def network(seed: int = 0) -> nn.Sequential:
    """A small network whose weights are drawn from a generator of its own, in double precision."""
    made = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=generator)
    return made


def batches(count: int, scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [
        scale * torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(count)
    ]


def rounded(steps: int) -> dict[str, Any]:
    """Of so many steps; the norms of the first gradients are of size 60."""
    return {"terms": steps * (4 + widths(network())), "size": 60.0}


def loss_of(module: nn.Module, x: Tensor) -> Tensor:
    return (module(x) - 1.0).square().sum()


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("max_grad_norm", [None, 0.5, 1e6])
@pytest.mark.parametrize(
    "options", [{}, {"weight_decay": 0.1}, {"eps": 1e-2}, {"betas": (0.5, 0.9)}], ids=str
)
def test_many_steps_are_adamws(options: dict[str, Any], max_grad_norm: float | None) -> None:
    ours, theirs = network(), network()
    decay = options.get("weight_decay", 0.0)
    others = {name: value for name, value in options.items() if name != "weight_decay"}
    flat = FlatAdam([Group([ours], weight_decay=decay)], 3e-3, **others)
    adamw = torch.optim.AdamW(theirs.parameters(), 3e-3, **({"weight_decay": 0.0} | options))
    for step, x in enumerate(batches(100)):
        rate = 3e-3 * (1 - step / 100)  # an annealed step size, as PPO's
        flat.learning_rate = adamw.param_groups[0]["lr"] = rate
        norm = flat.step(loss_of(ours, x), max_grad_norm)
        adamw.zero_grad()
        loss_of(theirs, x).backward()
        expected_norm = nn.utils.clip_grad_norm_(
            theirs.parameters(), torch.inf if max_grad_norm is None else max_grad_norm
        )
        adamw.step()
        assert_near(norm, expected_norm, **rounded(100))
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_near(mine, other, **rounded(100))
        assert not torch.equal(mine, next(network().parameters()))


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "flat"])
def test_a_warm_up_with_weight_decay_is_adamws_under_transformers_schedule_and_resumes(
    plain: bool,
) -> None:
    """Cut in the middle of the warm-up; the first step has a rate of 0, theirs too."""
    ours, theirs = network(), network()
    form = adam.plain if plain else flat_adam.adam  # type: ignore[attr-defined]

    def make() -> Any:
        return form([Group([ours], weight_decay=0.1)], 3e-3, warmup_steps=10)

    optimizer, adamw = make(), torch.optim.AdamW(theirs.parameters(), 3e-3, weight_decay=0.1)
    schedule = get_constant_schedule_with_warmup(adamw, num_warmup_steps=10)
    for step, x in enumerate(batches(30)):
        if step == 4:
            state, optimizer = optimizer.state_dict(), make()
            optimizer.load_state_dict(state)
        assert optimizer.step_size == adamw.param_groups[0]["lr"]
        optimizer.step(loss_of(ours, x))
        adamw.zero_grad()
        loss_of(theirs, x).backward()
        adamw.step()
        schedule.step()
        if step == 0:
            assert torch.equal(next(ours.parameters()), next(network().parameters()))
    assert type(optimizer) is (Adam if plain else FlatAdam) and optimizer.step_size == 3e-3
    for mine, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_near(mine, expected, **rounded(30))


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "flat"])
def test_rmsprop_warms_up_its_decay_too(plain: bool) -> None:
    """With a gradient of 0 only the decay moves the weights: nothing at first, then w η / 2."""
    ours, made = network(), rmsprop.plain if plain else flat_adam.rmsprop  # type: ignore[attr-defined]
    optimizer = made([Group([ours], weight_decay=0.5)], 0.1, warmup_steps=2)
    before = [p.detach().clone() for p in ours.parameters()]
    for shrunk in (1.0, 1.0 - 0.05 * 0.5, (1.0 - 0.05 * 0.5) * (1.0 - 0.1 * 0.5)):
        optimizer.step(sum(0.0 * p.sum() for p in ours.parameters()))
        for mine, start in zip(ours.parameters(), before, strict=True):
            assert_near(mine, shrunk * start, **rounded(3))


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "flat"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_rmsprop_is_torchs_and_resumes(weight_decay: float, plain: bool) -> None:
    """torch adds the decay to the gradient; here it stands apart, as in AdamW, so torch's is done
    by hand before its step."""
    ours, theirs = network(), network()
    made = rmsprop.plain if plain else flat_adam.rmsprop  # type: ignore[attr-defined]
    optimizer = made([Group([ours], weight_decay=weight_decay)], 1e-2, eps=1e-5, decay=0.9)
    assert type(optimizer) is (RMSprop if plain else FlatRMSprop)
    other = torch.optim.RMSprop(theirs.parameters(), 1e-2, alpha=0.9, eps=1e-5)
    for step, x in enumerate(batches(100)):
        if step == 50:
            state, optimizer = (
                optimizer.state_dict(),
                made([Group([ours], weight_decay=weight_decay)], 1e-2, eps=1e-5, decay=0.9),
            )
            optimizer.load_state_dict(state)
        optimizer.step(loss_of(ours, x), 0.5)
        other.zero_grad()
        loss_of(theirs, x).backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        with torch.no_grad():
            for parameter in theirs.parameters():
                parameter.mul_(1 - 1e-2 * weight_decay)
        other.step()
    for mine, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_near(mine, expected, **rounded(100))


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "flat"])
@pytest.mark.parametrize("kind", [adam, rmsprop], ids=["adam", "rmsprop"])
def test_a_copy_steps_as_what_it_was_copied_from(kind: Any, plain: bool) -> None:
    """Its parameters are other objects, and torch keeps no hooks in a copy: RMSprop's decay is
    one."""
    module = network()
    optimizer = (kind.plain if plain else kind)([Group([module], weight_decay=0.1)], 1e-2)
    first, second = batches(2)
    optimizer.step(loss_of(module, first))
    copied, pickled = copy.deepcopy((module, optimizer)), pickle.dumps((module, optimizer))
    for each, its in ((module, optimizer), copied, pickle.loads(pickled)):  # noqa: S301
        its.step(loss_of(each, second))
        for now, wanted in zip(each.parameters(), module.parameters(), strict=True):
            assert torch.equal(now, wanted)


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "flat"])
@pytest.mark.parametrize("kind", [adam, rmsprop], ids=["adam", "rmsprop"])
def test_each_group_has_its_own_rate_and_decay(kind: Any, plain: bool) -> None:
    """A first step with all gradients 1: m̂ / √v̂ is 1 in Adam, and in RMSprop 1 / √(1 - 0.99) = 10.
    With η = 0.01 each weight becomes θ (1 - η r w) - η r times that."""
    settings = [(1.0, 0.0), (1.0, 0.5), (3.0, 0.5)]  # r and w of each group
    layers = [nn.Linear(2, 3) for _ in settings]
    before = [layer.weight.detach().clone() for layer in layers]
    groups = [Group([layer], *own) for layer, own in zip(layers, settings, strict=True)]
    made = kind.plain if plain else getattr(flat_adam, kind.__name__)
    optimizer = made(groups, 0.01, eps=1e-12)
    optimizer.step(sum(p.sum() for layer in layers for p in layer.parameters()))
    for layer, start, (rate, decay) in zip(layers, before, settings, strict=True):
        moved = 0.01 * rate * (1.0 if kind is adam else 10.0)
        assert_near(layer.weight, start * (1 - 0.01 * rate * decay) - moved, terms=8)


def test_clipping_shortens_a_long_gradient_and_leaves_a_short_one_alone() -> None:
    (x,) = batches(1)
    gradients = {}
    for limit in (None, 1e9, 0.5):
        module = network()
        flat = FlatAdam([Group([module])], 1e-3)
        before = flat.step(loss_of(module, x), limit)
        assert before > 1.0  # the norm is reported as it was before clipping
        gradients[limit] = flat.grad.clone()
    assert torch.equal(gradients[None], gradients[1e9])
    assert gradients[0.5].norm().item() == near(0.5 * before / (before + 1e-6), terms=27)
    assert_near(
        gradients[0.5] / gradients[0.5].norm(), gradients[None] / gradients[None].norm(), terms=27
    )


def test_the_parameters_are_views_and_stay_views_when_weights_are_loaded() -> None:
    module = network()
    flat = FlatAdam([Group([module])], 1e-3)
    module.load_state_dict(network(seed=1).state_dict())
    assert torch.equal(
        flat.flat, torch.cat([p.detach().reshape(-1) for p in network(seed=1).parameters()])
    )
    flat.step(loss_of(module, batches(1)[0]))
    assert torch.equal(flat.flat, torch.cat([p.detach().reshape(-1) for p in module.parameters()]))
    assert not torch.equal(next(module.parameters()), next(network(seed=1).parameters()))
    start = flat.flat.data_ptr()
    for parameter in module.parameters():
        assert parameter.data_ptr() == start and parameter.is_contiguous()
        start += parameter.numel() * parameter.element_size()


def test_gradients_do_not_pile_up_from_step_to_step() -> None:
    module = network()
    flat = FlatAdam([Group([module])], 1e-30)  # the weights stay where they are
    x = batches(1)[0]
    flat.step(loss_of(module, x))
    first = flat.grad.clone()
    flat.step(loss_of(module, x))
    assert_near(flat.grad, first, **rounded(1))


def test_a_shared_parameter_counts_once_and_a_frozen_one_not_at_all() -> None:
    shared = network()
    frozen = nn.Linear(2, 2).requires_grad_(False)
    flat = FlatAdam([Group([shared, nn.ModuleList([shared, frozen])])], 1e-3)
    assert len(flat.flat) == 3 * 5 + 5 + 5 * 2 + 2


def test_saved_moments_go_on_bit_for_bit_and_are_copies() -> None:
    whole, halves = network(), network()
    one, first = (
        FlatAdam([Group([whole], weight_decay=0.01)], 1e-2),
        FlatAdam([Group([halves], weight_decay=0.01)], 1e-2),
    )
    for x in batches(10):
        one.step(loss_of(whole, x), 1.0)
    for x in batches(10)[:5]:
        first.step(loss_of(halves, x), 1.0)
    state = first.state_dict()
    weights = {name: value.clone() for name, value in halves.state_dict().items()}
    first.step(loss_of(halves, batches(1)[0]))  # goes on; what was saved must not
    again = network(seed=3)
    second = FlatAdam([Group([again], weight_decay=0.01)], 1e-2)
    again.load_state_dict(weights)
    second.load_state_dict(state)
    for x in batches(10)[5:]:
        second.step(loss_of(again, x), 1.0)
    assert torch.equal(one.flat, second.flat)


@pytest.mark.parametrize("plain", [False, True])
def test_a_clipped_gradient_is_what_either_form_leaves(plain: bool) -> None:
    (x,), module = batches(1), network()
    with use_plain_forms(plain):
        optimizer = adam([Group([module])], 1e-3)
    assert isinstance(optimizer, FlatAdam) is not plain
    before = optimizer.step(loss_of(module, x), 0.5)
    assert before > 1.0
    assert flat_gradient(optimizer).norm().item() == near(0.5 * before / (before + 1e-6), terms=27)


def test_both_forms_of_adam_begin_with_torchs_settings() -> None:
    usual = torch.optim.Adam(network().parameters()).defaults
    with use_plain_forms(False):
        flat = adam([Group([network()])], 1e-3)
    plain = adam.plain([Group([network()])], 1e-3)  # type: ignore[attr-defined]
    assert isinstance(flat, FlatAdam)
    assert (flat.betas, flat.eps) == tuple(plain.torch.defaults[name] for name in ("betas", "eps"))
    assert (flat.betas, flat.eps) == (usual["betas"], usual["eps"])


def test_the_plain_adam_is_adamw_and_resumes() -> None:
    ours, theirs = network(), network()
    other = torch.optim.AdamW(theirs.parameters(), 1e-2, weight_decay=0.0)
    optimizer = adam.plain([Group([ours])], 1e-2)  # type: ignore[attr-defined]
    for step, x in enumerate(batches(6)):
        if step == 3:  # a step count of 0 would correct the bias of the moments once more
            state, optimizer = optimizer.state_dict(), adam.plain([Group([ours])], 1e-2)  # type: ignore[attr-defined]
            optimizer.load_state_dict(state)
        optimizer.step(loss_of(ours, x))
        other.zero_grad()
        loss_of(theirs, x).backward()
        other.step()
    for mine, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_near(mine, expected, **rounded(6))


def test_saved_moments_are_copied_only_where_somebody_keeps_them() -> None:
    module = network()
    flat = FlatAdam([Group([module])], 1e-2)
    flat.step(loss_of(module, batches(1)[0]))
    mean = flat.mean.data_ptr()
    assert flat.state_dict()["mean"].data_ptr() == mean  # no copy, and nobody keeps it
    flat.step(loss_of(module, batches(1)[0]))
    assert flat.mean.data_ptr() == mean
    kept = flat.state_dict()
    before = kept["mean"].clone()
    flat.step(loss_of(module, batches(1)[0]))
    assert (
        flat.mean.data_ptr() != mean
        and torch.equal(kept["mean"], before)
        and not torch.equal(flat.mean, before)
    )
    flat.load_state_dict(kept)
    assert torch.equal(flat.mean, before) and flat.pieces[0][3].data_ptr() == flat.mean.data_ptr()


@pytest.mark.parametrize("size", [1, 3, 4, 7])
def test_micro_batches_add_up_to_the_gradient_of_all_rows(size: int) -> None:
    x = torch.cat(batches(2))[:7]
    module = network()
    flat = FlatAdam([Group([module])], 1e-3)
    flat.step(loss_of(module, x[start : start + size]) for start in range(0, len(x), size))
    whole = network()
    loss_of(whole, x).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in whole.parameters() if p.grad is not None])
    assert_near(flat.grad, expected, **rounded(2))


def test_the_matrix_library_may_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(matrix_product.CHOICE, "mkl")
    assert matrix_product.chosen_library() == "mkl"
    monkeypatch.setenv(matrix_product.CHOICE, "blas")
    with pytest.raises(ValueError, match="RLBOOK_MATMUL must be 'mkl' or 'onednn', got 'blas'"):
        matrix_product.chosen_library()
    monkeypatch.delenv(matrix_product.CHOICE)
    for maker, library in (
        ("GenuineIntel", "mkl"),
        ("AuthenticAMD", "onednn" if matrix_product._one_dnn() else "mkl"),
    ):
        monkeypatch.setattr(matrix_product, "cpu_maker", lambda maker=maker: maker)
        assert matrix_product.chosen_library() == library


def test_a_run_notes_the_library_that_was_asked_for_and_refuses_an_unknown_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(matrix_product.CHOICE, matrix_product.LIBRARY)
    note = f"matrix products: {matrix_product.LIBRARY}, as RLBOOK_MATMUL asks"
    assert note in rlbook.train("reinforce", "Maze-v0", steps=1, eval_every=0).notes
    assert note not in rlbook.train("q_learning", "Maze-v0", steps=1, eval_every=0).notes
    monkeypatch.setenv(matrix_product.CHOICE, "blas")
    with pytest.raises(
        rlbook.RequestError, match=r"^RLBOOK_MATMUL must be 'mkl' or 'onednn', got 'blas'$"
    ):
        rlbook.train("q_learning", "Maze-v0", steps=1)


def test_both_libraries_multiply_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of 300 products of numbers around 1: each library rounds it by at most 300 ε of the sum
    of magnitudes."""
    generator = torch.Generator().manual_seed(0)
    a, b, bias = (
        torch.randn(64, 300, generator=generator),
        torch.randn(70, 300, generator=generator),
        torch.randn(70, generator=generator),
    )
    bound = 2 * 300 * torch.finfo(torch.float32).eps * (a.abs() @ b.abs().t() + bias.abs())
    exact = torch.addmm(bias.double(), a.double(), b.double().t())
    for library in (None, matrix_product._one_dnn()):
        monkeypatch.setattr(matrix_product, "ONE_DNN", library)
        assert ((matrix_product.product(a, b, bias) - exact).abs() <= bound).all()
        assert ((matrix_product.times(a, b.t()) + bias - exact).abs() <= bound).all()
