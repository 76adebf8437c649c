"""Every exercise solved as a learner would, with numpy alone. Handed in by one student, graded in
test_course.py."""

import math

import numpy as np


def first_return(rewards, gamma):
    return sum(gamma**k * reward for k, reward in enumerate(rewards))


def q_learning_step(q, state, action, reward, next_state, terminated):
    after = q.copy()
    target = reward if terminated else reward + 0.9 * q[next_state].max()
    after[state, action] += 0.5 * (target - q[state, action])
    return after


def epsilon_greedy(values, epsilon):
    best = values == values.max()
    return epsilon / len(values) + (1 - epsilon) * best / best.sum()


def running_mean(rewards):
    means, mean = [], 0.0
    for n, reward in enumerate(rewards, start=1):
        mean += (reward - mean) / n
        means.append(mean)
    return means


def ucb_scores(values, counts, c):
    return values + c * np.sqrt(np.log(counts.sum() + 1) / counts)


def gradient_bandit(H, action, reward, baseline):
    pi = np.exp(H) / np.exp(H).sum()
    return H + 0.1 * (reward - baseline) * ((np.arange(len(H)) == action) - pi)


def returns(rewards, gamma):
    G, found = 0.0, []
    for reward in rewards[::-1]:
        G = reward + gamma * G
        found.append(G)
    return found[::-1]


def action_values(P, r, V, gamma):
    return r + gamma * P @ V


def policy_value(P, r, pi, gamma):
    chain = np.einsum("sa,sat->st", pi, P)
    return np.linalg.solve(np.eye(len(r)) - gamma * chain, (pi * r).sum(axis=1))


def value_iteration(P, r, gamma, sweeps):
    V = np.zeros(len(r))
    for _ in range(sweeps):
        V = (r + gamma * P @ V).max(axis=1)
    return V


def improve(Q, policy):
    return [
        old if row[old] == row.max() else row.argmax() for row, old in zip(Q, policy, strict=True)
    ]


def first_visit(states, G, state):
    return next((g for s, g in zip(states, G, strict=True) if s == state), 0.0)


def importance_weights(actions, pi, b):
    return [np.prod((pi / b)[actions[t:]]) for t in range(len(actions))]


def two_averages(G, weight):
    return np.mean(weight * G), np.sum(weight * G) / np.sum(weight)


def expected_sarsa_target(row, epsilon, reward, terminated):
    return reward + (not terminated) * 0.9 * (epsilon * row.mean() + (1 - epsilon) * row.max())


def double_target(own, other, reward):
    return reward + 0.9 * other[own.argmax()]


def td_error(V, next_V, reward, terminated, truncated):
    return reward - V + (0.0 if terminated else 0.9 * next_V)


def n_step_return(rewards, values, n):
    return sum(0.9**k * rewards[k] for k in range(n)) + 0.9**n * values[n - 1]


def lambda_returns(rewards, values, lam):
    G, found = 0.0, []
    for reward, value in zip(rewards[::-1], values[::-1], strict=True):
        G = reward + 0.9 * ((1 - lam) * value + lam * G)
        found.append(G)
    return found[::-1]


def accumulating_traces(states, decay):
    e = np.zeros(3)
    for state in states:
        e *= decay
        e[state] += 1
    return e


def estimate_model(states, next_states):
    counts = np.zeros((3, 3))
    np.add.at(counts, (states, next_states), 1)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def uct_choice(means, counts, low, high):
    return np.argmax((means - low) / (high - low) + np.sqrt(np.log(counts.sum()) / counts))


def backed_up(means, counts, rewards):
    return [mean + (rewards[k:].sum() - mean) / (counts[k] + 1) for k, mean in enumerate(means)]


def linear_td_step(w, x, reward, next_x, terminated):
    following = 0.0 if terminated else 0.9 * w @ next_x
    return w + 0.1 * (reward + following - w @ x) * x


def huber(errors):
    size = np.abs(errors)
    return np.where(size <= 1, size**2 / 2, size - 0.5)


def replay_weights(priorities, beta):
    weight = (len(priorities) * priorities / priorities.sum()) ** -beta
    return weight / weight.max()


def project(p, reward, terminated):
    after = np.zeros(4)
    for z, share in enumerate(p):
        place = min(max(reward + (0.0 if terminated else 0.5 * z), 0.0), 3.0)
        below = min(int(place), 2)
        after[below] += share * (below + 1 - place)
        after[below + 1] += share * (place - below)
    return after


def score(logits, action):
    return (np.arange(len(logits)) == action) - np.exp(logits) / np.exp(logits).sum()


def gae(rewards, values, last_value, terminated):
    A, found, following = 0.0, [], 0.0 if terminated else last_value
    for reward, value in zip(rewards[::-1], values[::-1], strict=True):
        A = reward + 0.9 * following - value + 0.9 * 0.8 * A
        following = value
        found.append(A)
    return found[::-1]


def ppo_loss(ratio, advantage):
    return -np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage).mean()


def filter_places(n, kernel, stride, padding):
    return len(range(-padding, n + padding - kernel + 1, stride))


