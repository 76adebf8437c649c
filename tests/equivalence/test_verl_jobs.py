"""A job for verl composes in verl's own configuration tree, and the loss that it configures there
is the run's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from closeness import assert_near

from rlbook.algorithms.policy.grpo import GRPOConfig, grpo_loss
from rlbook.data.rollout import Batch
from rlbook.recipes.jobs.write_job import write_job
from rlbook.runs.request import Request

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
JOBS: dict[str, dict[str, Any]] = {
    "grpo": {
        "hyperparameters": {"kl_coef": 0.01, "clip": 0.2, "clip_high": 0.28, "dual_clip": 3.0}
    },
    "rloo": {},
    "reinforce_plus_plus": {},
    "gspo": {"model": {"adapter": {"r": 16, "lora_alpha": 32}}},
    "cispo": {},
    "dr_grpo": {"hyperparameters": {"average_divisor": 5}},
    "ppo": {"hyperparameters": {"kl_coef": 0.1, "clip_value": 0.5, "kl_target": 0.1}},
    "sft": {"steps": None, "passes": 3},
}


def config_folder() -> Path:
    """verl's configuration files. They need neither verl's packages nor a GPU."""
    found = importlib.util.find_spec("verl")
    if found is None or found.origin is None:
        pytest.skip("verl is not installed: pip install --no-deps verl==0.9.1")
    return Path(found.origin).parent / "trainer" / "config"


def write_verl_job(name: str, folder: Path) -> Path:
    path = folder / "config.yaml"
    entries = {"algorithm": name, "env": "Addition-v0", "steps": 10_000} | JOBS[name]
    path.write_text(yaml.safe_dump(entries))
    write_job(path, folder / "job", "verl")
    return folder / "job"


def compose(job: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    hydra = pytest.importorskip("hydra", reason="verl's configuration needs hydra-core")
    monkeypatch.setenv("JOB", str(job))
    tree = f"hydra.searchpath=[file://{config_folder()}]"
    with hydra.initialize_config_dir(str(job), version_base=None):
        return hydra.compose("job", overrides=[tree])


def paths(tree: Any, *names: str) -> list[tuple[str, ...]]:
    """The places of all values in a mapping of mappings."""
    if not isinstance(tree, dict) or not tree:
        return [names]
    return [place for name, part in tree.items() for place in paths(part, *names, name)]


def is_known(tree: Any, place: tuple[str, ...]) -> bool:
    for name in place:
        if not hasattr(tree, "keys") or name not in tree:
            return hasattr(tree, "keys") and not tree  # a mapping that is the user's to fill
        tree = tree[name]
    return True


@pytest.mark.parametrize("name", JOBS)
def test_every_setting_of_a_job_is_one_of_verls(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hydra takes unknown keys, so each is looked up in the tree without the job."""
    omegaconf = pytest.importorskip("omegaconf", reason="verl's configuration needs omegaconf")
    import hydra

    job = write_verl_job(name, tmp_path)
    composed = compose(job, monkeypatch)
    written = yaml.safe_load((job / "job.yaml").read_text())
    base = written.pop("defaults")[0]
    written.pop("hydra")
    with hydra.initialize_config_dir(str(config_folder()), version_base=None):
        alone = hydra.compose(base)
    plain = omegaconf.OmegaConf.to_container(alone, resolve=False)
    unknown = [place for place in paths(written) if not is_known(plain, place)]
    allowed = {("override_optimizer_config", "eps"), ("rollout", "name")}
    assert [place for place in unknown if place[-2:] not in allowed] == []
    data = composed.data.train_files
    assert Path(data).is_file() and Path(data) == job / "train.parquet"
    assert composed.trainer.n_gpus_per_node == 1
    model = composed.model if name == "sft" else composed.actor_rollout_ref.model
    assert Path(model.path).is_dir() and Path(model.tokenizer_path).is_dir()
    if name != "sft":
        assert Path(composed.reward.custom_reward_function.path).is_file()
        assert composed.actor_rollout_ref.actor.rollout_n == composed.actor_rollout_ref.rollout.n


@pytest.mark.parametrize("name", [name for name in JOBS if name != "sft"])
def test_verl_accepts_the_settings(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_folder()
    checks = pytest.importorskip("verl.utils.config", reason="verl's own packages are not here")
    composed = compose(write_verl_job(name, tmp_path), monkeypatch)
    composed.actor_rollout_ref.model.lora_rank = 0  # with which vllm would be asked
    checks.validate_config(composed, use_reference_policy=True, use_critic=name == "ppo")


@pytest.mark.parametrize("name", ["grpo", "cispo", "dr_grpo", "gspo"])
def test_the_actors_loss_in_verl_is_the_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_folder()
    checks = pytest.importorskip("verl.utils.config", reason="verl's own packages are not here")
    core = pytest.importorskip("verl.trainer.ppo.core_algos")
    job = write_verl_job(name, tmp_path)
    composed = compose(job, monkeypatch)
    actor = checks.omega_conf_to_dataclass(composed.actor_rollout_ref.actor)
    request = Request.from_yaml((tmp_path / "config.yaml").read_text())
    config: GRPOConfig = request.config
    mask = torch.arange(5) < torch.tensor([5, 2, 3, 1, 4, 3])[:, None]
    generator = torch.Generator().manual_seed(0)
    old = -3 * torch.rand(6, 5, generator=generator, dtype=torch.float64)
    noise = torch.randn(2, 6, 5, generator=generator, dtype=torch.float64)
    scale = 1e-4 if name == "gspo" else 0.8  # whose clip is at 3e-4
    new, reference = old + scale * noise[0], old + 0.3 * noise[1]
    advantage = torch.randn(6, 1, generator=generator, dtype=torch.float64).expand(6, 5)
    new.requires_grad_()
    actor.global_batch_info.update(
        dp_size=1,
        batch_num_tokens=int(mask.sum()),
        global_batch_size=len(mask),
        loss_scale_factor=actor.loss_scale_factor,
    )
    theirs, _ = core.get_policy_loss_fn(actor.policy_loss.loss_mode)(
        old_log_prob=old,
        log_prob=new,
        advantages=advantage,
        response_mask=mask,
        loss_agg_mode=actor.loss_agg_mode,
        config=actor,
    )
    if actor.use_kl_loss:
        kl = core.kl_penalty(new, reference, actor.kl_loss_type)
        theirs = theirs + actor.kl_loss_coef * core.agg_loss(
            kl, mask, actor.loss_agg_mode, **actor.global_batch_info
        )
    policy: Any = SimpleNamespace(evaluate=lambda *_, **__: (new, torch.zeros_like(new), None))
    rows = Batch(
        {},
        torch.zeros(mask.shape),
        old,
        mask,
        advantage=advantage,
        reference_log_prob=reference if config.kl_coef else None,
    )
    rows.weight = config.averaging()(mask)
    ours = grpo_loss(policy, rows, config=config).loss
    numbers: dict[str, Any] = {"dtype": "float32", "terms": 30, "size": 10.0}
    assert_near(ours, theirs, **numbers)
    gradients = [torch.autograd.grad(loss, new)[0] for loss in (ours, theirs)]
    assert_near(*gradients, **numbers)
    assert gradients[0].abs().max() > 0.01
