// γ = 1: nothing makes later rewards count less, so a value is finite only where the rewards come to an end.
// They end with the episode, or where one can rest: stay forever without being paid. A cell of rest is worth 0 at least.

const LOST = "From some cells nothing can end the episode, and nobody can rest there without being paid, so with γ = 1 the rewards add up without end: there is no V*.";
const INFINITE = "Walking in circles pays, so with γ = 1 the rewards add up to infinity: there is no V*.";

// An action of each state that leads to an end or to rest, and the states that are worth more than rest: { actions, counted, endless }.
function endingPolicy(world) {
  const known = reached(world), rest = restingActions(world, known), there = rest.map((action) => action >= 0);
  const actions = rest.map((action) => Math.max(action, 0));
  for (let grown = true; grown;) {
    const leads = world.cells.map((_, state) => !known[state] || world.terminal[state] || there[state] ? -1
      : MOVES.findIndex((_, action) => outcomes(world, state, action).some(({ next, terminated }) => terminated || there[next])));
    grown = leads.some((action) => action >= 0);
    leads.forEach((action, state) => { if (action >= 0) [actions[state], there[state]] = [action, true]; });
  }
  const counted = known.map((is, state) => is && !world.terminal[state] && rest[state] < 0);
  return { actions, counted, endless: counted.some((is, state) => is && !there[state]) ? LOST : null };
}

// [S]: an action that is paid 0 and leads nowhere but to other such states, -1 where there is none.
function restingActions(world, known) {
  const nothing = new Array(world.numStates).fill(0);
  let rest = known.map((is, state) => is && !world.terminal[state] ? 0 : -1);
  for (;;) {
    const stays = rest.map((was, state) => was < 0 ? -1 : MOVES.findIndex((_, action) => backup(world, nothing, 0, state, action) === 0
      && outcomes(world, state, action).every(({ next, terminated }) => terminated || rest[next] >= 0)));
    if (stays.every((action, state) => action >= 0 === rest[state] >= 0)) return stays;
    rest = stays;
  }
}

// Whether a policy leads from everywhere to an end or to rest.
function comesToRest(world, { actions, counted }) {
  const there = counted.map((is) => !is);
  for (let grown = true; grown;) {
    grown = false;
    counted.forEach((_, state) => {
      if (there[state] || !outcomes(world, state, actions[state]).some(({ next, terminated }) => terminated || there[next])) return;
      there[state] = grown = true;
    });
  }
  return there.every(Boolean);
}