def feature_map(x, w, b, stride):
    rows, columns = range(0, len(x) - 1, stride), range(0, len(x[0]) - 1, stride)
    return [[max(0, (x[i : i + 2, j : j + 2] * w).sum() + b) for j in columns] for i in rows]


def max_and_skip(frames, rewards):
    return [*np.maximum(frames[2], frames[3]), sum(rewards)]


def clipped_return(rewards):
    return sum(0.9**t * max(-1, min(1, reward)) for t, reward in enumerate(rewards))


def frame_bytes(lengths):
    return sum((steps + 1) * 84**2 for steps in lengths)


def life_targets(reward, next_q, over, lost, cut):
    goes_on = ~over & ~lost
    return np.clip(reward, -1, 1) + 0.99 * np.where(goes_on, next_q.max(axis=1), 0)


def next_belief(b, P, seen):
    joint = np.array([seen[s] * sum(b[k] * P[k, s] for k in range(3)) for s in range(3)])
    return joint / joint.sum()


def frame_stack(seen, k):
    return [seen[max(len(seen) - k + place, 0)] for place in range(k)]


def gru_step(x, u, h):
    r, z = (1 / (1 + np.exp(-x[part] - u[part])) for part in (0, 1))
    return (1 - z) * np.tanh(x[2] + r * u[2]) + z * h


def hidden_states(seen, starts, h):
    found = []
    for o, start in zip(seen, starts, strict=True):
        h = o if start else h / 2 + o
        found.append(h)
    return found


def sequence_mask(ended):
    mask, over = [], False
    for end in ended:
        mask.append(not over)
        over = over or end
    return mask


def soft_value(q, p, alpha):
    return p @ (q - alpha * np.log(p))


def squashed_log_prob(u, mu, sigma):
    normal = -0.5 * ((u - mu) / sigma) ** 2 - np.log(sigma * np.sqrt(2 * np.pi))
    return normal - np.log(1 - np.tanh(u) ** 2)


def conservative_gap(q, actions):
    return np.log(np.exp(q).sum(axis=1)) - q[np.arange(len(q)), actions]


def refitted_mean(plans, G, best):
    return plans[np.argsort(G)[::-1][:best]].mean(axis=0)


def add_k_probabilities(counts, k):
    return (counts + k) / (counts.sum() + k * len(counts))


def best_pair(words, counts):
    seen = {}
    for row, count in zip(words, counts, strict=True):
        for place in range(len(row) - 1):
            pair = row[place], row[place + 1]
            seen[pair] = seen.get(pair, 0) + count
    return sorted(seen, key=lambda pair: (-seen[pair], *pair))[0]


def pull_of_company(hidden, there, drawn):
    def sigma(x):
        return 1 / (1 + np.exp(-x))

    return (sigma(there @ hidden) - 1) * there + sigma(drawn @ hidden) @ drawn


def padding_mask(lengths):
    T = max(lengths)
    return [[0] * (T - n) + [1] * n for n in lengths]


def new_token_probability(logits):
    odds = np.exp(logits)
    return np.exp(logits.mean()) / (odds.sum() + np.exp(logits.mean()))


def attend(q, K, V):
    odds = np.exp(K @ q / np.sqrt(len(q)))
    return odds @ V / odds.sum()


def causal_attention(X):
    return [attend(X[t], X[: t + 1], X[: t + 1]) for t in range(len(X))]


def rotate_by_position(x, position):
    half = len(x) // 2
    turned = (x[:half] + 1j * x[half:]) * np.exp(
        1j * position * 10_000.0 ** (-np.arange(half) / half)
    )
    return [*turned.real, *turned.imag]


def rms_norm(x, w):
    return x / np.sqrt(np.mean(x**2) + 1e-6) * w


def layer_products(n, d, f):
    return n * 4 * d**2 + n * 3 * d * f + 2 * n**2 * d


def decoder_input(target, start):
    return [start, *target[:-1]]


def top_p(p, mass):
    order = np.argsort(-p)
    kept = np.zeros_like(p)
    for token in order:
        kept[token] = p[token]
        if kept.sum() >= mass:
            break
    return kept / kept.sum()


def min_p(p, share):
    kept = p * (p >= share * p.max())
    return kept / kept.sum()


def repetition_penalty(logits, seen, penalty):
    lowered = np.where(logits > 0, logits / penalty, logits * penalty)
    return np.where(seen == 1, lowered, logits)


def best_beams(score, log_prob):
    return sorted((score[:, None] + log_prob).flatten(), reverse=True)[: len(score)]


def perplexity(log_prob):
    return np.exp(-log_prob.mean())


def at_temperature(logits, temperature):
    odds = np.exp(logits / temperature)
    return odds / odds.sum()


def sft_loss(log_prob, mask):
    return -log_prob[mask == 1].mean()


def distillation_loss(student, teacher, temperature):
    s, t = (
        np.exp(logits / temperature) / np.exp(logits / temperature).sum()
        for logits in (student, teacher)
    )
    return temperature**2 * (t * np.log(t / s)).sum()


