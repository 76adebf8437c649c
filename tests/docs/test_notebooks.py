"""The notebooks: they run, what they say is true, solutions pass the checks, and a plausible wrong
answer does not."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
import yaml

from rlbook.book.course.notebook import find_function

matplotlib.use("agg")
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CLAIMS = yaml.safe_load(
    Path(__file__).with_name("notebook_claims.yaml").read_text(encoding="utf-8")
)
"""Notebook → what is true behind which of its cells; a reader does not see these checks."""

WRONG: dict[str, tuple[str, str, str]] = {
    "hidden-states": (
        # filled with 0
        "def stack(seen, k): return np.concatenate([np.zeros(k), seen])[-k:]",
        # never reset
        (
            "def hidden_states(seen, starts, w):\n    h, found = 0.0, []\n    for o in seen:\n"
            "        h = w * h + o\n        found.append(h)\n    return found"
        ),
        # the last step is left out
        "def mask(ended): return (np.cumsum(ended) == 0).astype(int)",
    ),
    "q-learning-from-nothing": (
        # bootstraps behind the end
        (
            "def updated(Q, state, action, reward, next_state, terminated, alpha, gamma):\n   "
            " Q[state, action] += alpha * (reward + gamma * Q[next_state].max() - Q[state,"
            " action])\n    return Q"
        ),
        # the goal's reward is discounted once too often
        "def worth(gamma): return -sum(gamma**k for k in range(7)) + 10 * gamma**8",
        # Q-learning's
        (
            "def sarsa_target(Q, reward, next_state, next_action, terminated, gamma):\n"
            "    return reward if terminated else reward + gamma * Q[next_state].max()"
        ),
    ),
    "bellman-to-value-iteration": (
        # the first two steps are not discounted
        "def stubborn(gamma): return -1 - 1 - 5 / (1 - gamma)",
        # synchronous: a second array
        "def sweep_in_place(V): return slippery.backup(V, gamma).max(axis=1)",
        # stops after one improvement
        (
            "def policy_iteration(model, gamma):\n"
            "    V = model.policy_values(np.zeros(model.num_states, dtype=int), gamma)\n"
            "    return model.policy_values(model.backup(V, gamma).argmax(axis=1), gamma)"
        ),
    ),
    "bandits": (
        # every step size falls
        (
            "def estimate(rewards, alpha=None, first=0.0):\n"
            "    Q = first\n"
            "    for n, reward in enumerate(rewards):\n"
            "        Q += (1 / (n + 1) if alpha is None else alpha / (n + 1)) * (reward - Q)\n"
            "    return Q"
        ),
        # as if the best machine were never drawn at random
        (
            "def loss_of_exploring(means, epsilon): return epsilon * (means.max() -"
            " np.sort(means)[:-1].mean())"
        ),
        # without what is taken from the other actions
        "def mean_step(H, means, baseline): return softmax(H) * (means - baseline)",
    ),
    "monte-carlo-and-importance-sampling": (
        # without the discount
        "def returns_of(rewards, gamma): return [sum(rewards[t:]) for t in range(len(rewards))]",
        # upside down
        (
            "def weight_of(actions, pi, b): return np.prod([b[action] / max(pi[action], 1e-3) for"
            " action in actions])"
        ),
        # E[ρ] = 1, squared
        "def second_moment(p): return 1.0",
    ),
    "sarsa-against-q-learning": (
        # Q-learning's
        (
            "def target(reward, next_row, ended, epsilon, gamma=1.0): return reward + (0.0 if ended"
            " else gamma * next_row.max())"
        ),
        # the first digit only
        "def threshold(): return 0.01",
        # chooses and judges with the same numbers
        "def double_estimate(first, second): return first.max(axis=1)",
    ),
    "tile-coding-mountain-car": (
        # every tiling in the same place
        "def tiles_of(number, K, B): return [t * (B + 1) + int(number * B) for t in range(K)]",
        # as in a table: all or nothing
        (
            "def moved(tiles_s, tiles_o, alpha, delta): return alpha * delta *"
            " np.array_equal(tiles_s, tiles_o)"
        ),
        # accumulating traces
        (
            "def trace_step(w, z, x, action, delta, alpha, decay):\n"
            "    z[action, x] += 1.0\n"
            "    w += alpha / len(x) * delta * z\n"
            "    z *= decay\n"
            "    return w"
        ),
    ),
    "dqn-step-by-step": (
        # what follows is discounted by one step alone
        (
            "def earned(rewards, m, gamma): return sum(gamma**k * reward for k, reward in"
            " enumerate(rewards[:m])), gamma"
        ),
        # the weights of rows that were drawn evenly
        (
            "def priorities(errors, omega, beta):\n"
            "    p = np.abs(errors) ** omega\n"
            "    return np.array([p / p.sum(), np.ones(len(errors))])"
        ),
        # each return goes to the nearest atom
        (
            "def projected(prob, reward, gamma, atoms):\n    nearest = np.abs(np.clip(reward +"
            " gamma * atoms, 0, 10)[None, :] - atoms[:, None]).argmin(axis=0)\n    return"
            " np.bincount(nearest, weights=prob, minlength=len(atoms))"
        ),
    ),
    "td-lambda": (
        # the estimate behind the rewards is not discounted
        (
            "def n_step_return(rewards, values, n, gamma):\n    return sum(gamma**k * reward for k,"
            " reward in enumerate(rewards[:n])) + (values[n] if n < len(rewards) else 0.0)"
        ),
        # λ = 1
        (
            "def lambda_returns(rewards, values, gamma, decay):\n    return [sum(gamma**k * reward"
            " for k, reward in enumerate(rewards[t:])) for t in range(len(rewards))]"
        ),
        # TD(0)
        (
            "def td_lambda(V, episode, alpha, gamma, decay):\n    for state, reward, next_state,"
            " ended in episode:\n        V[state] += alpha * (reward + (0.0 if ended else gamma *"
            " V[next_state]) - V[state])\n    return V"
        ),
    ),
    "cloning-and-dagger": (
        # the bound, or half of it
        "def cost_of_a_clone(epsilon, steps): return epsilon * steps**2 / 2",
        # true for small ε alone
        "def share_in_the_field(epsilon, back): return epsilon / back",
        # the share of the recorded steps, not of the states
        "def untried(Q, states, actions): return np.mean(Q[states].argmax(axis=1) != actions)",
    ),
    "r1-on-a-laptop": (
        # the reward less the mean, without the deviation
        "def advantage_of_form(k): return 0.1 - 0.1 * k / 8",
        # the letters of the tags count
        (
            "def latin(text):\n    letters = [letter for letter in text if letter.isalpha()]\n   "
            " return sum('a' <= letter <= 'z' for letter in letters) / len(letters) if letters"
            " else 0.0"
        ),
        # a guess is never right
        "def share_right(p, steps): return p**steps",
    ),
    "tree-search": (
        # without the scale
        (
            "def tries(good, bad, simulations, c):\n"
            "    N = np.array([1, 1])\n"
            "    for n in range(2, simulations):\n"
            "        N[np.argmax(np.array([good, bad]) + c * np.sqrt(np.log(n) / N))] += 1\n"
            "    return N.tolist()"
        ),
        # as if the best move were made
        (
            "def mean_rollout(moves):\n"
            "    V = np.zeros(25)\n"
            "    for _ in range(moves):\n"
            "        V = (r + gamma * P @ V).max(axis=1)\n"
            "    return V"
        ),
        # looks at the most probable outcome alone
        (
            "def deepest(state, depth):\n    if depth == 0:\n        return 0.0\n    return"
            " max(r[state, action] + gamma * deepest(int(P[state, action].argmax()), depth - 1) for"
            " action in range(4))"
        ),
    ),
    "alphazero-tic-tac-toe": (
        # the simulation that added the node is forgotten
        (
            "def turning_point(P, N, Q):\n"
            "    bonus = P * np.sqrt(N.sum()) / (1 + N)\n"
            "    return (Q[0] - Q[1]) / (bonus[1] - bonus[0])"
        ),
        # upside down
        "def sharpened(N, tau): return N**tau / (N**tau).sum()",
        # both sides want the same
        (
            "def worth(board):\n"
            "    found = [move(board, cell) for cell in range(9) if board[cell] == 0]\n"
            "    return max(reward if ended else worth(after) for after, reward, ended in found)"
        ),
    ),
    "reinforce-a2c-ppo": (
        # the own return is in the mean
        "def advantage_of(returns): return returns - returns.mean()",
        # takes the clip for a bound on both sides
        "def slope(ratio, advantage, clip): return advantage * (abs(ratio - 1) < clip)",
        # the expected reward
        "def best_baseline(pi, reward): return pi @ reward",
    ),
    "sac-and-entropy": (
        # without the temperature
        "def soft_policy(q, alpha): return np.exp(q - q.max()) / np.exp(q - q.max()).sum()",
        # the stretch is forgotten
        "def log_density_of_torque(log_prob, scale): return log_prob",
        # takes the entropy for the temperature
        "def temperature_for(q, target_entropy): return target_entropy",
    ),
    "rlif-and-why-it-falls": (
        # the divergence of the policy from chance
        "def certainty(p): return np.sum(p * np.log(p * len(p)))",
        # from the mean, as if the answer had one token
        "def tokens_needed(h, e, goal): return np.ceil((h.mean() - goal) / (goal - e))",
        # as if one half decided
        "def before_and_after(p, q): return [np.mean(p), np.mean(p > 0.5)]",
    ),
    "beam-post-training": (
        # the scores as they are
        "def effective(s, tau): return 1 / ((np.exp(s / tau) / np.exp(s / tau).sum()) ** 2).sum()",
        # the mean and the deviation of all five
        (
            "def advantages_of_the_best(s, kept): return ((np.sort(s)[::-1] - s.mean()) /"
            " s.std(ddof=1))[:kept]"
        ),
        # the other direction
        "def divergence_of(old, new): return (new * np.log(new / old)).sum()",
    ),
    "rlhf-in-four-models": (
        # the share of the scores
        "def preferred(better, worse): return better / (better + worse)",
        # pays for likely answers
        (
            "def text_return(score, log_prob_now, log_prob_before, beta): return score + beta *"
            " (log_prob_now - log_prob_before)"
        ),
        # without the reference
        (
            "def best_policy(reference, score, beta): return np.exp(score / beta) / np.exp(score /"
            " beta).sum()"
        ),
    ),
    "grpo-notebook": (
        # ends at the first closing brace
        "def boxed(text): return (re.findall(r'oxed{(.*?)}', text) or [''])[-1]",
        # on the right
        (
            "def padded(rows, pad):\n    width = max(map(len, rows))\n    tokens = [row + [pad] *"
            " (width - len(row)) for row in rows]\n    return np.array([tokens, [[1] * len(row) +"
            " [0] * (width - len(row)) for row in rows]])"
        ),
        # passes over what is not there
        (
            "def trained(layers, targets, rank): return sum(rank * sum(layers[name]) for name in"
            " layers if name.rpartition('.')[2] in targets)"
        ),
    ),
    "tokens-from-nothing": (
        # k is added to the count alone
        "def smoothed(pair, single, k, V): return (pair + k) / (single + V)",
        # how often a word has the pair, whatever its count
        (
            "def best_count(words): return max(Counter(pair for symbols in words for pair in"
            " pairwise(symbols)).values())"
        ),
        # the base of the power is not that of the logarithm
        "def perplexity(p): return 2 ** -np.mean(np.log(p))",
    ),
    "transformer-from-nothing": (
        # without the root
        "def share_of_the_first(D, s): return 1 / (1 + np.exp(-s / D))",
        # START is not read
        "def tokens_read(n): return [n * (n - 1) // 2, n - 1]",
        # upside down
        "def temperature_of(g, r): return np.log(r) / g",
    ),
    "sft-and-dpo": (
        # without β
        (
            "def implicit_reward(pi, reference, beta): return np.log(pi / reference) - np.log(pi /"
            " reference).mean()"
        ),
        # the weight of a pair that the policy is right about
        "def slope(delta, beta): return -beta / (1 + np.exp(-beta * delta))",
        # the wrong way round
        "def expected_loss(expert, copy): return -(copy * np.log(expert)).sum()",
    ),
    "grpo-in-three-steps": (
        # the deviation of numpy
        "def advantages(R): return (R - R.mean()) / R.std()",
        # both sides whatever the sign
        "def pushes(ratio, A, clip): return float(1 - clip < ratio < 1 + clip)",
        # upside down
        "def settled_beta(beta, G): return beta * (G - 1) / G",
    ),
}
"""Notebook → an answer to each exercise with a mistake that is easily made."""


def code_cells(name):
    """(tags, metadata, source) of each code cell, without IPython's own lines."""
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            source = "".join(line for line in cell["source"] if not line.startswith("%"))
            yield set(cell["metadata"].get("tags", ())), cell["metadata"], source


