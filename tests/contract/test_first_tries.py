"""What somebody who has not read the manual gives first: classes, wrong folders, other libraries'
names. It works, or the error says what would."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from state_content import content

import rlbook
from rlbook.agent import OF_AN_AGENT
from rlbook.checks import SYNONYMS
from rlbook.cli.main import main
from rlbook.cli.values import OptionText, convert
from rlbook.evaluation.comparison import rows_and_repeats
from rlbook.interaction.play_episodes import OF_AN_EVALUATION, Evaluation
from rlbook.interaction.unknown_environments import OF_AN_ENVIRONMENT
from rlbook.registry import RELATED
from rlbook.runs.options import NAMES
from rlbook.runs.other_libraries import OF_A_RUN, OF_ALGORITHMS, OF_THE_PACKAGE, OF_TRAINING
from rlbook.runs.storage.files import CheckpointError
from rlbook.training import completions

HOME = """
import gymnasium
import numpy as np
from gymnasium import spaces

class Corridor(gymnasium.Env):
    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(2)

    def __init__(self, reward=1.0):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        self.place = max(0, self.place + 2 * int(action) - 1)
        return self.place, self.reward if self.place == 3 else 0.0, self.place == 3, False, {}

def corridor(reward=1.0):
    return Corridor(reward)

gymnasium.register("Corridor-v7", "own_corridor:Corridor", kwargs={"reward": 5.0})
"""


@pytest.fixture
def corridor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with an environment that is registered nowhere."""
    (tmp_path / "own_corridor.py").write_text(HOME)
    monkeypatch.syspath_prepend(tmp_path)
    import own_corridor  # type: ignore[import-not-found]

    yield own_corridor
    del sys.modules["own_corridor"]
    for name in ("Corridor-v7", "own_corridor/Corridor", "own_corridor/corridor"):
        gymnasium.registry.pop(name, None)


@pytest.mark.parametrize("name", ["Corridor", "corridor"])
def test_an_environment_of_ones_own_is_named_by_module_and_class(
    corridor: Any, tmp_path: Path, name: str
) -> None:
    run = rlbook.train(
        "q_learning",
        f"own_corridor:{name}",
        steps=200,
        env_kwargs={"reward": 2.0},
        allow_import=True,
        out=tmp_path / "run",
    )
    again = rlbook.load(tmp_path / "run", allow_import=True)
    assert max(run.episode_returns) == 2.0
    assert again.evaluate(episodes=3).returns.tolist() == run.evaluate(episodes=3).returns.tolist()


