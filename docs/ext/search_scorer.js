/* Who searches the site looks for the book first, and for the API after it. The other numbers are Sphinx's own. */
var Scorer = {
  score: ([page, title, anchor, description, score]) => score - (page.startsWith("api/") ? 40 : 0) + (page.startsWith("chapters/") ? 5 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