def beam_weights(scores, tau):
    if np.ptp(scores) == 0:
        return np.full(len(scores), 1 / len(scores))
    odds = np.exp((scores - scores.mean()) / scores.std() / tau)
    return odds / odds.sum()


def reward_model_loss(better, worse):
    return -np.log(1 / (1 + np.exp(worse - better))).mean()


def dpo_loss(chosen, rejected, reference_chosen, reference_rejected):
    return np.log(1 + np.exp(-0.1 * (chosen - reference_chosen - rejected + reference_rejected)))


def rlhf_rewards(log_prob, reference_log_prob, score):
    rewards = -0.1 * (log_prob - reference_log_prob)
    rewards[-1] += score
    return rewards


def group_advantages(R):
    return (R - R.mean()) / (R.std(ddof=1) + 1e-4)


def leave_one_out(R):
    return R - (R.sum() - R) / (len(R) - 1)


def k3(log_prob, reference_log_prob):
    d = reference_log_prob - log_prob
    return np.exp(d) - d - 1


def per_text(loss, mask):
    return np.mean([row[kept == 1].mean() for row, kept in zip(loss, mask, strict=True)])


def pass_at_k(right, samples, k):
    return 1 - math.comb(samples - right, k) / math.comb(samples, k)


def left_of_optimism(first, reward, alpha):
    mean = first + (reward - first) / 1
    return [mean, (1 - alpha) * first + alpha * reward]


def cost_of_exploring(means, epsilon):
    return epsilon * (max(means) - sum(means) / len(means))


def way_to_the_goal(step, goal, steps, gamma):
    value = goal
    for _ in range(steps):
        value = step + gamma * value
    return value


def sarsa_step(q, state, action, reward, next_state, next_action, terminated):
    target = reward + (0 if terminated else 0.9 * q[next_state, next_action])
    q = q.copy()
    q[state, action] = 0.5 * q[state, action] + 0.5 * target
    return q


def choose_with_bonus(q, waited, kappa):
    return max(range(len(q)), key=lambda a: q[a] + kappa * math.sqrt(waited[a]))


def waiting_as_good_as_the_goal(kappa, goal):
    return goal**2 / kappa**2


def two_visit_rules(rewards):
    returns = [sum(rewards[step:]) for step in range(len(rewards))]
    return [sum(returns) / len(returns), returns[0]]


def second_moment(steps, stay):
    total, probability, ratio = 0.0, 1.0, 1.0
    for _ in range(steps):
        probability, ratio = probability / 2, ratio * 2
        total += probability * (1 - stay) * ratio**2
        probability *= stay
    return total


def two_answers_for_a(ones, zeros):
    V = np.zeros(2)
    for _ in range(20_000):  # batch TD with a step size small enough
        V += 0.002 * np.array([V[1] - V[0], ones * (1 - V[1]) + (zeros + 1) * (0 - V[1])])
    return [V[0], 0.0]


def bump_traces(times, alpha, decay):
    powers = decay ** np.arange(times)
    return [
        alpha * powers.sum(),
        alpha,
        alpha * ((decay * (1 - alpha)) ** np.arange(times)).sum(),
    ]


def puct_threshold(tries, q, prior):
    low, high = 0.0, 1e6
    for _ in range(200):
        c = (low + high) / 2
        score = q + c * prior * math.sqrt(1 + tries.sum()) / (1 + tries)
        low, high = (low, c) if score[1] > score[0] else (c, high)
    return low


def lstd_weight(x, rewards, next_x, terminated, truncated):
    A = b = 0.0
    for now, reward, after, over in zip(x, rewards, next_x, terminated, strict=True):
        A += now * (now - (0 if over else 0.9 * after))
        b += now * reward
    return b / A


def td3_target(reward, next_q, terminated, truncated):
    return reward if terminated else reward + 0.9 * min(next_q)


def mean_of_the_lower(outcomes):
    pairs = [min(one, other) for one in outcomes for other in outcomes]
    return sum(pairs) / len(pairs)


def largest_value(gamma, reward):
    return sum(reward * gamma**k for k in range(5_000))


def linear_dqn_step(w, state, action, reward, next_state, next_action, terminated):
    error = reward + (0 if terminated else 0.9 * max(w[next_state])) - w[state, action]
    w = w.copy()
    w[state, action] += 0.5 * error
    return w


def best_soft_policy(q, alpha):
    pi = np.exp((q - q.max()) / alpha)
    pi /= pi.sum()
    entropy = -sum(p * math.log(p) for p in pi if p > 0)
    return [*pi, pi @ q + alpha * entropy]


def last_advantages(rewards, values, last_value, ending):
    V = [*values, 0.0 if ending == "terminated" else last_value]
    deltas = [rewards[t] + 0.9 * V[t + 1] - V[t] for t in (0, 1)]
    return [deltas[0] + 0.9 * deltas[1], deltas[1]]