def test_an_environment_of_ones_own_keeps_its_name_where_a_run_goes_on_or_is_recorded(
    corridor: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("minari")
    monkeypatch.chdir(tmp_path)
    own = ["own_corridor:Corridor", "--env.reward", "2", "--allow-import"]
    again = ["train", "q_learning", *own, "--steps", "50", "--out", "run"]
    assert main(again) == 0 and main([*again, "--resume"]) == 0
    assert "is complete" in capsys.readouterr().out
    assert main(["train", "q_learning", "other:Corridor", *again[3:], "--resume"]) == 2
    assert "was started with env own_corridor/Corridor" in capsys.readouterr().err
    assert main(["record", *own, "--episodes", "2", "--out", "my data"]) == 0
    shown = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert shown[-5:] == ["--env.reward", "2", "--data", "my data", "--allow-import"]
    gymnasium.registry.pop("own_corridor/Corridor")  # as in a new process
    assert main([*shown[1:], "--passes", "1", "--eval-every", "0", "--out", "copy"]) == 0
    assert main(["doctor", "run"]) == 2, "the folder has no fault"
    assert "give --allow-import" in capsys.readouterr().err


def test_an_environment_of_ones_own_is_given_as_its_class_or_a_function(corridor: Any) -> None:
    for one in (corridor.Corridor, corridor.corridor):
        run = rlbook.train("q_learning", one, steps=200, env_kwargs={"reward": 2.0})
        assert max(run.episode_returns) == 2.0
    with pytest.raises(rlbook.RequestError, match=r"Corridor.*unexpected keyword argument 'size'"):
        rlbook.train("q_learning", corridor.Corridor, steps=20, env_kwargs={"size": 2})
    with pytest.raises(
        rlbook.RequestError, match=r"must make a gymnasium\.Env, but int made a int"
    ):
        rlbook.train("q_learning", int, steps=20)  # type: ignore[arg-type]


def test_what_is_no_environment_is_told_how_to_become_one() -> None:
    class Unrelated:
        def reset(self) -> None: ...
        def step(self) -> None: ...

    many = gymnasium.make_vec("CartPole-v1", num_envs=3)
    with pytest.raises(rlbook.RequestError, match=r"a single environment, and num_envs=3"):
        rlbook.train("ppo", many, steps=20)  # type: ignore[arg-type]
    with pytest.raises(rlbook.RequestError, match=r"derive its class from gymnasium\.Env"):
        rlbook.train("ppo", Unrelated(), steps=20)  # type: ignore[arg-type]


def test_an_action_outside_the_space_is_not_blamed_on_the_environment() -> None:
    class Stray(rlbook.Agent):
        def act(self, observation: Any, *, explore: bool = True) -> Any:
            return np.full(4, 7)

        def learn(self, step: rlbook.Step) -> dict[str, float]:
            return {}

    class Broken(gymnasium.Env):
        observation_space, action_space = spaces.Discrete(4), spaces.Discrete(2)

        def reset(self, **_: Any) -> Any:
            return 0, {}

        def step(self, action: Any) -> Any:
            raise KeyError("mine")

    with pytest.raises(
        rlbook.TrainingError, match=r"^act gave .*7.* not an action of Discrete\(2\)"
    ):
        rlbook.train(Stray, "CartPole-v1", steps=20)
    with pytest.raises(rlbook.TrainingError, match=r"^the environment failed at step 1: KeyError"):
        rlbook.train("q_learning", Broken(), steps=20)


def test_a_budget_may_be_written_as_a_float() -> None:
    assert rlbook.train("q_learning", "Maze-v0", steps=1e2).steps == 100  # type: ignore[arg-type]
    with pytest.raises(rlbook.RequestError, match=r"steps must be an integer .* got 100\.5"):
        rlbook.train("q_learning", "Maze-v0", steps=100.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("total_timesteps", "steps"), ("n_epochs", "epochs"), ("n_envs", "num_envs")],
)
def test_names_of_other_libraries_lead_to_those_here(
    theirs: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(rlbook.RequestError, match=f"did you mean '{ours}'"):
        asked: dict[str, Any] = {theirs: 10}
        rlbook.train("ppo", "CartPole-v1", **asked)
    option = "--" + theirs.replace("_", "-")
    assert main(["train", "ppo", "CartPole-v1", option, "10"]) == 2
    assert f"did you mean '--{ours.replace('_', '-')}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda run: run.learn(10), AttributeError, "a run has no 'learn'; did you mean 'train'"),
        (lambda run: run.set_env, AttributeError, r"rlbook\.train\(…, env, start=run\) trains"),
        (lambda run: run.get_env, AttributeError, "did you mean 'make_env'"),
        (lambda run: run.policy, AttributeError, r"its networks are run\.agent\.policy"),
        (lambda run: run.get_parameters(), AttributeError, r"run\.agent\.state_dict\(\)"),
        (lambda run: run.save_replay_buffer("b"), AttributeError, r"run\.save\(folder\) keeps"),
        (lambda run: run.n_steps, AttributeError, r"hyper-parameters are run\.agent\.config"),
        (lambda run: run.ep_info_buffer, AttributeError, r"returns are run\.episode_returns"),
        (lambda run: run.qwertz, AttributeError, "^a run has no 'qwertz'$"),
        (lambda run: run.score(), AttributeError, r"run\.evaluate\(episodes=100\)\.mean"),
        (lambda run: run.observation_space, AttributeError, r"run\.make_env\(\) has it"),
        (lambda run: run.q_table, AttributeError, r"run\.agent\.action_values\(\)"),
        (lambda run: run.path, AttributeError, r"its folder is run\.folder$"),
        (lambda run: run.agent.select_action(0), AttributeError, r"agent\.predict\(observation\)"),
        (lambda run: run.evaluate(run.make_env()), ValueError, r"run\.evaluate\(env=…\)$"),
        (lambda run: run.agent.save("a"), AttributeError, r"an agent has no 'save'; run\.save\("),
        (lambda run: run.agent.qwertz, AttributeError, "no attribute 'qwertz'$"),
        (lambda run: run.train(total_timesteps=5), TypeError, "did you mean 'steps'"),
        (
            lambda run: run.predict(0, deterministic=True),
            TypeError,
            "it acts greedily, with explore=True as in training, and returns the action alone",
        ),
        (lambda run: run.agent.predict(0, action_masks=None), TypeError, "mean 'action_mask'"),
        (
            lambda run: run.plot(output="a.png"),
            TypeError,
            "^plot has no argument 'output'; did you",
        ),
        (lambda run: type(run.agent).Config(gama=1.0), ValueError, "did you mean 'gamma'"),
        (lambda run: run.watch(gif_path="a.gif"), TypeError, "^watch has no argument 'gif_path'"),
    ],
)
def test_what_a_run_does_not_have_leads_to_what_it_has(
    call: Callable[[Any], object], kind: type[Exception], message: str
) -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=10, eval_every=0)
    with pytest.raises(kind, match=message):
        call(run)