def defined(source):
    """The functions that a cell defines: name → its lines."""
    return {
        item.name: ast.get_source_segment(source, item)
        for item in ast.parse(source).body
        if isinstance(item, ast.FunctionDef)
    }


def printed(source, names):
    """What a cell prints, executed in `names`."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, "cell", "exec"), names)
    return out.getvalue()


def claims(name, source, names):
    """Runs what is claimed behind a cell."""
    for claim in CLAIMS.get(name, []):
        if claim["in"] in source.split("\n"):
            exec(compile(claim["holds"], f"{name}: {claim['in']}", "exec"), names)


@pytest.mark.parametrize("name", [path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb"))])
def test_a_reader_sees_no_asserts_and_one_line_of_imports_at_the_top(name):
    sources = [source for _, _, source in code_cells(name)]
    assert not any(
        isinstance(node, ast.Assert) for source in sources for node in ast.walk(ast.parse(source))
    )
    assert sources[0].startswith("from rlbook.book.course.notebook import ")
    for claim in CLAIMS.get(name, []):
        assert sum(claim["in"] in source.split("\n") for source in sources) == 1, claim["in"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CLAIMS if name not in WRONG])
def test_what_a_notebook_says_is_true(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "notebook"}
    for _, _, source in code_cells(name):
        printed(source, names)
        claims(name, source, names)
    plt.close("all")


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_each_check_waits_for_an_answer_takes_the_right_one_and_refuses_a_wrong_one(
    name, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    names, said, asked, wrong = {"__name__": "notebook"}, [], "", iter(WRONG[name])
    for tags, _, source in code_cells(name):
        if "solution" in tags:
            said.append(printed(source, names))
            said.append(printed(with_answer(asked, next(wrong)), names))
            printed(source, names)
        elif "exercise" in tags:
            asked = source
            said.append(printed(source, names))
        else:
            printed(source, names)
            claims(name, source, names)
    plt.close("all")
    verdicts = [
        re.fullmatch(r"exercise (\d): (not yet|right|not right, .*)\n", text) for text in said
    ]
    assert all(verdicts), said
    found = [(int(match[1]), match[2].split(",")[0]) for match in verdicts if match]
    assert found == [
        (number, verdict) for number in (1, 2, 3) for verdict in ("not yet", "right", "not right")
    ], said


def with_answer(asked, answer):
    """An exercise's cell with an answer in the place of the function that returns None."""
    (stub,) = (text for text in defined(asked).values() if "\n    return None" in text)
    assert defined(answer).keys() <= defined(asked).keys()
    return asked.replace(stub, answer)


@pytest.mark.parametrize("name", [path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb"))])
def test_the_lines_that_a_notebook_shows_are_where_it_says(name):
    for _, _, source in code_cells(name):
        for place in re.findall(r'\blines\("([\w.]+)"', source):
            assert callable(find_function(place)), place


@pytest.mark.parametrize("name", WRONG)
def test_each_notebook_ends_in_three_exercises_with_the_solutions_folded_away(name):
    ending = [
        (tags, metadata, source)
        for tags, metadata, source in code_cells(name)
        if tags & {"exercise", "solution"}
    ]
    assert [tags & {"exercise", "solution"} for tags, _, _ in ending] == [
        {"exercise"},
        {"solution"},
    ] * 3
    for (_, _, asked), (tags, metadata, solved) in zip(ending[::2], ending[1::2], strict=True):
        assert "hide-input" in tags  # the site folds it
        assert metadata["jupyter"]["source_hidden"] is True  # JupyterLab folds it
        assert "\n    return None\n" in asked
        assert "return None" not in solved
        assert asked.strip().splitlines()[-1] == solved.strip().splitlines()[-1]  # the same check
        assert defined(solved).keys() <= defined(asked).keys()