def cost_of_a_clone(epsilon, horizon):
    return sum(epsilon * (1 - epsilon) ** (t - 1) * (horizon - t) for t in range(1, horizon + 1))


def expectile(values, tau):
    low, high = min(values), max(values)
    for _ in range(100):
        e = (low + high) / 2
        above = sum(v - e for v in values if v > e)
        below = sum(e - v for v in values if v < e)
        low, high = (e, high) if tau * above > (1 - tau) * below else (low, e)
    return e


def kept_episodes(returns, keep, threshold):
    best = sorted(range(len(returns)), key=lambda i: (-returns[i], i))[:keep]
    return [int(i in best and returns[i] >= threshold) for i in range(len(returns))]


def after_cloning(p, n):
    return [1, 1 - (1 - p) ** n]


def largest_standardised_score(n):
    return math.sqrt(n - 1)


def shifted_difference(one, other, c):
    return sum(one) - sum(other) + c * (len(one) - len(other))


def where_ipo_stops(beta):
    return 0.5 / beta


def soft_gradient(logits, teacher, T):
    student, target = np.exp(logits / T), np.exp(teacher / T)
    return (student / student.sum() - target / target.sum()) / T


def silent_groups(p, G):
    return math.prod([p] * G) + math.prod([1 - p] * G)


def factor_of_the_mean(returns):
    return (len(returns) - 1) / len(returns)


def token_credit(tokens, gamma):
    return [gamma ** (tokens - 1 - t) for t in range(tokens)]


def blind_discriminator(D):
    return -math.log(D * (1 - D))


def change_next_door(x, next_x, error, alpha):
    return alpha * error * sum(one * other for one, other in zip(x, next_x, strict=True))


def cost_of_sweeps(improvements, sweeps, num_actions):
    return improvements + improvements * sweeps / num_actions


def single_and_double(q, noise):
    single = double = 0.0
    cases = [(a, b) for a in noise for b in noise]
    for a, b in cases:
        first, second = q[0] + a, q[1] + b
        single += max(first, second) / len(cases)
        told = q + sum(noise) / len(noise)  # by the other table, on average
        if abs(first - second) < 1e-9:
            double += (told[0] + told[1]) / 2 / len(cases)
        else:
            double += told[int(second > first)] / len(cases)
    return [single, double]


def visits_in_order(V, returns, alpha):
    for G in returns:
        V = (1 - alpha) * V + alpha * G
    return V


def fitted_target(reward, next_q, terminated, truncated):
    return reward if terminated else reward + 0.9 * max(next_q)


def gtd2_step(h, x, next_x, ratio):
    return 0.1 * ratio * np.dot(h, x) * (x - 0.9 * next_x)


def natural_step(logits, A, max_kl):
    p = np.exp(logits) / np.exp(logits).sum()
    s = A - A.mean()  # F A is g, and F does not see what is added to all
    return math.sqrt(2 * max_kl / (p @ s**2 - (p @ s) ** 2)) * s


def luck_of_an_action(p, tau):
    return 1 / (1 + (1 - tau) * (1 - p) / (tau * p))


def two_divergences(teacher, student):
    pairs = [*zip(teacher, student, strict=True)]
    return [
        sum(t * math.log(t / s) for t, s in pairs),
        sum(s * math.log(s / t) for t, s in pairs),
    ]


def cloning_loss(p):
    return -sum(math.log(share) for share in p) / len(p)


def loss_and_accuracy(better, worse):
    pairs = [*zip(better, worse, strict=True)]
    loss = sum(math.log(1 + math.exp(w - b)) for b, w in pairs) / len(pairs)
    return [loss, sum(b > w for b, w in pairs) / len(pairs)]


def square_penalty(x):
    return (math.hypot(*x) - 1) ** 2


def entropy_of_the_best(q, alpha):
    p = np.exp(q / alpha)
    p /= p.sum()
    return sum(-x * math.log(x) for x in p)


def with_one_critic(q, p, alpha):
    lower = [min(pair) for pair in zip(*q, strict=True)]
    entropy = -sum(x * math.log(x) for x in p)
    return [p @ lower + alpha * entropy, p @ q[0] + alpha * entropy]


def smooth_the_target(action, noise, limit):
    near = [max(-limit, min(limit, each)) for each in noise]
    return [max(-1, min(1, a + e)) for a, e in zip(action, near, strict=True)]


def policy_slope(theta, states, best):
    return sum(-2 * (theta * s - best) * s for s in states) / len(states)


def weights_of_the_target(online, period):
    copy, found = online[0], []
    for update, weight in enumerate(online[1:], start=1):
        found.append(copy)
        if update % period == 0:
            copy = weight
    return found