@pytest.mark.parametrize(
    ("algorithm", "theirs", "ours"),
    [
        ("dqn", "exploration_fraction", "epsilon"),
        ("dqn", "target_update_interval", "target_period"),
        ("sac", "ent_coef", "temperature"),
        ("sac", "update_after", "learning_starts"),
        ("ppo", "tensorboard_log", "track"),
        ("ppo", "progress_bar", "quiet"),
        ("ppo", "callback", "callbacks"),
        ("ppo", "features_extractor_class", "model"),
        ("ppo", "features_extractor_kwargs", "model"),
        ("ppo", "activation_fn", "activation"),
        ("ppo", "norm_obs", "normalize_observation"),
        ("ppo", "clip_coef", "clip"),
        ("ppo", "repeat_per_collect", "epochs"),
        ("ppo", "sgd_minibatch_size", "batch_size"),
        ("ppo", "hidden_layer_sizes", "hidden_sizes"),
        ("ppo", "policy_learning_rate", "learning_rate"),
        ("cql", "alpha", "conservative_coef"),
        ("ppo", "num_minibatches", "batch_size"),
        ("ppo", "cuda", "device"),
        ("ppo", "total_steps", "steps"),
        ("dqn", "replay_buffer_class", "prioritized"),
        ("dqn", "start_e", "epsilon"),
        ("sac", "polyak", "tau"),
    ],
)
def test_names_of_stable_baselines_and_spinning_up_lead_to_those_here(
    algorithm: str, theirs: str, ours: str
) -> None:
    asked: dict[str, Any] = {theirs: 1}
    with pytest.raises(rlbook.RequestError, match=f"did you mean '{ours}'"):
        rlbook.train(algorithm, "CartPole-v1", **asked)


@pytest.mark.parametrize(
    ("algorithm", "theirs", "said"),
    [
        ("ppo", "use_sde", "; state-dependent exploration"),
        ("ppo", "log_interval", "; a line is logged a hundred times"),
        ("ppo", "capture_video", "; `rlbook watch"),
        ("sac", "alpha", "; its α is temperature, or initial_temperature"),
        ("ppo", "use_sed", "; state-dependent exploration"),
        ("ppo", "use_gae", r" \(`rlbook train ppo"),
        ("ppo", "qwertz", r" \(`rlbook train ppo --help` shows all\)$"),
        ("q_learning", "qwertz", r" \(it has: epsilon, .*, alpha\)$"),
    ],
)
def test_what_has_no_other_name_here_is_told_in_a_sentence(
    algorithm: str, theirs: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {theirs: 1}
    with pytest.raises(rlbook.RequestError, match=f"no hyper-parameter '{theirs}'{said}"):
        rlbook.train(algorithm, "CartPole-v1", **asked)
    if said[0] == ";":
        assert main(["train", algorithm, "CartPole-v1", f"--{theirs.replace('_', '-')}", "1"]) == 2
        assert re.search(said, capsys.readouterr().err)


def test_an_environment_is_one_and_says_what_makes_several() -> None:
    for name in ("num_envs", "num_env"):  # a slip is told the same
        with pytest.raises(rlbook.RequestError, match=f"no argument '{name}'; training makes"):
            rlbook.make("CartPole-v1", **{name: 4})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("reward_funcs", r"env_kwargs=\{'reward': …\}"),
        ("lora_r", r"model=\{'adapter': \{'r': …\}\}"),
        ("bf16", r"model=\{'compute': …\}"),
        ("totl_timesteps", "'steps'"),
    ],
)
def test_what_stands_inside_an_argument_is_shown_there(theirs: str, ours: str) -> None:
    asked: dict[str, Any] = {theirs: 1}
    with pytest.raises(rlbook.RequestError, match=rf"did you mean {ours}\?"):
        rlbook.train("grpo", "Addition-v0", **asked)


@pytest.mark.parametrize(
    ("name", "said"),
    [("GRPOTrainer", r'rlbook\.train\("grpo", "Chat-v0"'), ("learn", "did you mean 'train'")],
)
def test_an_import_of_what_is_not_there_says_what_is(name: str, said: str) -> None:
    with pytest.raises(ImportError, match=f"^cannot import '{name}' from rlbook; {said}"):
        exec(f"from rlbook import {name}", {})
    assert not hasattr(rlbook, name)
    with pytest.raises(ImportError, match=r"'PPOO' from rlbook\.algorithms; did you mean 'PPO'"):
        exec("from rlbook.algorithms import PPOO", {})


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("evaluate_policy", r"rlbook\.evaluate\(run, episodes=10\)"),
        ("make_vec_env", "num_envs=4"),
        ("EvalCallback", "eval_every=1000"),
        ("VecNormalize", "normalize_observation=True"),
        ("REINFORCE", "did you mean 'Reinforce'"),
        ("DoubleDQN", "it is dqn, whose double is on by default"),
        ("QRDQN", "it is not part of rlbook"),
        ("make_env", r'rlbook\.make\("CartPole-v1"\)'),
        ("Batch", "arrays of NumPy"),
        ("HerReplayBuffer", "not part of rlbook"),
        ("plot", r"run\.plot\(\)"),
        ("learn", "did you mean 'train'"),
    ],
)
def test_what_the_package_does_not_have_leads_to_what_it_has(theirs: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=f"'rlbook' has no attribute '{theirs}'; .*{ours}"):
        getattr(rlbook, theirs)


