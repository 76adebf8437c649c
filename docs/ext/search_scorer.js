/* Who searches the site looks for the chapter that defines a word, for the page or the section that is called so, for the rest of the book,
   and for the API last. The numbers below `score` are Sphinx's own. */
var Scorer = {
  score: ([page, title, anchor, description, score, file, kind]) =>
    score * (kind === "title" ? 100 / 15 : 1)                            // as much as an entry of the index, which is a defined word
    + (page.startsWith("chapters/") ? 10 : 0) - (page.startsWith("api/") ? 40 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

/* The results show a piece of each page, which they read; a page on the disk may read no other. */
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