def updates_and_rows(rollouts, num_envs, rollout_steps):
    budget = rollouts * num_envs * rollout_steps
    return [budget // (num_envs * rollout_steps), num_envs * rollout_steps]


def errors_of_advantages(errors, gamma, decay):
    found, after = [], 0.0
    for now, following in zip(errors[-2::-1], errors[:0:-1], strict=True):
        after = gamma * following - now + gamma * decay * after
        found.insert(0, after)
    return found


def held_by_the_clip(ratio, A, clip):
    held = [
        r > 1 + clip if advantage > 0 else r < 1 - clip
        for r, advantage in zip(ratio, A, strict=True)
    ]
    return sum(held) / len(held)


def explained_share(values, G):
    errors = G - values
    return 1 - (np.mean(errors**2) - errors.mean() ** 2) / (np.mean(G**2) - G.mean() ** 2)


def predicted_divergence(logits, d):
    old, new = (np.exp(z) / np.exp(z).sum() for z in (logits, logits + d))
    exact = sum(p * math.log(p / q) for p, q in zip(old, new, strict=True))
    return [exact, 0.5 * (old @ d**2 - (old @ d) ** 2)]


def one_conjugate_step(F, g):
    return sum(x * x for x in g) / sum(x * y for x, y in zip(g, F @ g, strict=True)) * g


def two_baselines(returns):
    total, n = sum(returns), len(returns)
    return [[r - (total - r) / (n - 1) for r in returns], [r - total / n for r in returns]]


def two_scales(returns):
    centred = [r - sum(returns) / len(returns) for r in returns]
    deviation = math.sqrt(sum(c * c for c in centred) / (len(returns) - 1))
    return [[c / deviation for c in centred], centred]


def moves_of_the_search(prior, visits):
    return np.mean([np.argmax(p) != np.argmax(n) for p, n in zip(prior, visits, strict=True)])


def move_probabilities(visits, tau):
    if tau == 0:
        return [float(n == max(visits)) for n in visits]
    powers = [n ** (1 / tau) for n in visits]
    return [power / sum(powers) for power in powers]


def noisy_prior(prior, noise, fraction):
    return prior + fraction * (noise - prior)


def worth_of_looking(prize, p, gamma):
    open_loop = [gamma * p * prize, gamma * (1 - p) * prize]
    return [sum(open_loop), max(open_loop)]


def uct_threshold(tries, q):
    low, high = 0.0, 1e6
    for _ in range(200):
        c = (low + high) / 2
        score = q + c * np.sqrt(math.log(sum(tries)) / tries)
        low, high = (low, c) if score[1] > score[0] else (c, high)
    return low


def planned_steps(q, states, actions, rewards, next_states):
    q = q.copy()
    for step in range(len(states)):
        s, a = states[step], actions[step]
        q[s, a] = 0.5 * q[s, a] + 0.5 * (rewards[step] + 0.9 * max(q[next_states[step]]))
    return q


def wavering(alpha, variance):
    weights = alpha * (1 - alpha) ** np.arange(2_000)
    return variance * (weights**2).sum()


def news_for_predecessors(q, states, actions, rewards, next_states, changed):
    found = []
    for s, a, r, following in zip(states, actions, rewards, next_states, strict=True):
        found.append(abs(r + 0.9 * max(q[changed]) - q[s, a]) if following == changed else 0.0)
    return found


def costs_of_a_backup(P, state):
    rows = [row for rows in P for row in rows if row[state] > 0]
    return [len(rows), sum(np.count_nonzero(row) for row in rows)]


def error_after_steps(e, L, horizon):
    error = 0.0
    for _ in range(horizon):
        error = L * error + e
    return error


def surprises(predicted, true):
    found = []
    for judge in (predicted[0], sum(predicted) / len(predicted)):
        plan = max(range(len(true)), key=lambda k: judge[k])
        found.append(judge[plan] - true[plan])
    return found


def rollout_distance(a, b, x, steps):
    true = model = x
    for _ in range(steps):
        true, model = a * true, b * model
    return abs(true - model)


def variance_of_sarsa(pi, q, gamma):
    targets = gamma * q
    return (pi * targets**2).sum() - (pi * targets).sum() ** 2


def noise_of_n_steps(n, gamma, variance):
    return sum(variance * gamma ** (2 * k) for k in range(n))


def steps_learned_from(T, epsilon, A):
    learned, still = 0.0, 1.0
    for _ in range(T):
        learned += still
        still *= 1 - epsilon * (A - 1) / A
    return learned


def way_of_two_tables(n, alpha):
    left = [math.comb(n, k) / 2**n * (1 - alpha) ** k for k in range(n + 1)]
    return [1 - (1 - alpha) ** n, 1 - sum(left)]


def loss_of_cql(q, action, y, alpha):
    probability = math.exp(q[action]) / sum(math.exp(value) for value in q)
    return 0.5 * (q[action] - y) ** 2 - alpha * math.log(probability)


def slope_of_the_bracket(q, counts):
    return np.exp(q) / np.exp(q).sum() - counts / counts.sum()


def cloning_weights(q, v, beta):
    return [min(math.exp(beta * (value - v)), 100) for value in q]


def two_rewards_of_gail(D):
    return [[-math.log(1 - d) for d in D], [math.log(d / (1 - d)) for d in D]]


def untried_pairs(states, actions, S, A):
    taken = np.zeros((S, A), bool)
    taken[states, actions] = True
    return (~taken).sum()


def hard_label_loss(student, teacher, action, by_student):
    total = 0.0
    for row, best, done, own in zip(student, teacher, action, by_student, strict=True):
        total -= math.log(row[best.argmax() if own else done])
    return total / len(student)


def beams_by_their_scores(scores, tau):
    z = (scores - np.mean(scores)) / math.sqrt(np.mean((scores - np.mean(scores)) ** 2))
    return np.exp(z / tau) / np.exp(z / tau).sum()


def lesson_of_a_student(own, other):
    return np.exp(own) / np.exp(own).sum() - np.exp(other) / np.exp(other).sum()


def clone_of_a_noisy_expert(epsilon, A):
    return [1 - epsilon * (A - 1) / A, epsilon / A]


def chance_of_a_kept_episode(p, G):
    return sum(math.comb(G, k) * p**k * (1 - p) ** (G - k) for k in range(1, G + 1))


def loss_after_a_fall(chosen, rejected, fall, beta):
    margins = [beta * ((c - fall) - (r - fall)) for c, r in zip(chosen, rejected, strict=True)]
    return sum(math.log(1 + math.exp(-m)) for m in margins) / len(margins)


def sweep_in_place(P, r, V):
    V = V.copy()
    for s in range(len(V)):
        V[s] = r[s] + 0.9 * (P[s] * V).sum()
    return V


def value_with_random_actions(P, r, policy, epsilon):
    V = np.zeros(len(r))
    for _ in range(500):
        Q = r + 0.9 * P @ V
        V = epsilon * Q.mean(axis=1) + (1 - epsilon) * Q[np.arange(len(r)), policy]
    return V


def greedy_after_random(P, r):
    V = value_with_random_actions(P, r, np.zeros(len(r), dtype=int), 1.0)
    return value_with_random_actions(P, r, (r + 0.9 * P @ V).argmax(axis=1), 0.0)


def rounds_of_policy_iteration(P, r):
    policy, rounds = np.zeros(len(r), dtype=int), 0
    while True:
        rounds += 1
        Q = r + 0.9 * P @ value_with_random_actions(P, r, policy, 0.0)
        better = [
            row.argmax() if row.max() > row[old] + 1e-9 else old
            for row, old in zip(Q, policy, strict=True)
        ]
        if better == list(policy):
            return rounds
        policy = np.array(better)


def states_that_move(Q, policy):
    moved = np.zeros(2)
    for row, old in zip(Q, policy, strict=True):
        above = as_good = old
        for a, value in enumerate(row):
            above = a if value > row[above] else above
            as_good = a if value >= row[as_good] else as_good
        moved += [above != old, as_good != old]
    return moved


def one_modified_round(P, r, V, m):
    Q = r + 0.9 * P @ V
    policy, V = Q.argmax(axis=1), Q.max(axis=1)
    for _ in range(m):
        V = np.take_along_axis(r + 0.9 * P @ V, policy[:, None], axis=1)[:, 0]
    return V


def sweeps_to_the_end(distance):
    V, sweeps = dict.fromkeys(range(1, max(distance) + 1), 0.0), 0
    while True:
        sweeps += 1
        after = {d: 1.0 if d == 1 else V[d - 1] for d in V}
        if after == V:
            return sweeps
        V = after


def found_after_sweeps(slip, sweeps):
    return 1 - slip**sweeps


def backups_on_a_grid(size):
    cells = np.add.outer(np.arange(size), np.arange(size))
    return [cells.size * (cells.max() + 1), cells.size]


def price_of_bins(bins, numbers, num_actions, steps):
    pairs = num_actions
    for _ in range(numbers):
        pairs *= bins
    return [pairs, steps / pairs]


def optimistic_value(rewards, gamma):
    return max([0.0, *rewards]) / (1 - gamma)


def turns_of_ucb(paid, c, steps):
    turns = list(range(len(paid)))
    for t in range(len(paid) + 1, steps + 1):
        counts = np.array([turns.count(a) for a in range(len(paid))])
        turns.append(int(np.argmax(paid + c * np.sqrt(np.log(t) / counts))))
    return turns[:steps]


def horizon_that_pays(rewards, idle):
    for H in range(1, len(rewards) + 1):
        if rewards[:H].sum() > H * idle:
            return H
    return 0


def fitted_table(q0, actions, y):
    return [y[actions == a].mean() if a in actions else q0 for a in range(3)]


def values_of_a_walk(n, left, right):
    A = np.eye(n) - 0.5 * np.eye(n, k=1) - 0.5 * np.eye(n, k=-1)
    b = np.zeros(n)
    b[0] += left / 2
    b[-1] += right / 2
    return np.linalg.solve(A, b)


def weights_of_returns(n, alpha):
    weights = np.zeros(n)
    for k in range(n):
        weights *= 1 - alpha
        weights[k] = alpha
    return weights


def lessons_of_an_episode(end, needed):
    return [needed * (1 / end), needed]


def updates_of_equal_weight(w):
    return sum(w) ** 2 / sum(w * w)


def error_of_a_step_size(alpha, n, error, variance):
    kept = (1 - alpha) ** 2
    return kept**n * error**2 + alpha**2 * variance * sum(kept**k for k in range(n))


def best_step_size(error, variance, n):
    return 1 / (1 + n * variance / error**2)


def error_of_the_return(P, error, gamma, n):
    return np.linalg.matrix_power(gamma * P, n) @ error


def weights_of_lambda(lam, T):
    weights = [(1 - lam) * lam ** (n - 1) for n in range(1, T)]
    return [*weights, 1 - sum(weights)]


def share_of_the_way(alpha, decay, visits):
    return [
        alpha * sum(decay**k for k in range(visits)),
        alpha * sum((decay * (1 - alpha)) ** k for k in range(visits)),
    ]


def online_and_offline(V, states, rewards):
    online, change = V.copy(), np.zeros(len(V))
    for t in range(len(states)):
        s, last = states[t], t == len(states) - 1
        change[s] += 0.5 * (rewards[t] + (0 if last else V[states[t + 1]]) - V[s])
        online[s] += 0.5 * (rewards[t] + (0 if last else online[states[t + 1]]) - online[s])
    return [online, V + change]


def chance_of_a_fall(epsilon, steps):
    fallen = 0.0
    for _ in range(steps):
        fallen += (1 - fallen) * epsilon / 4
    return fallen


def gap_of_the_targets(q, epsilon):
    return q.max() - ((1 - epsilon) * q.max() + epsilon * q.mean())


def epsilon_for_the_edge(steps, detour, cost):
    return detour / (steps * cost / 4)


def greedy_choices(rewards, alpha, steps):
    q, taken = np.zeros(len(rewards)), []
    for _ in range(steps):
        a = q.argmax()
        q[a] = (1 - alpha) * q[a] + alpha * rewards[a]
        taken.append(a)
    return taken


def falls_in_an_episode(epsilon, steps):
    falls = 0.0
    for _ in range(steps):  # before one step more: pass it, or fall and come here again
        falls = (falls + epsilon / 4) / (1 - epsilon / 4)
    return falls


def left_share(epsilon, ahead):
    return ahead * (1 - epsilon / 2) + (1 - ahead) * epsilon / 2


def pull_of_one_value(q, epsilon, action, change):
    pi = epsilon_greedy_first(q, epsilon)
    moved = q.copy()
    moved[action] += change
    return 0.9 * (pi @ moved - pi @ q)


def epsilon_greedy_first(q, epsilon):
    pi = np.full(len(q), epsilon / len(q))
    pi[q.argmax()] += 1 - epsilon
    return pi


def error_of_groups(values, bins):
    groups = np.split(values, bins)
    return np.sqrt(np.mean(np.concatenate([g - g.mean() for g in groups]) ** 2))


def tdc_step(h, x, next_x, error, ratio):
    return 0.1 * ratio * (error * x - 0.9 * (h @ x) * next_x)


def tiles_in_common(x, y, tilings):
    return sum(np.floor(x + i / tilings) == np.floor(y + i / tilings) for i in range(tilings))


def credit_of_each_step(T, lam):
    return [0.5 * (0.9 * lam) ** (T - 1 - t) for t in range(T)]


def entries_after_an_episode(pairs, n):
    return len(set(pairs[max(0, len(pairs) - n) :].tolist()))


def traces_after_exploring(greedy, decay):
    traces = []
    for is_greedy in greedy:
        traces = [trace * (decay if is_greedy else 0) for trace in traces] + [1.0]
    return traces


def reach_of_the_traces(epsilon, num_actions, lam):
    total = 1.0
    for _ in range(2_000):
        total = 1 + lam * (1 - epsilon * (1 - 1 / num_actions)) * total
    return total


def states_that_know_of_the_end(T, episodes):
    return [min(T, episodes), T]


def tries_until_the_detour(epsilon, steps):
    return 1 / (epsilon / 4) ** steps


def expected_and_largest(q, reward, epsilon):
    mean = epsilon * q.mean() + (1 - epsilon) * q.max()
    return reward + 0.9 * np.array([mean, q.max()])


def changes_of_two_sweeps(P, r, policy, V):
    Q = r + 0.9 * P @ V
    evaluated = Q[np.arange(len(V)), policy]
    return [abs(evaluated - V).max(), abs(Q.max(axis=1) - V).max()]


def next_actions_of_two_orders(q, action, reward):
    first = np.argmax(q)
    q = q.copy()
    q[action] += 0.5 * (reward + 0.9 * q[first] - q[action])
    return [first, np.argmax(q)]


def values_after_the_first_episode(states, n, alpha):
    visits = np.bincount(states[-n:], minlength=4)
    return 1 - (1 - alpha) ** visits


def value_of_better_steps(P, r, policy, steps):
    s = np.arange(len(policy))
    V = np.linalg.inv(np.eye(len(s)) - 0.9 * P[s, policy]) @ r[s, policy]
    better = np.argmax(r + 0.9 * P @ V, axis=1)
    for _ in range(steps):
        V = (r + 0.9 * P @ V)[s, better]
    return V


def backups_of_a_slippery_state(change, stay, tolerance):
    if stay == 0:
        return 1
    return np.ceil(np.log(tolerance / change) / np.log(0.9 * stay))


def returns_for_a_clear_choice(gap, deviation):
    return np.ceil(8 * deviation**2 / gap**2)


def tries_of_the_moves(values, c, simulations):
    count = np.ones(len(values))
    while count.sum() < simulations:
        count[np.argmax(values + c * np.sqrt(np.log(count.sum()) / count))] += 1
    return count


def blame_of_earlier_pairs(steps, lam):
    return sum((0.9 * lam) ** k for k in range(1, steps + 1))


def value_after_replays(targets, alpha, replays):
    return targets.mean() * (1 - (1 - alpha) ** replays)


def pairs_that_learn_of_a_reward(greedy):
    exploratory = np.flatnonzero(~greedy.astype(bool))
    return [len(greedy) - (exploratory[-1] if len(exploratory) else 0), 1]


def visits_to_forget(alpha, share):
    return np.ceil(np.log(share) / np.log(1 - alpha))


def estimates_after_a_change(before, after, alpha):
    rewards, td = np.append(before, after), 0.0
    for reward in rewards:
        td = (1 - alpha) * td + alpha * reward
    return [rewards.mean(), td]


def growth_per_step(A, alpha):
    return max(abs(1 - alpha * np.linalg.eigvals(A)))


def errors_of_two_ends(x, P, r):
    values = np.linalg.inv(np.eye(len(r)) - 0.9 * P) @ r
    weights = (x @ values) / (x @ x), (x @ r) / (x @ x - 0.9 * x @ P @ x)
    return [np.mean((values - w * x) ** 2) for w in weights]


def targets_of_the_first_episode(T, n):
    return -np.minimum(n, np.arange(T, 0, -1))


def largest_step_size(visits, decay):
    return [2 * (1 - decay) / (1 - decay**visits), 2]


def pairs_still_missing(chances, episodes):
    return sum((1 - p) ** episodes for p in chances)


def fitted_slope(actions, values, start):
    b, w = start
    for _ in range(5_000):
        error = values - b - w * actions
        b, w = b + 0.1 * error.mean(), w + 0.1 * (error * actions).mean()
    return w


def bias_of_the_critic(q, rewards, gamma):
    total, differences = 0.0, []
    for value, reward in zip(q[::-1], rewards[::-1], strict=True):
        total = reward + gamma * total
        differences.append(value - total)
    return np.mean(differences)


def rows_of_each_step(batch, ratio, updates):
    imagined = round(batch * ratio)
    return [(batch - imagined) * updates, imagined * updates]


def targets_in_a_model(rewards, next_values, terminated):
    return np.where(terminated, rewards, rewards + 0.9 * next_values)


def bracket_of_cql(q, action):
    return np.mean([np.log(sum(np.exp(row))) - row[a] for row, a in zip(q, action, strict=True)])


def clone_after_one_step(logits, states, actions):
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    gradient = np.zeros_like(logits)
    for s, a in zip(states, actions, strict=True):
        gradient[s] += probs[s] / len(states)
        gradient[s, a] -= 1 / len(states)
    after = np.exp(logits - gradient)
    return after / after.sum(axis=1, keepdims=True)


def loss_of_the_first_student(own, peer, labels, soft_coef):
    p, q = (np.exp(x) / np.exp(x).sum(axis=1, keepdims=True) for x in (own, peer))
    hard = -(np.log(p[0, labels[0]]) + np.log(p[1, labels[1]])) / 2
    return hard + soft_coef * np.mean((q * np.log(q / p)).sum(axis=1))


def lessons_of_two_students(first, second):
    return [second @ np.log(second / first), first @ np.log(first / second)]


def labels_off_the_way(beta, error, T):
    on, share = 1.0, 0.0
    for _ in range(T):
        share += (1 - on) / T
        on *= beta + (1 - beta) * (1 - error)
    return share


def fits_with_news(agreement, enough):
    count = len(agreement)
    while count and agreement[count - 1] >= enough:
        count -= 1
    return count


def pull_on_each_pair(delta, beta):
    return -beta / (1 + np.exp(beta * delta)) / len(delta)


def cloned_shares(actions, scores, tau):
    weights = np.exp((scores - scores.mean()) / scores.std() / tau)
    return [weights[actions == a].sum() / weights.sum() for a in range(3)]


def noise_of_the_gradient(p, paid, baseline):
    estimates = np.array([-p * (paid[0] - baseline), (1 - p) * (paid[1] - baseline)])
    mean = (1 - p) * estimates[0] + p * estimates[1]
    return [mean, np.array([1 - p, p]) @ (estimates - mean) ** 2]


def weight_of_a_token(returns, lengths, G):
    groups = returns.reshape(-1, G)
    others = (groups.sum(axis=1, keepdims=True) - groups) / (G - 1)
    return (groups - others).ravel() / len(returns)