OF_AN_OBJECT = ("agent", "metrics", "request", "folder")
"""Attributes of a run that its class does not have."""


def test_what_rlbook_tells_of_other_libraries_is_there() -> None:
    tables = OF_A_RUN, OF_AN_AGENT, OF_AN_ENVIRONMENT, OF_THE_PACKAGE, OF_TRAINING
    for names in tables:
        for said in names.values():
            for name in re.findall(r'rlbook\.train\("(\w+)"', said):
                assert rlbook.registry.agent_class(name), said
            for name in re.findall(r"\brlbook\.(\w+)\(", said):
                assert callable(getattr(rlbook, name)), said
            for name in re.findall(r"\brun\.(\w+)", said):
                assert hasattr(rlbook.Run, name) or name in OF_AN_OBJECT, said
    for said in OF_AN_EVALUATION.values():
        for name in re.findall(r"\bevaluation\.(\w+)", said):
            assert hasattr(Evaluation, name) or name in ("returns", "lengths"), said
    assert not OF_AN_EVALUATION.keys() & {*dir(Evaluation)}
    assert not OF_A_RUN.keys() & {*dir(rlbook.Run)} and not OF_THE_PACKAGE.keys() & {*dir(rlbook)}
    settings = {
        agent: {item.name for item in dataclasses.fields(agent.Config)}  # type: ignore[arg-type]
        for agent in rlbook.algorithms().values()
    }
    assert not OF_TRAINING.keys() & {*SYNONYMS, *NAMES}.union(*settings.values())
    for algorithm, names in OF_ALGORITHMS.items():
        assert not names.keys() & settings[rlbook.algorithms()[algorithm]]
    for agent in settings:
        assert not [name for name in OF_AN_AGENT if hasattr(agent, name)]


@pytest.mark.parametrize("name", RELATED)
def test_an_algorithm_that_is_another_one_with_settings_leads_there(name: str) -> None:
    with pytest.raises(rlbook.RequestError, match=f"^unknown algorithm '{name}'; it is (\\w+)"):
        rlbook.train(name, "CartPole-v1")
    found = re.match(r"(\w+)", RELATED[name])
    assert found is not None
    config = rlbook.algorithms()[found[1]].Config  # type: ignore[attr-defined]
    given = dict(re.findall(r"(\w+)=['\"]?(\w+)", RELATED[name]))
    assert given.keys() <= {item.name for item in dataclasses.fields(config)}


def test_the_classes_of_all_algorithms_can_be_imported_from_the_package() -> None:
    from rlbook import SAC

    assert SAC is rlbook.algorithms()["sac"]


def test_a_schedule_given_as_a_function_is_told_what_a_schedule_is() -> None:
    with pytest.raises(rlbook.RequestError, match=r"a schedule such as 'linear\(0\.001, 0\.0\)'"):
        rlbook.train("ppo", "CartPole-v1", learning_rate=lambda left: 1e-3 * left)  # type: ignore[arg-type]


def test_a_class_called_as_in_stable_baselines_says_how_it_is_trained() -> None:
    made: Any = rlbook.PPO
    for call in (
        lambda: made("MlpPolicy", "CartPole-v1"),
        lambda: made(gamma=0.9),
        lambda: made(),
        lambda: made(gymnasium.make("CartPole-v1")),
    ):
        with pytest.raises(rlbook.RequestError, match=r"rlbook\.train\(PPO, 'CartPole-v1'\)"):
            call()
    with pytest.raises(AttributeError, match=r"^PPO has no 'load'; rlbook\.load\(folder\)\.agent"):
        made.load("folder")
    assert [*inspect.signature(made).parameters] == ["env", "config", "seed", "parts"]
    assert inspect.signature(type(made))  # which the site's pages ask for
    with pytest.raises(rlbook.RequestError, match=r"a network of your own is model=\{'network'"):
        rlbook.train("ppo", "CartPole-v1", model="MlpPolicy")
    with pytest.raises(rlbook.RequestError, match=r"all else is named, such as steps=10_000"):
        rlbook.train("ppo", "MlpPolicy", "CartPole-v1")  # type: ignore[call-overload]
    with pytest.raises(rlbook.RequestError, match=r"got dict; give its entries as arguments"):
        rlbook.train("ppo", "CartPole-v1", config={"gamma": 0.9})  # type: ignore[call-overload]
    with pytest.raises(rlbook.RequestError, match="is an environment, and the algorithm comes"):
        rlbook.train("CartPole-v1", "ppo")  # type: ignore[call-overload]
    with pytest.raises(rlbook.RequestError, match=r"takes an environment's id, got a TimeLimit"):
        rlbook.make(gymnasium.make("CartPole-v1"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ('rlbook.train("ppo")', r'^train needs env, as in rlbook\.train\("ppo", "CartPole-v1"\)'),
        ("rlbook.train()", r"^train needs algorithm and env, .*; `rlbook list` shows what trains"),
        ('rlbook.train("ppo", algorithm="dqn")', "^train got algorithm twice"),
        ("rlbook.evaluate()", r'^evaluate needs target, as in rlbook\.evaluate\("runs/pole"'),
        ("rlbook.evaluate(None)", "^a run is loaded from its folder, got a NoneType"),
        ("rlbook.compare()", "^compare needs runs, as in"),
        ("rlbook.compare(run, run)", r'^compare takes runs by position, .*\["runs/a", "runs/b"\]'),
        ("rlbook.compare([run, None])", "^compare takes runs and their folders, got a NoneType"),
        ("rlbook.compare({'a': run})", "^compare takes a list of runs .*, got a dict$"),
        ("rlbook.load()", "^load needs folder, as in"),
        ("rlbook.load(run)", "^a run is loaded from its folder, got a Run"),
        ("rlbook.make()", r'^make needs env_id, as in rlbook\.make\("CartPole-v1"\)'),
        ('rlbook.train("q_learning", "Maze-v0", out=5)', "^out must be a path, got 5$"),
        ("run.save(None)", "^folder must be a path, got None$"),
        ("run.watch(gif=5)", "^gif must be a path, got 5$"),
        ("run.predict()", r"^predict needs observation, as in run\.predict\(observation\)"),
        ("run.save()", "^save needs folder, as in"),
        ("run.train(100)", r"^train takes arguments by name alone, as in run\.train\(steps="),
        ("run.watch('a.gif')", r"the film's file is given by name: run\.watch\(gif='a\.gif'\)"),
        ("run.watch(file='a.gif')", "^watch has no argument 'file'"),
    ],
)
def test_a_call_with_wrong_arguments_is_told_a_right_one(call: str, said: str) -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=20, eval_every=0)
    with pytest.raises((TypeError, ValueError), match=said):
        eval(call, {"rlbook": rlbook, "run": run})  # noqa: S307


@pytest.mark.parametrize("keep", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_run_is_saved_and_not_pickled(keep: Callable[[Any], object]) -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=20, eval_every=0)
    with pytest.raises(rlbook.RequestError, match=r"^a run is not pickled or copied: run\.save\("):
        keep(run)


def pickled(kept: Any) -> Any:
    return pickle.loads(pickle.dumps(kept))  # noqa: S301


@pytest.mark.thorough(quick=3)
@pytest.mark.parametrize(
    ("algorithm", "env", "steps"),
    [
        ("ppo", "CartPole-v1", 256),
        ("q_learning", "Maze-v0", 100),
        ("sac", "Pendulum-v1", 150),
        ("a2c", "CartPole-v1", 200),
        ("dqn", "CartPole-v1", 300),
        ("world_model", "Pendulum-v1", 60),
        ("grpo", "Addition-v0", 330),  # within a round of texts
        ("ppo", "Addition-v0", 330),
    ],
)
@pytest.mark.parametrize("keep", [pickled, copy.deepcopy])
def test_a_pickled_agent_learns_on_as_the_agent_itself(
    keep: Callable[[Any], Any], algorithm: str, env: str, steps: int
) -> None:
    asked: dict[str, Any] = {"steps": steps, "eval_every": 0, "eval_episodes": 1}
    run, other = (rlbook.train(algorithm, env, **asked) for _ in range(2))
    kept = run.agent.state_dict()  # which shares tensors with the agent until the next step
    run.agent = keep(run.agent)
    assert content(run.agent.state_dict()) == content(kept)
    for each in (run, other):
        each.train(steps=steps)
    assert content(run.agent.state_dict()) == content(other.agent.state_dict())
    assert run.episode_returns == other.episode_returns


def test_a_pickled_agent_that_searches_is_told_where_it_is() -> None:
    """It looks into its environment, and a pickle holds a copy of that."""
    agent = rlbook.train("alphazero", "Maze-v0", steps=20, eval_every=0, eval_episodes=1).agent
    env = rlbook.make("Maze-v0")
    shown, _ = env.reset(seed=1)
    there = [each.bind_env(env).predict(shown) for each in (agent, pickled(agent))]
    assert there[0] == there[1]


def test_tab_completes_algorithms_environments_and_hyperparameters() -> None:
    assert "ppo" in completions('rlbook.train("pp')
    assert "CartPole-v1" in completions('rlbook.train("ppo", "Car')
    assert completions('rlbook.train("ppo", "CartPole-v1", lear') == ["learning_rate="]
    assert completions('rlbook.train("ppo", "CartPole-v1", model="Car') == []


def test_numbers_and_devices_of_other_libraries_are_taken() -> None:
    table = rlbook.train("q_learning", "Maze-v0", steps=20, alpha=np.float32(0.5), eval_every=0)
    assert table.agent.config.alpha(0.0) == 0.5
    asked: dict[str, Any] = {"steps": 32, "rollout_steps": 4, "eval_every": 0}
    run = rlbook.train("ppo", "CartPole-v1", device=torch.device("cpu"), **asked)
    assert run.request.options.device == "cpu"
    with pytest.raises(rlbook.RequestError, match=r"device must be one of .*, got '7'"):
        rlbook.train("ppo", "CartPole-v1", device=7, **asked)


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory: pytest.TempPathFactory) -> rlbook.Run:
    """A run whose folder does not name its environment."""
    env = gymnasium.wrappers.TransformReward(
        gymnasium.make("FrozenLake-v1", is_slippery=False), lambda reward: 2 * reward
    )
    return rlbook.train("q_learning", env, steps=2000, out=tmp_path_factory.mktemp("runs") / "a")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("evaluate {} --episodes 2", 2, "in wrappers; give env, .* take --env ID"),
        ("evaluate {} --episodes 2 --env FrozenLake-v1", 0, "mean return"),
        ("watch {}", 2, "in wrappers; give env, .* take --env ID"),
        ("watch {} --env FrozenLake-v1", 0, "episode 1: return"),
        ("watch {} --env CartPole-v1", 2, "q_learning"),
        ("doctor {}", 0, "undamaged"),
        ("doctor {} --env FrozenLake-v1", 0, "undamaged"),
    ],
)
def test_a_run_of_a_wrapped_environment_is_used_in_a_named_one(
    wrapped: rlbook.Run, command: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.format(wrapped.folder).split()) == code
    shown = capsys.readouterr()
    assert re.search(said, shown.out + shown.err), shown


def test_a_run_is_watched_in_another_environment(
    wrapped: rlbook.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = gymnasium.make("FrozenLake-v1", is_slippery=False)
    assert wrapped.watch() == [2.0] and wrapped.watch(env=dry) == [1.0]
    assert rlbook.plots.watch(str(wrapped.folder), env=dry) == [1.0]
    with pytest.raises(rlbook.RequestError, match="CartPole-v1"):
        wrapped.watch(env="CartPole-v1")


def test_the_environment_of_a_wrapped_run_has_a_name_in_tables(wrapped: rlbook.Run) -> None:
    assert [row.env for row in rlbook.compare([str(wrapped.folder)])] == ["own environment"]


def test_a_run_is_resumed_in_its_own_environment_alone(wrapped: rlbook.Run) -> None:
    assert wrapped.folder is not None
    run = rlbook.load(wrapped.folder, env="FrozenLake-v1")
    assert run.steps == 2000
    with pytest.raises(CheckpointError, match="does not fit q_learning on FrozenLake-v1"):
        run.train(steps=10)
    named = rlbook.train("q_learning", "Maze-v0", steps=20, out=wrapped.folder.parent / "b").folder
    assert named is not None and rlbook.load(named, env=rlbook.make("Maze-v0")).steps == 20
    for env in ("CartPole-v1", gymnasium.wrappers.TimeAwareObservation(rlbook.make("Maze-v0"))):
        with pytest.raises(rlbook.RequestError, match=r"is Maze-v0, not .*rlbook\.evaluate\("):
            rlbook.load(named, env=env)


def test_a_resumed_run_is_told_how_its_budget_grows(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"out": tmp_path / "run", "eval_every": 0}
    rlbook.train("q_learning", "Maze-v0", steps=20, **asked)
    with pytest.raises(rlbook.RequestError, match=r"; rlbook\.load\(folder\)\.resume\(steps=40\)"):
        rlbook.train("q_learning", "Maze-v0", steps=40, resume=True, **asked)


@pytest.fixture(scope="module")
def returned() -> Evaluation:
    """Returns 1, 2 and 6: mean 3, and sample variance (4 + 1 + 9) / 2 = 7."""
    return Evaluation(np.array([1.0, 2.0, 6.0]), np.array([4, 4, 4]))


def test_an_evaluation_is_a_number_where_one_is_asked_for(returned: Evaluation) -> None:
    assert float(returned) == 3.0 and f"{returned:.1f}" == "3.0"
    assert f"{returned}" == str(returned) and "3 episodes>" in str(returned)
    assert returned.std == 7**0.5
    assert Evaluation(np.array([3.0]), np.array([1])).std == 0.0


def test_evaluations_with_the_same_episodes_are_equal(returned: Evaluation) -> None:
    assert returned == copy.deepcopy(returned) == pickled(returned)
    assert returned != Evaluation(np.array([1.0, 2.0, 5.0]), returned.lengths)
    assert returned != 3.0


@pytest.mark.parametrize(
    ("use", "kind", "said"),
    [
        (lambda found: tuple(found), TypeError, r"evaluation\.mean, .* evaluation\.std$"),
        (lambda found: found["mean"], TypeError, r"evaluation\.mean, .* evaluation\.std$"),
        (lambda found: found.mean_reward, AttributeError, r"return is evaluation\.mean$"),
        (lambda found: found.episode_rewards, AttributeError, r"are evaluation\.returns$"),
        (lambda found: found.confidence, AttributeError, "did you mean 'confidence_interval'"),
        (lambda found: found.qwertz, AttributeError, "^an evaluation has no 'qwertz'$"),
    ],
)
def test_what_an_evaluation_does_not_have_leads_to_what_it_has(
    returned: Evaluation, use: Callable[[Any], object], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        use(returned)


def test_runs_to_compare_may_come_from_a_generator() -> None:
    made = (rlbook.train("q_learning", "Maze-v0", steps=200, seed=seed) for seed in range(2))
    assert [len(row.scores) for row in rlbook.compare(made)] == [2]


def test_a_rule_written_by_hand_is_evaluated_as_an_agent_is() -> None:
    """Pushing towards where the pole falls holds it up for all 500 steps."""

    def push(observation: Any) -> int:
        return int(observation[2] + observation[3] > 0)

    found = rlbook.evaluate(push, env="CartPole-v1", episodes=5)
    assert found.returns.tolist() == [500.0] * 5
    with pytest.raises(rlbook.RequestError, match="give env"):
        rlbook.evaluate(push)
    with pytest.raises(rlbook.RequestError, match="PPO is a class; give an agent made of it"):
        rlbook.evaluate(rlbook.PPO, env="CartPole-v1")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of the same settings and different seeds."""
    folder = tmp_path_factory.mktemp("all runs")
    for seed in (0, 1):
        rlbook.train("q_learning", "Maze-v0", steps=300, seed=seed, out=folder / f"walk-{seed}")
    return folder


def test_a_folder_that_is_no_run_says_which_is(runs: Path) -> None:
    for name, said in (
        ("wakl-1", f"does not exist; did you mean '{runs / 'walk-1'}'"),
        (".", f"the runs in it are {runs / 'walk-0'}, {runs / 'walk-1'}"),
        ("walk-0/config.yaml", "it is a file"),
    ):
        with pytest.raises(rlbook.RequestError) as refused:
            rlbook.load(runs / name)
        assert said in str(refused.value)
    with pytest.raises(rlbook.RequestError, match="is a file; a run needs a folder of its own"):
        rlbook.train("q_learning", "Maze-v0", steps=20, out=runs / "walk-0" / "config.yaml")


def test_the_same_run_counts_once_however_often_it_is_compared(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = [runs / "walk-0", runs / "walk-1"]
    (row,) = rlbook.compare(pair)
    (live,), twice = rows_and_repeats([rlbook.load(pair[0]), pair[0], pair[1]])
    copy = shutil.copytree(pair[0], tmp_path / "copy of walk-0")
    (copied,), repeats = rows_and_repeats([*pair, copy])
    assert twice == [] and [
        re.fullmatch(".*copy of walk-0 repeats .*walk-0, .* counts once", said) is not None
        for said in repeats
    ] == [True]
    # others may warn meanwhile: what the garbage collector closes is nothing of this test's
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert [item.scores.tolist() for item in rlbook.compare([*pair, copy])] == [
            copied.scores.tolist()
        ]
    assert repeats == [str(item.message) for item in warned if "counts" in str(item.message)]
    assert len(row.scores) == len(live.scores) == len(copied.scores) == 2
    assert copied.confidence_interval == row.confidence_interval
    assert main(["compare", str(pair[0]), str(copy), "--out", str(tmp_path / "c.png")]) == 0
    assert "note: " in (said := capsys.readouterr().err) and "counts once" in said


def test_line_ends_of_windows_do_not_damage_a_run(runs: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(runs / "walk-0", tmp_path / "copy")
    config = copy / "config.yaml"
    config.write_bytes(config.read_bytes().replace(b"\n", b"\r\n"))
    assert rlbook.load(copy).resume(steps=400).steps == 400
    config.write_bytes(config.read_bytes().replace(b"gamma: ", b"gamma: 0.5 #"))
    with pytest.raises(Exception, match=r"another config\.yaml"):
        rlbook.load(copy)


def test_a_hyper_parameter_outside_its_place_in_a_config_file_is_told_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.yaml"
    for key, said in (
        ("gamma", "unknown entry 'gamma'; it belongs below 'hyperparameters:'"),
        ("gama", "it belongs below 'hyperparameters:', indented: did you mean 'gamma'?"),
    ):
        file.write_text(f"algorithm: ppo\r\nenv: CartPole-v1\r\n{key}: 0.9\r\n")
        assert main(["train", "--config", str(file)]) == 2
        assert said in capsys.readouterr().err


def test_a_run_given_as_data_says_how_to_record_it(runs: Path) -> None:
    with pytest.raises(rlbook.RequestError, match=r"is a run; record .*rlbook record '.*walk-0'"):
        rlbook.train("behavior_cloning", "Maze-v0", data=runs / "walk-0", passes=1)


def test_the_command_after_recording_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my data"
    pytest.importorskip("minari")
    words = ["record", "Maze-v0", "--env.size", "7", "--env.rewards", "standard"]
    assert main([*words, "--episodes", "1", "--out", str(out)]) == 0
    assert f"--env.size 7 --env.rewards standard --data '{out}'" in capsys.readouterr().out


def test_a_single_callback_needs_no_list_and_none_trains_its_run() -> None:
    class Stops:
        reports = 0

        def on_report(self, run: rlbook.Run) -> str:
            self.reports += 1
            return "stop"

    stops = Stops()
    run = rlbook.train("q_learning", "Maze-v0", steps=300, callbacks=stops)
    assert stops.reports and run.steps < 300
    with pytest.raises(rlbook.RequestError, match="a callback cannot train it"):
        rlbook.train("q_learning", "Maze-v0", steps=300, on_report=lambda run: run.train(steps=9))
    with pytest.raises(rlbook.RequestError, match=r"on_report must be a function .* got 'stop'"):
        rlbook.train("q_learning", "Maze-v0", steps=300, on_report="stop")  # type: ignore[arg-type]
    assert run.train(steps=10).steps > 10  # an ended run trains on
    with pytest.raises(rlbook.RequestError, match=r"got the class; give Stops\(\)"):
        rlbook.train("q_learning", "Maze-v0", steps=300, callbacks=[Stops])
    with pytest.raises(rlbook.RequestError, match="none of them; give a function as on_report"):
        rlbook.train("q_learning", "Maze-v0", steps=300, callbacks=[print])


class WithMetrics:
    def on_episode(self, run: rlbook.Run, metrics: dict[str, float]) -> None:
        raise AssertionError(metrics)


@pytest.mark.parametrize(
    ("callbacks", "taken"),
    [
        ({"on_report": lambda: None}, r"\(\)"),
        ({"on_evaluation": lambda local, all_of_them: True}, r"\(local, all_of_them\)"),
        ({"callbacks": WithMetrics()}, r"\(run: .*, metrics: .*\)"),
    ],
)
def test_a_callback_of_other_arguments_is_refused_before_training(
    callbacks: dict[str, Any], taken: str
) -> None:
    with pytest.raises(
        rlbook.RequestError, match=f"a function of the run alone, got one of {taken}"
    ):
        rlbook.train("q_learning", "Maze-v0", steps=10**12, **callbacks)


@pytest.mark.parametrize("answer", [False, True, np.bool_(True), "Stop"])
def test_what_a_callback_returns_is_stop_or_nothing(answer: object) -> None:
    """Other libraries end a run where a callback returns False; `return x >= 475` is one, too."""
    with pytest.raises(rlbook.RequestError, match=r"on_report must return 'stop' .* got "):
        rlbook.train("q_learning", "Maze-v0", steps=30, on_report=lambda run: answer)
    run = rlbook.train("q_learning", "Maze-v0", steps=30, on_report=lambda run: run.steps)
    assert run.steps >= 30


def test_ablations_apart_are_told_to_stand_together(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ablate", "ppo", "CartPole-v1", "--off", "entropy_coef", "normalize_advantage"]
    assert main(words) == 2
    assert "--off entropy_coef,normalize_advantage" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train ppo --env CartPole-v1", "'--env'; algorithm and environment come first"),
        ("train --algo ppo --env CartPole-v1", "'--algo'; algorithm and environment come first"),
        ("train ppo CartPole-v1 1000", "'1000'; name it, as in --steps 1000"),
        ("train ppo CartPole-v1 --no-cuda", "'--no-cuda'; did you mean '--device'?"),
        ("train ppo CartPole-v1 --wandb", "'--wandb'; did you mean '--track'?"),
        ("enjoy ppo", "unknown command 'enjoy'; did you mean 'watch'? (rlbook --help shows all)"),
        ("list environments", "list knows no 'environments'; did you mean 'envs'?"),
    ],
)
def test_command_lines_of_other_libraries_are_told_what_to_type(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("sizes", ["64,32", "[64,32]", "(64, 32)", "64, 32"])
def test_layers_are_named_as_in_python_or_without_its_brackets(sizes: str) -> None:
    found = convert("--hidden-sizes", OptionText((sizes,)), tuple[int, ...])
    assert found == (64, 32)
